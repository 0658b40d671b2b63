//! Facts of this machine, as `/proc`, `/sys` and the kernel show them.

use std::fs;
use std::io;
use std::path::Path;

use libra_net::ReceiveBuffer;
use procfs::{Current, Meminfo};
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::system::uname;
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity};

use super::{Capabilities, Host, Vectors, cgroup};
use crate::finding::Unseen;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

pub(crate) fn read() -> Host {
    Host {
        is_root: geteuid().is_root(),
        capabilities: read_capabilities(),
        kernel: uname().release().to_string_lossy().into_owned(),
        receive_buffer: ReceiveBuffer::granted()
            .map_err(|error| Unseen::because("a socket for datagrams", error)),
        rmem_max: number("/proc/sys/net/core/rmem_max"),
        backlog: number("/proc/sys/net/core/netdev_max_backlog"),
        cores: own_cores(),
        limits: cgroup::read(),
        nodes: nodes(),
        is_smt: line(format!("{CPUS}/smt/active")).map(|text| text == "1"),
        governor: line(format!("{CPUS}/cpu0/cpufreq/scaling_governor")),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        vectors: vectors(),
        memory: available_memory(),
        huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled").map(|text| chosen(&text)),
        descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        has_btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
    }
}

/// The line of a file of `/proc` or `/sys`.
pub(crate) fn line(path: impl AsRef<Path>) -> Result<String, Unseen> {
    let path = path.as_ref();
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(Unseen::because(&path.display().to_string(), reason(&error))),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "this machine has no such file".to_owned(),
        _ => error.to_string(),
    }
}

pub(crate) fn number(path: impl AsRef<Path>) -> Result<u64, Unseen> {
    let path = path.as_ref();
    let text = line(path)?;
    text.parse().map_err(|error| Unseen::because(&path.display().to_string(), error))
}

fn read_capabilities() -> Result<Capabilities, Unseen> {
    let sets = capabilities(None).map_err(|error| Unseen::because("capabilities", error))?;
    let has = |capability| sets.effective.contains(capability);
    let (net_admin, admin) = (has(CapabilitySet::NET_ADMIN), has(CapabilitySet::SYS_ADMIN));
    Ok(Capabilities {
        net_admin,
        bpf: admin || has(CapabilitySet::BPF),
        perfmon: admin || has(CapabilitySet::PERFMON),
    })
}

fn own_cores() -> Result<Vec<usize>, Unseen> {
    let set = sched_getaffinity(None).map_err(|error| Unseen::because("the cores of this process", error))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

fn nodes() -> Result<Vec<Vec<usize>>, Unseen> {
    let online = line(format!("{NODES}/online"))?;
    list(&online).into_iter().map(|node| Ok(list(&line(format!("{NODES}/node{node}/cpulist"))?))).collect()
}

fn available_memory() -> Result<u64, Unseen> {
    let memory = Meminfo::current().map_err(|error| Unseen::because("/proc/meminfo", error))?;
    memory
        .mem_available
        .ok_or_else(|| Unseen("/proc/meminfo: the kernel does not tell MemAvailable".to_owned()))
}

#[cfg(target_arch = "x86_64")]
fn vectors() -> Vectors {
    use std::arch::is_x86_feature_detected;
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        Vectors::Avx512
    } else if is_x86_feature_detected!("avx2") {
        Vectors::Avx2
    } else {
        Vectors::Common
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vectors() -> Vectors {
    Vectors::Common
}

/// Parses a list of numbers as the kernel writes it: `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Parses a choice as the kernel writes it: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_choices_of_the_kernel_are_parsed() {
        assert_eq!(list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list("0"), [0]);
        assert_eq!(list(""), [0; 0]);
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("never"), "never");
    }

    #[test]
    fn a_file_that_is_not_there_is_unseen() {
        let Unseen(why) = number("/proc/sys/net/core/no_such_thing").unwrap_err();
        assert!(why.contains("no_such_thing") && why.contains("no such file"), "{why}");
    }

    #[test]
    fn this_machine_is_read() {
        let host = read();
        assert!(!host.cores.unwrap().is_empty());
        assert!(host.receive_buffer.unwrap().bytes > 2304);
        assert!(host.memory.unwrap() > 1 << 20);
        assert!(host.descriptors > 3);
        assert!(host.kernel.contains('.'), "{}", host.kernel);
    }
}
