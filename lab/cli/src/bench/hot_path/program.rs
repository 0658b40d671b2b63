//! Time of the program of a switch in the kernel.

use std::time::Duration;

use anyhow::Result;
use libra_xdp::RunTimes;

use crate::bench::usage::Sampler;

/// The program and its statistics in the kernel go with the process of the switch: so they are sampled meanwhile.
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct ProgramSampler(Sampler<Option<Duration>>);

impl ProgramSampler {
    pub(super) fn start() -> Result<Self> {
        let programs = RunTimes::count()?;
        let look = move |newest: &mut Option<Duration>| {
            *newest = programs.of_packet().ok().flatten().or(*newest);
            true
        };
        Ok(Self(Sampler::start("program", INTERVAL, look)?))
    }

    /// The mean time of a packet.
    pub(super) fn end(self) -> Result<Option<Duration>> {
        self.0.end()
    }
}
