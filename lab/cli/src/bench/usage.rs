//! Resource usage of processes: processor time and memory, as the kernel counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use procfs::process::Process;
use rustix::time::{ClockId, clock_gettime};

use super::worker::wall_clock;

/// The kernel counts processor time in steps of 10 ms: to sample more often yields nothing.
const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    /// Nanoseconds since 1970.
    at: u64,
    /// Processor time of all processes, user and system.
    cpu_ns: u64,
    resident_bytes: u64,
}

/// A thread that samples at an interval until it is stopped.
pub(super) struct Sampler<T> {
    over: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Default + Send + 'static> Sampler<T> {
    /// Calls `look` with what it has seen so far, until it returns `false`.
    pub(super) fn start(
        name: &str,
        interval: Duration,
        mut look: impl FnMut(&mut T) -> bool + Send + 'static,
    ) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let run = move || {
            let mut seen = T::default();
            while !ended.load(Ordering::Relaxed) && look(&mut seen) {
                thread::sleep(interval);
            }
            seen
        };
        Ok(Self { over, thread: thread::Builder::new().name(name.to_owned()).spawn(run)? })
    }

    /// Stops it and returns its samples.
    pub(super) fn end(self) -> Result<T> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("a thread that watches is gone")
    }
}

/// Watches processes.
pub(super) struct UsageMonitor(Sampler<Vec<Sample>>);

/// Usage of processes in some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Processor time, user and system.
    pub(super) cpu_ns: u64,
    /// Memory of all of them at most.
    pub(super) resident_bytes: u64,
}

impl UsageMonitor {
    pub(super) fn start(pids: Vec<u32>) -> Result<Self> {
        let processes =
            pids.into_iter().map(|pid| Process::new(i32::try_from(pid)?).context("no such process"));
        let processes = processes.collect::<Result<Vec<_>>>()?;
        let look = move |samples: &mut Vec<Sample>| {
            // Processes that have ended use nothing more.
            let sample = sample(&processes);
            let are_there = sample.is_ok();
            samples.extend(sample);
            are_there
        };
        Ok(Self(Sampler::start("usage", INTERVAL, look)?))
    }

    /// Returns their usage between two times, in nanoseconds since 1970.
    pub(super) fn between(self, begin: u64, end: u64) -> Result<Usage> {
        let samples = self.0.end()?;
        let inside: Vec<Sample> =
            samples.into_iter().filter(|sample| (begin..=end).contains(&sample.at)).collect();
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
            anyhow::bail!("the time that was measured is too short to see what servers used");
        };
        let measured = (last.at - first.at).max(1);
        let scale = |cpu: u64| u128::from(cpu) * u128::from(end - begin) / u128::from(measured);
        Ok(Usage {
            cpu_ns: u64::try_from(scale(last.cpu_ns - first.cpu_ns))?,
            resident_bytes: inside.iter().map(|sample| sample.resident_bytes).max().unwrap_or(0),
        })
    }
}

/// The time that this thread has been on a processor.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Memory of this process.
pub(super) fn resident_bytes() -> Result<u64> {
    let stat = Process::myself().and_then(|process| process.stat()).context("cannot see this process")?;
    Ok(stat.rss * procfs::page_size())
}

fn sample(processes: &[Process]) -> Result<Sample> {
    let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
    let mut sample = Sample { at: wall_clock(), ..Sample::default() };
    for process in processes {
        let stat = process.stat()?;
        sample.cpu_ns += (stat.utime + stat.stime) * tick_ns;
        sample.resident_bytes += stat.rss * procfs::page_size();
    }
    Ok(sample)
}
