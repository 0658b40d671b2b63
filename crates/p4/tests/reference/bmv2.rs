//! The program in bmv2, on veth interfaces in network namespaces.
//!
//! That needs root, `p4c-bm2-ss`, `simple_switch` and `simple_switch_CLI` on the PATH; without them the test says that it was skipped.
//! `cargo xtask p4` wants it to run.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libra_dataplane::{Header, Kind, RegionConfig};
use libra_p4::{Bmv2Tables, Link, Setup, Sizes, TableChange};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::pair::{CONFIG, Device, step};
use crate::{go_round, run};

/// Where the switch is reached, and from where: a machine of the agent, and one of all workers.
const ADDRESS: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 77, 0, 1), 4700);
const AGENT: &str = "10.77.0.2";
const WORKERS: &str = "10.77.0.3";
const MAC: [u8; 6] = [2, 0x4c, 0, 0, 0, 1];
const THRIFT: &str = "9390";

/// Packets of the agent under way at once.
const WINDOW: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);

/// A command, whose failure is a failure of the test.
fn run_command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {error}", arguments.join(" "));
}

/// Namespaces of the switch, the agent and the workers. They go with this.
struct Namespaces(String);

impl Namespaces {
    fn new() -> Self {
        let namespaces = Self(format!("libra-p4-{}", std::process::id()));
        for host in ["switch", "agent", "workers"] {
            run_command("ip", &["netns", "add", &namespaces.name(host)]);
            run_command("ip", &["-n", &namespaces.name(host), "link", "set", "lo", "up"]);
        }
        for (host, address) in [("agent", AGENT), ("workers", WORKERS)] {
            let (inside, switch) = (namespaces.name(host), namespaces.name("switch"));
            let pair = [
                "link", "add", "eth0", "netns", &inside, "type", "veth", "peer", "name", host, "netns",
                &switch,
            ];
            run_command("ip", &pair);
            for (namespace, interface) in [(&inside, "eth0"), (&switch, host)] {
                let quiet = format!("net.ipv6.conf.{interface}.disable_ipv6=1");
                run_command("ip", &["netns", "exec", namespace, "sysctl", "-qw", &quiet]);
                run_command("ip", &["-n", namespace, "link", "set", interface, "up"]);
            }
            run_command("ip", &["-n", &inside, "address", "add", &format!("{address}/24"), "dev", "eth0"]);
        }
        namespaces
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.0)
    }

    /// A program on a machine.
    fn command(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host), program]);
        command
    }

    /// A socket of a machine. A thread of its own goes there, and does not come back.
    fn socket(&self, host: &str, address: &str) -> UdpSocket {
        let (path, address) = (format!("/run/netns/{}", self.name(host)), address.to_owned());
        let open = move || {
            let namespace = File::open(path).unwrap();
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
                .unwrap();
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect(ADDRESS).unwrap();
            socket
        };
        thread::spawn(open).join().unwrap()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for host in ["switch", "agent", "workers"] {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(host)]).status();
        }
    }
}

/// bmv2 with the program as it is checked in.
struct Bmv2 {
    tables: Bmv2Tables,
    switch: Child,
    agent: UdpSocket,
    workers: Vec<UdpSocket>,
    /// Last: a switch must not lose its interfaces while it runs.
    namespaces: Namespaces,
}

impl Bmv2 {
    fn start(program: &Path) -> Self {
        let namespaces = Namespaces::new();
        let mut command = namespaces.command("switch", "simple_switch");
        command.args(["-i", "0@agent", "-i", "1@workers", "--thrift-port", THRIFT]).arg(program);
        let switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let agent = namespaces.socket("agent", &format!("{AGENT}:0"));
        let workers =
            (0..3).map(|worker| namespaces.socket("workers", &format!("{WORKERS}:{}", 5000 + worker)));
        let bmv2 = Self {
            tables: Bmv2Tables::new(Sizes::default()),
            switch,
            agent,
            workers: workers.collect(),
            namespaces,
        };
        let setup = Setup { address: ADDRESS, mac: MAC, agent_port: 0, ports: vec![0, 1] };
        let begun = Instant::now();
        let lines = [setup.lines(&Sizes::default()), setup.flood_lines()].concat();
        while let Err(error) = bmv2.tell(&lines) {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            thread::sleep(Duration::from_millis(200));
        }
        bmv2
    }

