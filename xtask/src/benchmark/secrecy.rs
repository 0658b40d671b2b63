//! The cost of hiding packets from those who read them on their way: a job on two hosts, as it is and through WireGuard.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{BINARY, LIMIT, Options, median};
use crate::namespaces::ip::{self, Network};
use crate::process::{self, Running, check_interrupt};
use crate::report::Report;
use crate::shell;

/// One has the servers and the switch, the other the workers: all packets go from host to host.
const HOSTS: [&str; 2] = ["servers", "workers"];
const TUNNEL: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
const TUNNEL_PORT: &str = "51820";
/// That of a link of 1,500 bytes, less what WireGuard adds to a packet.
const TUNNEL_MTU: &str = "1420";
const PORT: u16 = 7700;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const START_LIMIT: Duration = Duration::from_secs(20);

struct Way {
    name: &'static str,
    token: bool,
    tunnel: bool,
}

const WAYS: &[Way] = &[
    Way { name: "no protection", token: false, tunnel: false },
    Way { name: "TLS, packets with a MAC", token: true, tunnel: false },
    Way { name: "WireGuard", token: false, tunnel: true },
    Way { name: "TLS, packets with a MAC, and WireGuard", token: true, tunnel: true },
];

/// Figures of a run.
struct Run {
    samples_per_second: f64,
    /// Processor time of all processes for a sample, in microseconds.
    micros: f64,
    /// From the start of the process of the switch until it is a member, in milliseconds.
    join: f64,
}

/// Raw figures and a table of them.
pub(super) fn measure(options: &Options, folder: &Path) -> Result<(String, String)> {
    ip::permitted()?;
    for (program, package) in [("wireguard-go", "wireguard-go"), ("wg", "wireguard-tools")] {
        ensure!(shell::starts(program), "`{program}` is not there: apt-get install {package}");
    }
    let folder = folder.join("secrecy");
    shell::remove_directory(&folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let bench = Bench { network: Network::new(&HOSTS)?, folder, options };
    let mut runs: Vec<Vec<Run>> = WAYS.iter().map(|_| Vec::new()).collect();
    let mut raw = "repeat,way,samples_per_second,processor_us_per_sample,join_ms\n".to_owned();
    for repeat in 0..options.repeats {
        for (way, runs) in WAYS.iter().zip(&mut runs) {
            let run = bench.run(way)?;
            let Run { samples_per_second: rate, micros, join } = run;
            println!("{}: {rate:.0} samples/s, {micros:.2} us a sample, join {join:.1} ms", way.name);
            writeln!(raw, "{repeat},\"{}\",{rate:.0},{micros:.3},{join:.2}", way.name)?;
            runs.push(run);
        }
    }
    Ok((raw, summary(&runs)))
}

/// A table of medians.
fn summary(runs: &[Vec<Run>]) -> String {
    let median = |runs: &[Run], of: fn(&Run) -> f64| median(runs.iter().map(of).collect());
    let mut table = "| between hosts | thousand samples/s | processor time of all processes, us a sample \
                     | a switch is a member after, ms |\n|---|---|---|---|\n"
        .to_owned();
    for (way, runs) in WAYS.iter().zip(runs) {
        let rate = median(runs, |run| run.samples_per_second) / 1e3;
        let (micros, join) = (median(runs, |run| run.micros), median(runs, |run| run.join));
        table += &format!("| {} | {rate:.0} | {micros:.2} | {join:.1} |\n", way.name);
    }
    table
}

struct Bench<'a> {
    network: Network,
    folder: PathBuf,
    options: &'a Options,
}

