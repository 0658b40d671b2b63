//! A network of namespaces, for switches that sit behind interfaces: those that add up in the kernel must. Any other member may
//! have a place there, too.
//!
//! ```text
//!   all without a place: 10.77.0.1               place 0: 10.77.0.2    place 1: 10.77.0.3
//!   ──────────────── bridge ─────────────────    ──────── eth0 ─────   ──────── eth0 ─────    a namespace each
//!                    │    └─ port1 ═════════════════════════════════════════════╝             veth pairs
//!                    └────── port0 ══════════════════════╝
//! ```
//!
//! The program of the switch is on eth0. Its packets go nowhere without a program at the other end, so there is one on each
//! port, in a process of its own.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Address of all processes that have no place of their own.
pub const HOSTS: [u8; 4] = [10, 77, 0, 1];

/// Namespaces and their interfaces. Dropping it removes them.
pub struct Network {
    hosts: String,
    namespaces: Vec<String>,
    /// Hold the programs on the ports.
    passing: Vec<Child>,
}

/// The interface of a switch in its namespace.
pub const INTERFACE: &str = "eth0";

/// The one of a bmv2 beside it.
pub const WORKERS_INTERFACE: &str = "workers";
/// The address of a bmv2 is so much above that of its agent.
const P4_ADDRESSES: u8 = 128;

/// A place for a member.
pub struct Seat {
    /// The name of its network namespace.
    pub namespace: String,
    /// The address of its interface.
    pub address: Ipv4Addr,
    /// Of the bridge.
    port: String,
}

impl Network {
    /// Makes the network. Needs root and iproute2.
    pub fn new() -> Result<Self> {
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

    /// Makes the place of this index.
    ///
    /// # Errors
    /// No address is left, or the system does not allow it.
    pub fn seat(&mut self, index: usize) -> Result<Seat> {
        let [a, b, c, first] = HOSTS;
        let last = u8::try_from(index + 1).ok().and_then(|index| first.checked_add(index));
        let Some(last) = last.filter(|last| *last < u8::MAX) else {
            bail!("there are addresses for 253 members");
        };
        let seat = Seat {
            namespace: format!("{}-place{index}", self.hosts),
            address: Ipv4Addr::new(a, b, c, last),
            port: format!("port{index}"),
        };
        self.add(&seat.namespace)?;
        self.connect(&seat, INTERFACE, &seat.port)?;
        ip(&["-n", &seat.namespace, "address", "add", &format!("{}/24", seat.address), "dev", INTERFACE])?;
        ip(&["-n", &seat.namespace, "link", "set", "lo", "up"])?;
        Ok(seat)
    }

    /// Connects an interface of a place with a port of the bridge.
    fn connect(&self, seat: &Seat, interface: &str, port: &str) -> Result<()> {
        let (inside, hosts) = (seat.namespace.as_str(), self.hosts.as_str());
        let pair = ["link", "add", interface, "netns", inside, "type", "veth", "peer", "name"];
        ip(&[&pair[..], &[port, "netns", hosts]].concat())?;
        ip(&["-n", hosts, "link", "set", port, "master", "bridge", "up"])?;
        ip(&["-n", inside, "link", "set", interface, "up"])
    }

    /// A place for a switch with a program in the kernel.
    pub fn xdp_seat(&mut self, index: usize, program: &Path) -> Result<Seat> {
        let seat = self.seat(index)?;
        let mut pass = inside_of(&self.hosts, program);
        pass.args(["xdp-pass", "--exit-with-parent", "--interface", &seat.port]);
        pass.stdin(Stdio::piped()).stdout(Stdio::null());
        self.passing.push(pass.spawn().context("cannot start the program on a port")?);
        Ok(seat)
    }

    /// A place for a bmv2 and its agent: workers reach the switch by [`WORKERS_INTERFACE`], at an address that nothing else has, and
    /// its agent reaches the others as they do each other.
    pub fn p4_seat(&mut self, index: usize) -> Result<(Seat, Ipv4Addr)> {
        let seat = self.seat(index)?;
        let [a, b, c, last] = seat.address.octets();
        let Some(last) = last.checked_add(P4_ADDRESSES).filter(|last| *last < u8::MAX) else {
            bail!("there are addresses for 126 P4 switches");
        };
        let port = format!("p4-{}", seat.port);
        self.connect(&seat, WORKERS_INTERFACE, &port)?;
        // A switch takes packets, not runs of them; and its agent is not to answer for the interfaces that are the switch's.
        ip(&["-n", &self.hosts, "link", "set", &port, "gso_max_segs", "1"])?;
        // Nor one whose checksum is left to a device.
        ip(&["netns", "exec", &self.hosts, "ethtool", "-K", &port, "tx", "off"])?;
        ip(&["-n", &seat.namespace, "link", "set", WORKERS_INTERFACE, "addrgenmode", "none"])?;
        ip(&["netns", "exec", &seat.namespace, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"])?;
        Ok((seat, Ipv4Addr::new(a, b, c, last)))
    }

    /// A command where the controller is.
    pub fn command(&self, program: &Path) -> Command {
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
pub fn inside_of(namespace: &str, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

/// Runs `ip`, and fails with its output if it does.
pub fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

/// The same with another program for networks.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot start `{program}`, of iproute2 or ethtool"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}`: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}
