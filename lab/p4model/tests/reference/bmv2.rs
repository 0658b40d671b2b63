//! The program in bmv2, on veth interfaces in network namespaces.
//!
//! That needs root, `p4c-bm2-ss`, `simple_switch` and `simple_switch_CLI` on the PATH; without them the test reports that it was skipped.
//! `cargo xtask p4 test` wants it to run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libra_dataplane::{Header, Kind, RegionConfig};
use libra_p4::{Bmv2Tables, Cookie, Link, Setup, Sizes, TableChange};
use libra_p4model::Port;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::console::Console;
use crate::device::Device;
use crate::pair::{CONFIG, Step, step};
use crate::vectors::say;
use crate::{add_in_a_burst, go_round, of_floats, run};

/// Address of the switch, and the addresses that reach it: a machine of the agent, and one of all workers.
const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 4700);
const AGENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 4700);
const WORKERS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const MAC: [u8; 6] = [2, 0x4c, 0, 0, 0, 1];
const THRIFT: &str = "9390";

/// A job and a worker of their own: what they ask is always answered, and as a switch keeps the order, everything before it was then
/// answered, too, or never will be.
const MARK: (u16, u16) = (u16::MAX, u16::MAX);
/// Packets under way at once: a port of bmv2 has room for 32 frames, and some may be flooded.
const WINDOW: usize = 24;
const TIMEOUT: Duration = Duration::from_secs(60);

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
        for (host, address) in [("agent", *AGENT.ip()), ("workers", WORKERS)] {
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
            // Elsewhere a machine fills in checksums, or the device does: here they come as they are sent, and the switch looks at them.
            run_command("ip", &["netns", "exec", &inside, "ethtool", "-K", "eth0", "tx", "off"]);
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
    fn socket(&self, host: &str, address: SocketAddrV4) -> UdpSocket {
        let path = format!("/run/netns/{}", self.name(host));
        let open = move || {
            let namespace = File::open(path).unwrap();
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
                .unwrap();
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
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
pub(crate) struct Bmv2 {
    tables: Bmv2Tables,
    console: Console,
    switch: Child,
    agent: UdpSocket,
    /// By where they send from.
    workers: BTreeMap<SocketAddrV4, UdpSocket>,
    /// Number of marks it was asked for.
    marks: u32,
    /// Last: a switch must not lose its interfaces while it runs.
    namespaces: Namespaces,
}

impl Bmv2 {
    fn start(program: &Path, sizes: Sizes) -> Self {
        let namespaces = Namespaces::new();
        let mut command = namespaces.command("switch", "simple_switch");
        command.args(["-i", "0@agent", "-i", "1@workers", "--thrift-port", THRIFT]).arg(program);
        let switch = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let agent = namespaces.socket("agent", AGENT);
        let begun = Instant::now();
        let console = || {
            let mut command = namespaces.command("switch", "simple_switch_CLI");
            command.args(["--thrift-port", THRIFT]);
            Console::start(command)
        };
        let mut console = loop {
            if let Some(console) = console() {
                break console;
            }
            assert!(begun.elapsed() < TIMEOUT, "bmv2 does not listen");
        };
        console.tell(&[Self::setup().lines(&sizes), Self::setup().flood_lines()].concat()).unwrap();
        let (tables, workers) = (Bmv2Tables::new(sizes), BTreeMap::new());
        Self { tables, console, switch, agent, workers, marks: 0, namespaces }
    }

    fn setup() -> Setup {
        Setup { address: ADDRESS, mac: MAC, agent_port: 0, ports: vec![0, 1] }
    }

    /// Gives the sender of a new address a socket there; it may then ask for a mark.
    fn let_send(&mut self, from: SocketAddrV4) {
        if self.workers.contains_key(&from) {
            return;
        }
        if *from.ip() != WORKERS && self.workers.keys().all(|known| known.ip() != from.ip()) {
            let workers = self.namespaces.name("workers");
            run_command(
                "ip",
                &["-n", &workers, "address", "add", &format!("{}/32", from.ip()), "dev", "eth0"],
            );
        }
        self.workers.insert(from, self.namespaces.socket("workers", from));
        let mark = self.mark_lines([from]);
        self.console.tell(&mark).unwrap();
    }

    fn mark_lines(&self, addresses: impl IntoIterator<Item = SocketAddrV4>) -> Vec<String> {
        let (job, worker) = MARK;
        let cookie = Cookie::default();
        let add = |address| TableChange::AddWorker { address, job, worker, cookie };
        self.tables.lines(&addresses.into_iter().map(add).collect::<Vec<_>>())
    }
}

impl Drop for Bmv2 {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}

/// Waits for a datagram. The call of a process that was stopped and goes on returns as interrupted.
fn receive(socket: &UdpSocket) -> std::io::Result<Vec<u8>> {
    let mut answer = vec![0; 2048];
    loop {
        match socket.recv(&mut answer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(bytes) => {
                answer.truncate(bytes);
                return Ok(answer);
            }
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
                answers.push(receive(&self.agent).map_err(|error| format!("no answer: {error}"))?);
            }
        }
        Ok(answers)
    }

    fn change(&mut self, changes: &[TableChange]) -> Result<(), String> {
        let said = self.console.tell(&self.tables.lines(changes)).ok_or("its command line has ended")?;
        self.tables.on_output(changes, &said).map_err(|error| error.to_string())
    }
}

impl Device for Bmv2 {
    fn hand_over(&mut self, port: Port, datagrams: &[Vec<u8>], answers: Option<usize>) -> Vec<Vec<u8>> {
        if let Port::Worker(from) = port {
            self.let_send(from);
        }
        let socket = match port {
            Port::Agent => &self.agent,
            Port::Worker(from) => &self.workers[&from],
        };
        let mut found = Vec::new();
        // With the mark they are as many.
        for burst in datagrams.chunks(WINDOW - 1) {
            burst.iter().for_each(|datagram| _ = socket.send(datagram).unwrap());
            if answers.is_some_and(|answers| answers == datagrams.len()) {
                found.extend(burst.iter().map(|_| receive(socket).expect("an answer")));
                continue;
            }
            self.marks += 1;
            let (job, worker) = MARK;
            let mark = Header { job, worker, seq: self.marks, ..Header::of_kind(Kind::Pull) };
            socket.send(&mark.to_bytes()).unwrap();
            loop {
                let answer = receive(socket).expect("the mark");
                let header = Header::parse(&answer);
                if header
                    .is_ok_and(|header| (header.job, header.worker, header.seq) == (job, worker, self.marks))
                {
                    break;
                }
                found.push(answer);
            }
        }
        found
    }

    fn reset(&mut self, sizes: Sizes) {
        self.tables = Bmv2Tables::new(sizes);
        let marks = self.mark_lines(self.workers.keys().copied());
        self.console.tell(&[Self::setup().lines(&sizes), marks].concat()).unwrap();
    }
}

/// A program of `program`, compiled; or why it cannot be run here.
fn compiled(program: &str) -> Result<PathBuf, String> {
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
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/backends/p4/program").join(program);
    let program = std::env::temp_dir().join(format!("{program}-{}.json", std::process::id()));
    let output = Command::new("p4c-bm2-ss").args(["--std", "p4-16", "-o"]).arg(&program).arg(source).output();
    let output = output.map_err(|error| error.to_string())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// Runs something in bmv2, or prints why not.
pub(crate) fn in_bmv2(run: impl FnOnce((Bmv2, Sizes), RegionConfig)) {
    let sizes = Sizes::default();
    in_bmv2_of("libra_v1model.p4", |program| {
        run((Bmv2::start(program, sizes), sizes), RegionConfig { lanes: sizes.lanes, ..CONFIG });
    });
}

/// Does something with a program that is compiled for bmv2, or prints why not.
pub(crate) fn in_bmv2_of(program: &str, run: impl FnOnce(&Path)) {
    // One at a time: they share addresses, and packets that are late are taken for lost.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = match compiled(program) {
        Ok(program) => program,
        Err(reason) => {
            assert!(std::env::var_os("LIBRA_P4_REQUIRED").is_none(), "bmv2 cannot be tested: {reason}");
            say(&format!("\nSKIPPED bmv2: {reason}\n"));
            return;
        }
    };
    run(&program);
    std::fs::remove_file(program).unwrap();
}

fn some_steps(config: RegionConfig) -> Vec<Step> {
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    prop::collection::vec(step(config), 600).new_tree(&mut runner).unwrap().current()
}

// rules W3, W4, W5, W6, W7, W9, W10, D1, D2, D3, D5, D6, D7, E2
#[test]
fn bmv2_does_what_the_reference_does() {
    in_bmv2(|bmv2, config| run(bmv2, config, 65_533, (1500, 7), some_steps(config), true));
}

/// Both in one, as it is compiled for minutes.
#[test]
fn bmv2_adds_floats_as_the_reference_does() {
    let sizes = Sizes::of_tables();
    let config = RegionConfig { lanes: sizes.lanes, ..of_floats() };
    in_bmv2_of("libra_v1model_table.p4", |program| {
        run((Bmv2::start(program, sizes), sizes), config, 65_533, (1500, 7), some_steps(config), false);
        add_in_a_burst((Bmv2::start(program, sizes), sizes), config);
    });
}

#[test]
fn bmv2_has_the_cuts_of_the_reference() {
    in_bmv2(go_round);
}
