//! Network namespaces by way of `ip` (iproute2): the only place that calls it.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Addresses are `10.77.0.1`, `10.77.0.2`, .. in the order of the hosts.
const PREFIX_BITS: u8 = 24;

/// Fails with the reason if this process may not make network namespaces.
pub(crate) fn permitted() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    if user.split_whitespace().nth(1) != Some("0") {
        bail!("network namespaces need root");
    }
    ip(&["-V"]).context("`ip` of iproute2 is not installed")?;
    let name = format!("libra-{}-probe", std::process::id());
    ip(&["netns", "add", &name]).context("`ip netns` is not permitted here")?;
    let usable = ip(&["netns", "exec", &name, "true"]).context("`ip netns exec` is not permitted here");
    ip(&["netns", "delete", &name])?;
    usable.map(drop)
}

/// Hosts, each in a network namespace of its own, on a bridge in one more namespace. Dropping it removes them.
///
/// ```text
///  controller   server0   server1   switch   worker0   worker1     one namespace each
///      |eth0       |         |         |        |         |        10.77.0.1, .2, ..
///   ===+===========+=========+=bridge==+========+=========+===     namespace "net"
/// ```
pub(crate) struct Network {
    prefix: String,
    made: Vec<String>,
}

impl Network {
    /// Makes the namespaces; their names hold the id of this process, so that two runs never meet.
    pub(crate) fn new(hosts: &[&str]) -> Result<Self> {
        let mut network = Self { prefix: format!("libra-{}", std::process::id()), made: Vec::new() };
        let bridge = network.add("net")?;
        ip(&["-n", &bridge, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "bridge", "up"])?;
        for (index, host) in hosts.iter().enumerate() {
            let namespace = network.add(host)?;
            let port = format!("port{index}");
            let address = format!("{}/{PREFIX_BITS}", address(index));
            let pair = ["type", "veth", "peer", "name", &port, "netns", &bridge];
            ip(&[&["link", "add", "eth0", "netns", &namespace], &pair[..]].concat())?;
            ip(&["-n", &bridge, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &namespace, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        }
        Ok(network)
    }

    /// Gives a host one more interface on the bridge, for a switch that it runs: none of its own packets go there.
    pub(crate) fn add_switch_port(&self, host: &str, interface: &str) -> Result<()> {
        let (namespace, bridge) = (self.namespace(host), self.namespace("net"));
        let port = format!("{interface}-port");
        let pair = ["type", "veth", "peer", "name", &port, "netns", &bridge];
        ip(&[&["link", "add", interface, "netns", &namespace], &pair[..]].concat())?;
        // A switch takes packets, not runs of them.
        ip(&["-n", &bridge, "link", "set", &port, "master", "bridge", "gso_max_segs", "1", "up"])?;
        // Nor packets whose checksum is left to a device.
        ip(&["netns", "exec", &bridge, "ethtool", "-K", &port, "tx", "off"])?;
        ip(&["-n", &namespace, "link", "set", interface, "addrgenmode", "none", "up"])?;
        let quiet = ["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"];
        let mut command = self.command(host);
        command.args(quiet);
        shell::run(command)
    }

    fn add(&mut self, host: &str) -> Result<String> {
        let namespace = self.namespace(host);
        ip(&["netns", "add", &namespace])?;
        self.made.push(namespace.clone());
        Ok(namespace)
    }

    /// Kills all processes on the hosts, whichever has started them.
    pub(crate) fn kill(&self) -> Result<()> {
        for namespace in &self.made {
            for process in ip(&["netns", "pids", namespace])?.split_whitespace() {
                // It may have ended meanwhile.
                drop(shell::output(shell::program("kill", &["-s", "KILL", process])));
            }
        }
        Ok(())
    }

    /// The name of the namespace of a host.
    pub(crate) fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// A command that runs on a host. `ip` becomes the program: the id of the process is the program's.
    pub(crate) fn command(&self, host: &str) -> Command {
        shell::program("ip", &["netns", "exec", &self.namespace(host)])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.made.drain(..).rev() {
            if let Err(error) = ip(&["netns", "delete", &namespace]) {
                eprintln!("xtask: the network namespace {namespace} is left over: {error:#}");
            }
        }
    }
}

/// The address of the host with this index.
pub(crate) fn address(index: usize) -> String {
    format!("10.77.0.{}", index + 1)
}

/// True if a process listens on a TCP port in the network namespace of a process.
pub(crate) fn listens(process: u32, port: u16) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    has_listener(&table, port)
}

fn has_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().is_some_and(|local| local.ends_with(&end));
        local && columns.nth(1) == Some(LISTEN)
    })
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &[&str]) -> Result<String> {
    shell::output(shell::program("ip", arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 01004D0A:1E14 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 01004D0A:1E15 02004D0A:1E16 01 00000000:00000000 00:00000000 00000000     0        0 2
";
        assert!(has_listener(table, 7700));
        assert!(!has_listener(table, 7701), "it is connected, it does not listen");
        assert!(!has_listener(table, 7702), "it is the remote port");
    }
}
