//! Facts of interfaces, as `/sys` and the kernel show them.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::ethtool::Ethtool;
use super::{Nic, Queues, Run};
use crate::finding::Unseen;
use crate::host::{line, number};
use crate::socket::ProbeSocket;

const INTERFACES: &str = "/sys/class/net";
/// More have only machines with a container for each.
const INTERFACES_MAX: usize = 8;

/// Reads the interfaces with these names; without any, those that are up.
pub(crate) fn read(names: &[String]) -> Vec<Nic> {
    let chosen = if names.is_empty() { up() } else { names.to_vec() };
    chosen.iter().map(|name| interface(name)).collect()
}

fn up() -> Vec<String> {
    let Ok(entries) = fs::read_dir(INTERFACES) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_up =
        |name: &String| line(format!("{INTERFACES}/{name}/operstate")).is_ok_and(|state| state == "up");
    let mut names: Vec<_> = names.filter(|name| name != "lo").filter(is_up).collect();
    names.sort();
    names.truncate(INTERFACES_MAX);
    names
}

fn interface(name: &str) -> Nic {
    let folder = format!("{INTERFACES}/{name}");
    let settings = Ethtool::connect(name);
    let settings = settings.as_ref().map_err(Clone::clone);
    let index = number(format!("{folder}/ifindex"));
    Nic {
        name: name.to_owned(),
        driver: fs::read_link(format!("{folder}/device/driver"))
            .ok()
            .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())),
        speed: number(format!("{folder}/speed")),
        mtu: number(format!("{folder}/mtu")),
        node: number(format!("{folder}/device/numa_node")).ok(),
        queues: queues(Path::new(&folder)),
        features: settings.clone().and_then(Ethtool::features),
        rings: settings.clone().and_then(Ethtool::rings),
        coalescing: settings.clone().and_then(Ethtool::coalescing),
        hashes_ports: hashes_ports(name),
        native_xdp: settings.and_then(|settings| {
            let index = u32::try_from(index?).map_err(|error| Unseen::because("ifindex", error))?;
            settings.native_xdp(index)
        }),
    }
}

fn queues(folder: &Path) -> Result<Queues, Unseen> {
    let entries = fs::read_dir(folder.join("queues"));
    let entries = entries.map_err(|error| Unseen::because("queues", error))?;
    let received: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rx-")))
        .collect();
    let spread = |path: &Path| line(path.join("rps_cpus")).is_ok_and(|mask| names_cores(&mask));
    Ok(Queues { count: received.len(), are_spread: received.iter().any(|path| spread(path)) })
}

/// Parses a mask of cores: `00000000,00000003`.
fn names_cores(mask: &str) -> bool {
    mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
}

/// The kernel tells it by netlink since 6.17 alone, and before by a call that needs `unsafe`: the program is asked.
fn hashes_ports(name: &str) -> Result<bool, Unseen> {
    const WHAT: &str = "the hash of UDP (ethtool -n)";
    let output = Command::new("ethtool").args(["-n", name, "rx-flow-hash", "udp4"]).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Unseen::because(WHAT, "ethtool is not installed"),
        _ => Unseen::because(WHAT, error),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    ports_in(&text).ok_or_else(|| Unseen::because(WHAT, "the device does not tell"))
}

/// Parses what `ethtool -n IF rx-flow-hash udp4` prints.
fn ports_in(text: &str) -> Option<bool> {
    let (_, fields) = text.split_once("flow key:")?;
    let fields = fields.trim();
    // Of a device without a hash it prints that the key has no fields.
    (!fields.is_empty() && !fields.starts_with("None")).then(|| fields.contains("L4 bytes"))
}

/// Sends a run of datagrams over loopback, and counts how many of them come in one piece.
pub(crate) fn run_over_loopback(sent: usize) -> Run {
    const BYTES: usize = 144;
    const WAIT: Duration = Duration::from_millis(300);
    let exchange = || -> io::Result<usize> {
        let bind = || ProbeSocket::bind((Ipv4Addr::LOCALHOST, 0).into());
        let (from, mut to) = (bind()?, bind()?);
        from.send(to.local_address()?, &vec![7; sent * BYTES], BYTES)?;
        let (mut arrived, mut most, until) = (0, 0, Instant::now() + WAIT);
        while arrived < sent && to.wait(until)? {
            to.receive(|_, bytes, stride| {
                let count = bytes.len().div_ceil(stride.max(1));
                arrived += count;
                most = most.max(count);
            })?;
        }
        Ok(most)
    };
    Run { sent, merged: exchange().map_err(|error| Unseen::because("a run over loopback", error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_cores_are_parsed() {
        assert!(names_cores("00000000,00000003"));
        assert!(!names_cores("00000000,00000000"));
        assert!(!names_cores("0"));
    }

    #[test]
    fn the_hash_of_udp_is_parsed() {
        let head = "UDP over IPV4 flows use these fields for computing Hash flow key:\n";
        assert_eq!(ports_in(&format!("{head}IP SA\nIP DA\n\n")), Some(false));
        let ports = "IP SA\nIP DA\nL4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n";
        assert_eq!(ports_in(&format!("{head}{ports}")), Some(true));
        assert_eq!(ports_in(&format!("{head}None\n")), None);
        assert_eq!(ports_in(""), None);
    }

    #[test]
    fn a_run_over_loopback_comes_whole_or_in_parts() {
        for sent in [64, 128] {
            // Before Linux 6.10 the kernel refuses more than 64.
            if let Ok(merged) = run_over_loopback(sent).merged {
                assert!((1..=sent).contains(&merged), "{merged} of {sent}");
            }
        }
    }

    #[test]
    fn loopback_is_read_by_netlink() {
        let nic = interface("lo");
        assert!(nic.features.unwrap().iter().any(|name| name == "rx-gro"));
        assert_eq!(nic.mtu, Ok(65_536));
        assert_eq!(nic.queues.unwrap().count, 1);
        assert!(nic.rings.is_err(), "loopback has no rings");
    }

    #[test]
    fn an_interface_that_is_not_there_is_unseen() {
        let nic = interface("none0");
        assert!(nic.mtu.is_err() && nic.features.is_err() && nic.queues.is_err());
    }
}
