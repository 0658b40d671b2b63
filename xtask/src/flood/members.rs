//! The processes of a soak, found in /proc: where they listen, what memory and processor time they take.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, Running};

/// Time that the members may take to start.
const LIMIT: Duration = Duration::from_secs(30);
/// A tick of the clock that /proc counts processor time in.
const TICKS_PER_SECOND: u64 = 100;

pub(super) struct Member {
    id: u32,
    name: String,
    streams: Vec<SocketAddr>,
    datagrams: Vec<SocketAddr>,
    /// KiB of memory: at the begin, and the most since.
    memory: (u64, u64),
    /// Ticks: at the begin, and last.
    cpu: (u64, u64),
}

impl Member {
    /// Growth of its memory, in MiB.
    pub(super) fn growth(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "no process has 2^52 KiB")]
        let growth = self.memory.1.saturating_sub(self.memory.0) as f64;
        growth / 1024.0
    }

    /// The processor time that it took.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_millis(1000 / TICKS_PER_SECOND * self.cpu.1.saturating_sub(self.cpu.0))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, memory, .. } = self;
        let cpu = self.cpu().as_secs_f64();
        write!(
            formatter,
            "{name:<12} {:>5} MiB, {:+6.1} MiB, {cpu:5.1} s of a processor",
            memory.0 >> 10,
            self.growth()
        )
    }
}

pub(super) struct Members {
    pub(super) all: Vec<Member>,
}

impl Members {
    /// Waits until a soak has so many, which are its children.
    pub(super) fn find(soak: &mut Running, count: usize) -> Result<Self> {
        let deadline = Instant::now() + LIMIT;
        loop {
            process::check_interrupt()?;
            let all: Vec<Member> = children(soak.id()).into_iter().filter_map(Member::of).collect();
            let has_address = |member: &&Member| !(member.streams.is_empty() && member.datagrams.is_empty());
            if all.len() == count && all.iter().filter(has_address).count() == count {
                return Ok(Self { all });
            }
            if let Some(status) = soak.status()? {
                bail!("the soak ended before its members were there ({status})\n{}", soak.tail());
            }
            if Instant::now() >= deadline {
                bail!("of {count} members {} are there\n{}", all.len(), soak.tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// From now on memory and time are counted.
    pub(super) fn begin(&mut self) -> Result<()> {
        for member in &mut self.all {
            let (memory, cpu) = (process::memory(member.id, "VmRSS")?, cpu(member.id)?);
            (member.memory, member.cpu) = ((memory, memory), (cpu, cpu));
        }
        Ok(())
    }

    pub(super) fn look(&mut self) -> Result<()> {
        for member in &mut self.all {
            member.memory.1 = member.memory.1.max(process::memory(member.id, "VmRSS")?);
            member.cpu.1 = cpu(member.id)?;
        }
        Ok(())
    }

    /// Addresses at which members accept streams.
    pub(super) fn streams(&self) -> Vec<SocketAddr> {
        self.all.iter().flat_map(|member| member.streams.clone()).collect()
    }

    /// Addresses at which members receive datagrams.
    pub(super) fn datagrams(&self) -> Vec<SocketAddr> {
        self.all.iter().flat_map(|member| member.datagrams.clone()).collect()
    }

    pub(super) fn controller(&self) -> SocketAddr {
        let is_controller = |member: &&Member| member.name == "controller";
        self.all
            .iter()
            .find(is_controller)
            .map(|member| member.streams[0])
            .expect("it was found with an address")
    }
}

impl Member {
    fn of(id: u32) -> Option<Self> {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let words: Vec<&str> =
            line.split(|byte| *byte == 0).filter_map(|word| str::from_utf8(word).ok()).collect();
        // `libra-lab server ..`, or `libra-lab soak --role worker ..`.
        let name = match words.get(1..4)? {
            ["soak", "--role", role] => *role,
            [role, ..] => *role,
            [] => return None,
        };
        let sockets = sockets(id);
        let find = |table: &str, state: &str| {
            let table = std::fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
            table.lines().filter_map(|line| address_in(line, state, &sockets)).collect::<Vec<_>>()
        };
        let (streams, datagrams) = (find("tcp", "0A"), find("udp", "07"));
        Some(Self { id, name: name.to_owned(), streams, datagrams, memory: (0, 0), cpu: (0, 0) })
    }
}

fn children(parent: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// The inodes of the sockets of a process.
fn sockets(id: u32) -> BTreeSet<u64> {
    let entries = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}

/// The local address of a line of /proc/net/tcp or udp, if the socket is one of these, in this state.
fn address_in(line: &str, state: &str, sockets: &BTreeSet<u64>) -> Option<SocketAddr> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let (local, inode) = (columns.get(1)?, columns.get(9)?.parse().ok()?);
    if *columns.get(3)? != state || !sockets.contains(&inode) {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    let ip = u32::from_str_radix(ip, 16).ok()?.to_le_bytes();
    Some(SocketAddr::from((ip, u16::from_str_radix(port, 16).ok()?)))
}

/// Ticks of processor time that a process took.
fn cpu(id: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).context("a member is gone")?;
    // Behind the name, which may have blanks and brackets in it.
    let columns = stat.rsplit_once(')').map_or("", |(_, columns)| columns);
    let times = columns.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    times.sum::<Result<u64, _>>().context("/proc has no number of ticks")
}

/// Processor time of this process so far.
pub(super) fn own_cpu() -> Result<Duration> {
    Ok(Duration::from_millis(1000 / TICKS_PER_SECOND * cpu(std::process::id())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_by_its_socket_and_state() {
        let line = "   0: 0100007F:1E14 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        let ours = BTreeSet::from([4711]);
        assert_eq!(address_in(line, "0A", &ours), Some(SocketAddr::from(([127, 0, 0, 1], 7700))));
        assert_eq!(address_in(line, "07", &ours), None);
        assert_eq!(address_in(line, "0A", &BTreeSet::new()), None);
    }

    #[test]
    fn a_process_has_memory_and_time() {
        let id = std::process::id();
        assert!(process::memory(id, "VmRSS").unwrap() > 100);
        assert!(cpu(id).is_ok());
        assert!(process::memory(u32::MAX, "VmRSS").is_err());
    }
}
