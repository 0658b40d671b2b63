//! Examines a machine, and the path to another one, before a job runs there.
//!
//! Facts are read first: from `/proc`, `/sys` and netlink, by a few hundred writes to a disk, by datagrams over loopback and over a path.
//! Findings are computed from facts alone. It never changes a setting, needs no privilege, starts no member, and knows no role:
//! a finding names the command that mends it, and a person decides.
//!
//! ```text
//!  /proc, /sys, netlink ──▶ Host, Nic ─┐
//!  a few hundred writes ──▶ Disk ──────┼── judge ──▶ Finding: ok, unseen, warn or bad; what was found, what it costs, what mends it
//!  probes ◀──▶ Listener ──▶ Path ──────┘
//! ```
//!
//! ```
//! use std::thread;
//!
//! use libra_doctor::{Listener, Needs, Verdict, examine};
//!
//! let listener = Listener::bind("127.0.0.1:0".parse()?)?;
//! let to = listener.address().to_string();
//! thread::spawn(move || listener.run(|_event| ()));
//!
//! let needs = Needs { workers: 4, ..Needs::default() };
//! let findings = examine(&needs, Some(&to));
//! let of = |check| findings.iter().find(|finding| finding.check == check).expect("each check has a finding");
//! assert_eq!(of("version").verdict, Verdict::Ok);
//! assert!(of("reach").found.contains("this machine"));
//! assert!(of("cores").found.contains("for 1 member"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod disk;
mod finding;
mod host;
mod needs;
mod nic;
mod path;
mod snmp;
mod socket;

pub use finding::{Finding, Verdict};
pub use needs::{KernelPlane, Needs, Tables};
pub use path::{Listener, ListenerEvent};

/// Examines this machine, and the path to `to` (`HOST:PORT`), where a [`Listener`] waits, or a controller. Takes some seconds, at most 10.
#[must_use]
pub fn examine(needs: &Needs, to: Option<&str>) -> Vec<Finding> {
    let host = host::read();
    let mut findings = host::judge(&host, needs);
    if let Some(directory) = &needs.state_directory {
        findings.extend(disk::judge(&disk::read(directory), needs));
    }
    findings.extend(nic::judge_runs(&[64, 128].map(nic::run_over_loopback)));
    for nic in nic::read(&needs.interfaces) {
        findings.extend(nic::judge(&nic, &host, needs));
    }
    if let Some(to) = to {
        findings.extend(path::judge(&path::call(to, needs.mtu, &needs.security), needs));
    }
    findings
}

/// Examines this machine as far as that takes no time, a few milliseconds: for a member that starts. It reads files of the kernel, opens a
/// socket, and neither sends nor writes.
#[must_use]
pub fn examine_at_start(needs: &Needs) -> Vec<Finding> {
    let mut findings = host::judge(&host::read(), needs);
    findings.extend(needs.state_directory.as_ref().map(|directory| disk::judge_room(directory, needs)));
    findings
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_examination_at_the_start_takes_no_time() {
        let directory = tempfile::tempdir().unwrap();
        let needs = Needs { state_directory: Some(directory.path().to_owned()), ..Needs::default() };
        let time = || {
            let begin = Instant::now();
            let findings = examine_at_start(&needs);
            assert!(
                ["quota", "descriptors", "disk-room"]
                    .iter()
                    .all(|check| { findings.iter().any(|finding| finding.check == *check) })
            );
            begin.elapsed()
        };
        // Others use the machine, too.
        let least = (0..10).map(|_| time()).min().unwrap();
        assert!(least < Duration::from_millis(50), "{least:?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
