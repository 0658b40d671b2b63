//! Counts of the kernel for all UDP sockets of a network namespace.

use std::fs;

/// Returns the datagrams that were dropped for a wrong checksum; 0 where the kernel does not tell.
pub(crate) fn checksum_errors() -> u64 {
    let count = |path, name| fs::read_to_string(path).ok().and_then(|text| parse(&text, name)).unwrap_or(0);
    count("/proc/net/snmp", "Udp:") + fs::read_to_string("/proc/net/snmp6").map_or(0, |text| parse_v6(&text))
}

/// A line of names, and one of numbers.
fn parse(text: &str, protocol: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let column = lines.next()?.split_whitespace().position(|name| name == "InCsumErrors")?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

/// A line for each number.
fn parse_v6(text: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors"));
    found.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_errors_are_found_by_their_name() {
        let text = "Tcp: InErrs InCsumErrors\nTcp: 5 6\nUdp: InDatagrams NoPorts InCsumErrors IgnoredMulti\nUdp: 10 20 7 0\n";
        assert_eq!(parse(text, "Udp:"), Some(7));
        assert_eq!(parse("Udp: InDatagrams\nUdp: 10\n", "Udp:"), None);
        assert_eq!(parse_v6("Udp6InDatagrams                 \t1\nUdp6InCsumErrors                \t4\n"), 4);
        assert_eq!(parse_v6(""), 0);
    }
}