impl Bench<'_> {
    fn run(&self, way: &Way) -> Result<Run> {
        let before = processor_seconds_of_children()?;
        let tunnel = if way.tunnel { Some(self.tunnel()?) } else { None };
        let address = format!("{}:{PORT}", if way.tunnel { TUNNEL[0].into() } else { ip::address(0) });
        let json = self.folder.join("report.json");
        let token = self.token()?;
        let start = |name: &str, host: &str, arguments: &[&str]| {
            let mut command = self.network.command(host);
            command.arg(shell::target_directory()?.join(BINARY)).args(arguments);
            if way.token {
                command.arg("--token-file").arg(&token);
            } else {
                command.arg("--insecure");
            }
            Running::start(name, command, self.folder.join(format!("{name}.log")))
        };
        let (epochs, Options { model, data, .. }) = (self.options.epochs.to_string(), self.options);
        let mut job = vec!["controller", "--listen", &address, "--workers", "1", "--servers", "1"];
        job.extend(["--switches", "1", "--epochs", &epochs, "--model", model, "--data", data, "--json"]);
        job.push(json.to_str().context("a path of the target is text")?);
        if way.tunnel {
            job.extend(["--mtu", TUNNEL_MTU]);
        }
        let member = |kind: &str, host: &str| start(kind, host, &[kind, "--controller", &address]);
        let mut controller = start("controller", HOSTS[0], &job)?;
        let server = member("server", HOSTS[0])?;
        controller.wait_for("server 0 joined", START_LIMIT)?;
        let begun = Instant::now();
        let switch = member("switch", HOSTS[0])?;
        controller.wait_for("switch 0 joined", START_LIMIT)?;
        let join = 1e3 * begun.elapsed().as_secs_f64();
        let mut members = [controller, server, switch, member("worker", HOSTS[1])?];
        process::wait(&mut members, Instant::now() + LIMIT)?;
        if let Some(mut tunnel) = tunnel {
            for (host, device) in devices().iter().enumerate() {
                shell::run(self.on_host(host, &["ip", "link", "delete", device]))?;
            }
            process::wait(&mut tunnel, Instant::now() + START_LIMIT)?;
        }
        let report = Report::read(&json)?;
        let samples = report.number("samples_per_second") * report.number("seconds.train");
        let micros = 1e6 * (processor_seconds_of_children()? - before) / samples;
        Ok(Run { samples_per_second: report.number("samples_per_second"), micros, join })
    }

    fn token(&self) -> Result<PathBuf> {
        let token = self.folder.join("token");
        if !token.exists() {
            let mut make = shell::program(shell::target_directory()?.join(BINARY), &["token", "--out"]);
            make.arg(&token);
            shell::run(make)?;
        }
        Ok(token)
    }

    fn on_host(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = self.network.command(HOSTS[host]);
        command.args(arguments);
        command
    }

    /// Connects the hosts. The processes of the tunnel end in order when their devices are deleted.
    fn tunnel(&self) -> Result<[Running; 2]> {
        let keys = [0, 1].map(|host| self.folder.join(format!("key-{host}")));
        let make = "umask 077; wg genkey > \"$0\"; wg pubkey < \"$0\"";
        let make_key =
            |key: &Path| shell::output(shell::program("sh", &["-c", make, &key.to_string_lossy()]));
        let public = [make_key(&keys[0])?, make_key(&keys[1])?];
        let side = |host: usize| -> Result<Running> {
            let device = &devices()[host];
            let on_host = |arguments: &[&str]| self.on_host(host, arguments);
            let log = self.folder.join(format!("wireguard-{host}.log"));
            let running = Running::start("wireguard-go", on_host(&["wireguard-go", "-f", device]), log)?;
            let (socket, deadline) =
                (format!("/var/run/wireguard/{device}.sock"), Instant::now() + START_LIMIT);
            while !Path::new(&socket).exists() {
                check_interrupt()?;
                ensure!(Instant::now() < deadline, "{socket} is not there\n{}", running.tail());
                sleep(LOOK_EVERY);
            }
            let peer = 1 - host;
            let (allowed, endpoint) =
                (format!("{}/32", TUNNEL[peer]), format!("{}:{TUNNEL_PORT}", ip::address(peer)));
            let key = keys[host].to_string_lossy();
            let set = [
                "wg",
                "set",
                device,
                "listen-port",
                TUNNEL_PORT,
                "private-key",
                &key,
                "peer",
                public[peer].trim(),
            ];
            shell::run(on_host(&[&set[..], &["allowed-ips", &allowed, "endpoint", &endpoint]].concat()))?;
            let address = format!("{}/24", TUNNEL[host]);
            shell::run(on_host(&["ip", "address", "add", &address, "dev", device]))?;
            shell::run(on_host(&["ip", "link", "set", device, "mtu", TUNNEL_MTU, "up"]))?;
            Ok(running)
        };
        Ok([side(0)?, side(1)?])
    }
}

/// The devices of the tunnel, by host. Their sockets lie in one directory of the machine.
fn devices() -> [String; 2] {
    [0, 1].map(|host| format!("wg{}-{host}", std::process::id()))
}

/// Processor time of all processes that this one has waited for.
fn processor_seconds_of_children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    seconds_of_children(&stat).context("/proc/self/stat is not as proc(5) says")
}

fn seconds_of_children(stat: &str) -> Option<f64> {
    /// Of the kernel's interface to programs, on all machines that Rust knows.
    const TICKS_PER_SECOND: f64 = 100.0;
    // The name of the program, in parentheses, may have any characters. `cutime` and `cstime` are the 14th and 15th of the fields behind it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let ticks: f64 = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_found_behind_any_name() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 94 0 0 0 5 6 250 150 20 0 1 0 9 1 1";
        assert_eq!(seconds_of_children(stat), Some(4.0));
        assert_eq!(seconds_of_children("7 (a) R 1"), None);
    }

    #[test]
    fn the_summary_has_medians() {
        let run = |rate| Run { samples_per_second: rate, micros: rate / 1e3, join: 3.0 };
        let runs: Vec<Vec<Run>> = WAYS.iter().map(|_| [3e3, 1e3, 2e3].map(run).into()).collect();
        assert!(summary(&runs).contains("| WireGuard | 2 | 2.00 | 3.0 |\n"));
    }
}
