//! A bmv2 beside its agent: started with it, and ended with it however that ends.
//!
//! ```text
//!  workers ── interface ──▶ port 1 ┌───────────────┐ port 0 ═══ veth pair ═══ agent
//!                                  │ simple_switch │ ◀────── thrift ───────── agent
//!                                  └───────────────┘
//! ```

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// The port of the agent, and that of everybody else.
pub(super) const PORTS: [u16; 2] = [0, 1];

/// Where the agent sends from: nobody but its switch hears of it.
const AGENT: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 1);

/// Ends the switch when this process does not hold the input any more, and with it the veth pair.
const LEASH: &str = r#"simple_switch "$@" </dev/null >/dev/null 2>&1 &
switch=$!; cat >/dev/null; kill $switch; wait $switch; ip link delete "$AGENT_INTERFACE""#;

/// A bmv2 that runs.
#[derive(Debug)]
pub(crate) struct Bmv2 {
    leash: Child,
    pub(super) thrift: SocketAddr,
    pub(super) agent_interface: String,
}

impl Bmv2 {
    /// Starts one with a compiled program, for the workers behind an interface and the agent that is here.
    pub(super) fn start(program: &Path, interface: &str, address: Ipv4Addr) -> Result<Self> {
        if !program.is_file() {
            bail!(
                "--bmv2 {}: there is no such file; `p4c-bm2-ss` makes it, see docs/p4.md",
                program.display()
            );
        }
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
        for interface in interfaces {
            // Where frames may be longer than the interface says, bmv2 has room for a few dozen of them, and loses the others.
            run("ethtool", &["-K", interface, "tso", "off", "gso", "off", "gro", "off"])?;
        }
        ip(&["route", "add", &address.to_string(), "dev", &agent_interface, "src", &AGENT.to_string()])?;
        let thrift = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let thrift = thrift.context("no port is free for the thrift of bmv2")?;
        let mut leash = Command::new("sh");
        leash.args(["-c", LEASH, "sh", "--device-id", &std::process::id().to_string()]);
        for (port, interface) in PORTS.iter().zip(interfaces) {
            leash.args(["-i", &format!("{port}@{interface}")]);
        }
        leash.args(["--thrift-port", &thrift.port().to_string()]).arg(program);
        leash.env("AGENT_INTERFACE", &agent_interface);
        leash.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let leash = leash.spawn().context("cannot start simple_switch")?;
        Ok(Self { leash, thrift, agent_interface })
    }
}

impl Drop for Bmv2 {
    fn drop(&mut self) {
        drop(self.leash.stdin.take());
        // It ends when its input does.
        drop(self.leash.wait());
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot start `{program}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}`: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