    /// Hands lines to the command line of the switch, and returns what it says.
    fn tell(&self, lines: &[String]) -> Result<String, String> {
        let mut command = self.namespaces.command("switch", "simple_switch_CLI");
        command
            .args(["--thrift-port", THRIFT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut client = command.spawn().map_err(|error| error.to_string())?;
        let text = lines.join("\n") + "\n";
        client.stdin.take().unwrap().write_all(text.as_bytes()).map_err(|error| error.to_string())?;
        let output = client.wait_with_output().map_err(|error| error.to_string())?;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let is_connected = output.status.success() && !said.contains("Could not connect");
        if is_connected { Ok(said) } else { Err(said) }
    }
}

impl Drop for Bmv2 {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}

/// Waits for a datagram. A process that was stopped and goes on is told that its call was interrupted.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}

impl Link for Bmv2 {
    type Error = String;

    fn exchange(&mut self, packets: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
        let mut answers = Vec::with_capacity(packets.len());
        for burst in packets.chunks(WINDOW) {
            for packet in burst {
                self.agent.send(packet).map_err(|error| error.to_string())?;
            }
            for _ in burst {
                let mut answer = vec![0; 2048];
                let bytes =
                    receive(&self.agent, &mut answer).map_err(|error| format!("no answer: {error}"))?;
                answer.truncate(bytes);
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), String> {
        let said = self.tell(&self.tables.lines(changes))?;
        self.tables.heard(changes, &said).map_err(|error| error.to_string())
    }
}

impl Device for Bmv2 {
    fn hand_over(&mut self, from: SocketAddrV4, datagram: &[u8], is_answered: bool) -> Option<Vec<u8>> {
        let socket = &self.workers[usize::from(from.port() - 5000)];
        socket.send(datagram).unwrap();
        let probe = Header {
            job: CONFIG.job,
            worker: from.port() - 5000,
            seq: 0xabcd,
            ..Header::of_kind(Kind::Pull)
        };
        if !is_answered {
            // Behind it one that is answered, whatever it finds: a switch keeps the order.
            socket.send(&probe.to_bytes()).unwrap();
        }
        let mut answer = vec![0; 2048];
        let bytes = receive(socket, &mut answer).expect("an answer");
        answer.truncate(bytes);
        let is_of_probe = Header::parse(&answer).is_ok_and(|header| header.seq == probe.seq);
        (is_answered || !is_of_probe).then_some(answer)
    }

    fn address(&self, worker: u16) -> SocketAddrV4 {
        SocketAddrV4::new(WORKERS.parse().unwrap(), 5000 + worker)
    }
}

/// The program, compiled; or why it cannot be run here.
fn compiled() -> Result<PathBuf, String> {
    let user = Command::new("id").arg("-u").output().map_err(|error| error.to_string())?;
    if user.stdout.trim_ascii() != b"0" {
        return Err("it needs root, for network namespaces".to_owned());
    }
    for tool in ["simple_switch", "simple_switch_CLI", "p4c-bm2-ss"] {
        let found = Command::new("which").arg(tool).output().is_ok_and(|output| output.status.success());
        if !found {
            return Err(format!("{tool} is not on the PATH"));
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/p4/libra_v1model.p4");
    let program = std::env::temp_dir().join(format!("libra-p4-{}.json", std::process::id()));
    let output = Command::new("p4c-bm2-ss").args(["--std", "p4-16", "-o"]).arg(&program).arg(source).output();
    let output = output.map_err(|error| error.to_string())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// Runs something in bmv2, or says why not.
fn in_bmv2(run: impl FnOnce((Bmv2, Sizes), RegionConfig)) {
    // One at a time: they share addresses, and packets that are late are taken for lost.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = match compiled() {
        Ok(program) => program,
        Err(reason) => {
            assert!(std::env::var_os("LIBRA_P4_REQUIRED").is_none(), "bmv2 cannot be tested: {reason}");
            eprintln!("SKIPPED, bmv2: {reason}");
            return;
        }
    };
    let sizes = Sizes::default();
    run((Bmv2::start(&program), sizes), RegionConfig { lanes: sizes.lanes, ..CONFIG });
    std::fs::remove_file(program).unwrap();
}

// rules W3, W4, W5, W6, W7, W9, W10, D1, D2, D3, D5, D6, D7, E2
#[test]
fn bmv2_does_what_the_reference_does() {
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let steps = prop::collection::vec(step(Sizes::default().lanes), 600).new_tree(&mut runner);
    let steps = steps.unwrap().current();
    in_bmv2(|bmv2, config| run(bmv2, config, 65_533, (1500, 7), steps));
}

#[test]
fn bmv2_has_the_cuts_of_the_reference() {
    in_bmv2(go_round);
}
