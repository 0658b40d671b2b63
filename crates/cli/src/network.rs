//! A network of namespaces, for switches that sit behind interfaces: those that add up in the kernel must.
//!
//! ```text
//!   controller, servers, workers: 10.77.0.1      switch 0: 10.77.0.2   switch 1: 10.77.0.3
//!   ──────────────── bridge ─────────────────    ──────── eth0 ─────   ──────── eth0 ─────    a namespace each
//!                    │    └─ port1 ═════════════════════════════════════════════╝             veth pairs
//!                    └────── port0 ══════════════════════╝
//! ```
//!
//! The program of the switch is on eth0. What it sends goes nowhere without a program at the other end, so there is one on each
//! port, in a process of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where everybody is that is no switch.
pub(crate) const HOSTS: [u8; 4] = [10, 77, 0, 1];

/// Namespaces and what is in them. Dropping it removes them.
pub(crate) struct Network {
    hosts: String,
    namespaces: Vec<String>,
    /// Hold the programs on the ports.
    passing: Vec<Child>,
}

/// The interface of a switch in its namespace.
pub(crate) const INTERFACE: &str = "eth0";

/// A place for a switch.
pub(crate) struct Seat {
    pub(crate) namespace: String,
    pub(crate) address: String,
}

impl Network {
    pub(crate) fn new() -> Result<Self> {
        let hosts = format!("libra-{}", std::process::id());
        let mut network = Self { hosts: hosts.clone(), namespaces: Vec::new(), passing: Vec::new() };
        network.add(&hosts).context("network namespaces need root and iproute2")?;
        ip(&["-n", &hosts, "link", "add", "name", "bridge", "type", "bridge"])?;
        let [a, b, c, d] = HOSTS;
        ip(&["-n", &hosts, "address", "add", &format!("{a}.{b}.{c}.{d}/24"), "dev", "bridge"])?;
        for interface in ["bridge", "lo"] {
            ip(&["-n", &hosts, "link", "set", interface, "up"])?;
        }
        Ok(network)
    }

    /// Makes a place for the switch process of this index.
    pub(crate) fn seat(&mut self, index: usize, program: &Path) -> Result<Seat> {
        let [a, b, c, first] = HOSTS;
        let last = u8::try_from(index + 1).ok().and_then(|index| first.checked_add(index));
        let Some(last) = last.filter(|last| *last < u8::MAX) else {
            bail!("there are addresses for 253 switches");
        };
        let (namespace, port) = (format!("{}-switch{index}", self.hosts), format!("port{index}"));
        let seat = Seat { namespace, address: format!("{a}.{b}.{c}.{last}") };
        self.add(&seat.namespace)?;
        let (inside, hosts) = (seat.namespace.as_str(), self.hosts.as_str());
        let pair = ["link", "add", INTERFACE, "netns", inside, "type", "veth", "peer", "name"];
        ip(&[&pair[..], &[&port, "netns", hosts]].concat())?;
        ip(&["-n", hosts, "link", "set", &port, "master", "bridge", "up"])?;
        ip(&["-n", inside, "address", "add", &format!("{}/24", seat.address), "dev", INTERFACE])?;
        for interface in [INTERFACE, "lo"] {
            ip(&["-n", inside, "link", "set", interface, "up"])?;
        }
        let mut pass = inside_of(hosts, program);
        pass.args(["xdp-pass", "--leashed", "--interface", &port]);
        pass.stdin(Stdio::piped()).stdout(Stdio::null());
        self.passing.push(pass.spawn().context("cannot start the program on a port")?);
        Ok(seat)
    }

    /// A command where the controller is.
    pub(crate) fn command(&self, program: &Path) -> Command {
        inside_of(&self.hosts, program)
    }

    fn add(&mut self, namespace: &str) -> Result<()> {
        ip(&["netns", "add", namespace])?;
        self.namespaces.push(namespace.to_owned());
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for process in &mut self.passing {
            // It has not been waited for, so its id is still its own.
            drop(process.kill());
            drop(process.wait());
        }
        for namespace in self.namespaces.drain(..) {
            if let Err(error) = ip(&["netns", "delete", &namespace]) {
                eprintln!("libra: the network namespace {namespace} is left over: {error:#}");
            }
        }
    }
}

/// A command in a namespace. `ip` becomes the program, so the id of the process is the program's.
pub(crate) fn inside_of(namespace: &str, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot start `ip` (iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}`: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
