//! Use of the processors of this machine.

use std::fs;

/// Ticks of all processors since the machine started, by Linux's account.
pub(super) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// Returns nothing but zeros where there is no `/proc/stat`.
    pub(super) fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Reads `cpu user nice system idle iowait irq softirq steal ..` (proc_stat(5)).
    fn read(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            first.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let waiting: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: all - waiting, all }
    }

    /// Says which part of the time the processors were busy since then; nothing where that is not known.
    pub(super) fn busy_since(&self) -> String {
        self.until(&Self::now())
    }

    fn until(&self, end: &Self) -> String {
        // The kernel's counts of idle time can fall.
        let (busy, all) = (end.busy.saturating_sub(self.busy), end.all.saturating_sub(self.all));
        let percent = (100 * busy).checked_div(all);
        percent.map_or_else(String::new, |percent| format!(", processors {percent}% busy"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_work_or_a_disk_is_not_busy() {
        let start = Processors::read("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 2 3\n");
        let end = Processors::read("cpu  40 5 20 110 20 3 1 1 0 0\ncpu0 1 2 3\n");
        assert_eq!(start.until(&end), ", processors 50% busy");
        assert_eq!(Processors::read("").until(&Processors::read("")), "");
    }
}
