//! Facts of the kernel about this process, in the families that Prometheus clients have in common.

use procfs::process::{LimitValue, Process};

use crate::family::Families;

/// Adds the families `process_*`. A fact that the kernel does not tell is left out.
pub(crate) fn metrics(families: &mut Families) {
    let Ok(process) = Process::myself() else { return };
    let Ok(stat) = process.stat() else { return };
    let ticks = procfs::ticks_per_second().max(1) as f64;
    families.seconds(
        "process_cpu_seconds",
        "Time on processors, of user and system.",
        &[(&[], (stat.utime + stat.stime) as f64 / ticks)],
    );
    let page_bytes = procfs::page_size();
    families.gauge(
        "process_resident_memory_bytes",
        "Resident memory.",
        &[(&[], stat.rss as f64 * page_bytes as f64)],
    );
    families.gauge("process_virtual_memory_bytes", "Virtual memory.", &[(&[], stat.vsize as f64)]);
    families.gauge("process_threads", "Threads.", &[(&[], stat.num_threads as f64)]);
    if let Ok(boot) = procfs::boot_time_secs() {
        families.gauge(
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970.",
            &[(&[], boot as f64 + stat.starttime as f64 / ticks)],
        );
    }
    if let Ok(count) = process.fd_count() {
        families.gauge("process_open_fds", "Open files and sockets.", &[(&[], count as f64)]);
    }
    if let Ok(LimitValue::Value(limit)) = process.limits().map(|limits| limits.max_open_files.soft_limit) {
        families.gauge("process_max_fds", "Most open files and sockets.", &[(&[], limit as f64)]);
    }
}

/// Datagrams that the kernel dropped for sockets, by their inodes; none if it does not tell, or there is no socket.
pub(crate) fn socket_drops(inodes: &[u64]) -> Option<u64> {
    if inodes.is_empty() {
        return None;
    }
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"].map(std::fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(drops_of)
        .filter(|(inode, _)| inodes.contains(inode))
        .map(|(_, drops)| drops)
        .reduce(u64::wrapping_add)
}

/// The inode and the drops of a socket in a line of `/proc/net/udp` (proc(5)).
fn drops_of(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(9);
    let inode = fields.next()?.parse().ok()?;
    Some((inode, fields.nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::linux::fs::MetadataExt;

    use super::*;

    #[test]
    fn drops_of_a_full_socket_are_counted() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let inode = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).unwrap().st_ino();
        assert_eq!(socket_drops(&[inode]), Some(0));
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = socket.local_addr().unwrap();
        for _ in 0..20_000 {
            sender.send_to(&[0; 1400], to).unwrap();
        }
        assert!(socket_drops(&[inode]).unwrap() > 0);
        assert_eq!(socket_drops(&[]), None);
    }

    #[test]
    fn a_line_of_the_kernel_has_inode_and_drops() {
        let line = "  309: 0100007F:A2C1 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 81234 2 0000000000000000 17";
        assert_eq!(drops_of(line), Some((81234, 17)));
        assert_eq!(drops_of("  309: 0100007F:A2C1"), None);
    }
}
