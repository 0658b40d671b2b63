//! Time that the kernel spends in the program, by its own count.

use core::time::Duration;
use std::os::fd::OwnedFd;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};

use crate::error::XdpError;

/// The one on the interface. The kernel counts the others, which it goes on with, as part of it.
const PROGRAM: &str = "libra_switch";

/// Counts the time of all programs of switches on this machine while it lives. That costs each packet two looks at the clock, which
/// are counted, too.
#[derive(Debug)]
pub struct RunTimes {
    _counting: OwnedFd,
}

impl RunTimes {
    /// Begins to count.
    ///
    /// # Errors
    /// The kernel does not allow it.
    pub fn count() -> Result<Self, XdpError> {
        let counting = enable_stats(Stats::RunTime);
        Ok(Self { _counting: counting.map_err(|error| refused(&error))? })
    }

    /// The mean time of a packet since the programs were loaded; none if there was no packet.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn of_packet(&self) -> Result<Option<Duration>, XdpError> {
        let (mut time, mut packets) = (Duration::ZERO, 0);
        for program in loaded_programs() {
            let program = program.map_err(|error| refused(&error))?;
            if program.name_as_str() == Some(PROGRAM) {
                time += program.run_time();
                packets += program.run_count();
            }
        }
        Ok((packets > 0).then(|| {
            Duration::from_nanos(u64::try_from(time.as_nanos() / u128::from(packets)).unwrap_or(u64::MAX))
        }))
    }
}

fn refused(error: &impl ToString) -> XdpError {
    XdpError::Kernel { attempted: "cannot count what programs take", reason: error.to_string() }
}
