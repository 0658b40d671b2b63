//! A bmv2 beside its agent: started with it, and ended with it however that ends.
//!
//! ```text
//!  workers ── interface ──▶ port 1 ┌───────────────┐ port 0 ═══ veth pair ═══ agent
//!                                  │ simple_switch │ ◀────── thrift ───────── agent
//!                                  └───────────────┘
//! ```

use std::fs::File;
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::network::{ip, run};

/// The port of the agent, and that of all others.
pub(super) const PORTS: [u16; 2] = [0, 1];

/// Source address of the agent: only its switch receives from it.
const AGENT: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 1);

/// Time until it listens to its agent, which a program with large tables needs, and pause between two attempts.
const START_MAX: Duration = Duration::from_secs(60);
const START_PAUSE: Duration = Duration::from_millis(50);

/// Ends the switch when this process does not hold the input any more, and with it the veth pair. Ctrl-C reaches the shell, too, which
/// must outlive it for that.
const SHELL_SCRIPT: &str = r#"simple_switch "$@" </dev/null >/dev/null 2>&1 &
switch=$!; trap '' INT TERM HUP; cat >/dev/null; kill $switch; wait $switch; ip link delete "$AGENT_INTERFACE""#;

/// A bmv2 that runs.
#[derive(Debug)]
pub struct Bmv2 {
    shell: Child,
    pub(super) thrift: SocketAddr,
    pub(super) agent_interface: String,
}

impl Bmv2 {
    /// Starts one with a compiled program, for the workers behind an interface and the agent that is here.
    pub(super) fn start(program: &Path, interface: &str, address: Ipv4Addr) -> Result<Self> {
        if !program.is_file() {
            bail!(
                "--bmv2 {}: there is no such file; `p4c-bm2-ss` makes it, see docs/operating/p4.md",
                program.display()
            );
        }
        check(program)?;
        let id = std::process::id();
        let (agent_interface, port) = (format!("agent{id}"), format!("port{id}"));
        ip(&["link", "add", &agent_interface, "type", "veth", "peer", "name", &port])
            .context("a bmv2 beside its agent needs root, iproute2 and ethtool")?;
        let started = Self::between(program, [&port, interface], agent_interface.clone(), address);
        if started.is_err() {
            drop(ip(&["link", "delete", &agent_interface]));
        }
        started
    }

    /// Starts it between the interfaces of its ports.
    fn between(
        program: &Path,
        interfaces: [&str; 2],
        agent_interface: String,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let agent = format!("{AGENT}/32");
        ip(&["address", "add", &agent, "dev", &agent_interface])?;
        for interface in [&agent_interface, interfaces[0]] {
            ip(&["link", "set", interface, "addrgenmode", "none", "up"])?;
        }
        // The switch compares checksums, which a machine leaves to its device, and a veth does not compute.
        run("ethtool", &["-K", &agent_interface, "tx", "off"])?;
        for interface in interfaces {
            // On interfaces whose frames may be longer than the MTU, bmv2 has room for a few dozen of them, and loses the others.
            run("ethtool", &["-K", interface, "tso", "off", "gso", "off", "gro", "off"])?;
        }
        ip(&["route", "add", &address.to_string(), "dev", &agent_interface, "src", &AGENT.to_string()])?;
        let thrift = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let thrift = thrift.context("no port is free for the thrift of bmv2")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL_SCRIPT, "sh", "--device-id", &std::process::id().to_string()]);
        for (port, interface) in PORTS.iter().zip(interfaces) {
            shell.args(["-i", &format!("{port}@{interface}")]);
        }
        shell.args(["--thrift-port", &thrift.port().to_string()]).arg(program);
        shell.env("AGENT_INTERFACE", &agent_interface);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = shell.spawn().context("cannot start simple_switch")?;
        let bmv2 = Self { shell, thrift, agent_interface };
        let begun = Instant::now();
        while let Err(error) = TcpStream::connect(thrift) {
            if begun.elapsed() > START_MAX {
                let program = program.display();
                return Err(error).with_context(|| format!("simple_switch does not start with {program}"));
            }
            thread::sleep(START_PAUSE);
        }
        Ok(bmv2)
    }
}

/// Checks that a file is a program for bmv2: with any other simple_switch ends, and would be waited for.
fn check(program: &Path) -> Result<()> {
    #[derive(Deserialize)]
    struct Program {
        #[serde(rename = "pipelines")]
        _pipelines: Vec<IgnoredAny>,
    }
    let of_file = || format!("--bmv2 {}", program.display());
    let text = BufReader::new(File::open(program).with_context(of_file)?);
    let read: Result<Program, _> = serde_json::from_reader(text);
    read.map(drop).with_context(|| {
        format!("{} is no program for bmv2; `p4c-bm2-ss` makes it, see docs/operating/p4.md", of_file())
    })
}

impl Drop for Bmv2 {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // It ends when its input does.
        drop(self.shell.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_program_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program.json");
        for (text, is_program) in
            [(r#"{"pipelines": [{"name": "ingress"}]}"#, true), ("{}", false), ("no JSON", false)]
        {
            std::fs::write(&file, text).unwrap();
            match check(&file) {
                Ok(()) => assert!(is_program, "{text}"),
                Err(error) => {
                    assert!(!is_program && format!("{error:#}").contains("program.json"), "{error:#}")
                }
            }
        }
    }
}
