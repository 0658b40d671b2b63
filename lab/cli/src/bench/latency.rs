//! Latencies of operations.

use anyhow::{Context, Result};
use serde::Serialize;

/// In microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Latency {
    pub(super) p50: u32,
    pub(super) p99: u32,
    pub(super) max: u32,
}

impl Latency {
    pub(super) fn of(mut latencies: Vec<u32>) -> Result<Self> {
        latencies.sort_unstable();
        let at = |percent: usize| latencies.get(latencies.len() * percent / 100).or_else(|| latencies.last());
        let at = |percent| at(percent).copied().context("no operation got done: measure for longer");
        Ok(Self { p50: at(50)?, p99: at(99)?, max: at(100)? })
    }

    /// For a person: a name, a figure and a remark.
    pub(super) fn line(self) -> (&'static str, String, String) {
        let Self { p50, p99, max } = self;
        ("latency", format!("{p50} us"), format!("median; 99% {p99} us, longest {max} us"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_not_the_99th_percentile() {
        let latency = Latency::of((1..=1000).rev().collect()).unwrap();
        assert_eq!(latency, Latency { p50: 501, p99: 991, max: 1000 });
        assert!(Latency::of(Vec::new()).is_err());
    }
}
