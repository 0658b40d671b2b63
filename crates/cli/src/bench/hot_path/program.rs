//! What the program of a switch takes in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use libra_xdp::RunTimes;

/// The program, and what the kernel knows of it, goes with the process of the switch: so it is looked at meanwhile.
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct ProgramWatch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Duration>>,
}

impl ProgramWatch {
    pub(super) fn start() -> Result<Self> {
        let programs = RunTimes::count()?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let watch = move || {
            let mut newest = None;
            while !ended.load(Ordering::Relaxed) {
                newest = programs.of_packet().ok().flatten().or(newest);
                thread::sleep(INTERVAL);
            }
            newest
        };
        Ok(Self { over, thread: thread::Builder::new().name("program".to_owned()).spawn(watch)? })
    }

    /// The mean time of a packet.
    pub(super) fn end(self) -> Option<Duration> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}
