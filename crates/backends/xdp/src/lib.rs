//! A data plane in the kernel: hot packets are added up and answered by an XDP program before any socket sees them.
//!
//! It does exactly what the pipeline of `libra-dataplane` does, and has no notion of rounds, shards or views: those are the
//! agent's business, which drives it by the trait [`Plane`](libra_proto::Plane). It opens no socket, and sends nothing by
//! itself.
//!
//! ```text
//!  worker ─── PUSH, PULL ──▶ ┌─ interface ───────────────────────────┐      other traffic, fragments, strangers
//!         ◀── answers ────── │ program (bpf)                │ ──▶ stack ──▶ socket ──▶ handle_datagrams
//!                            │   regions: terms, each under its lock │
//!                            │   memory: banks, values, flows        │ ◀── mapped ── agent: flip, drain, install
//!                            │   wakes ──────────────────────────────┼──▶ agent: a round has begun, or is due
//!                            └───────────────────────────────────────┘
//! ```
//!
//! The programs are in C, and are part of this crate if there was a clang when it was built. If not, everything here is there
//! all the same, and the error of [`XdpPlane::attach`] names what is missing.

#![forbid(unsafe_code)]

mod error;
#[cfg(has_programs)]
mod frame;
#[cfg(has_programs)]
mod gro;
#[allow(dead_code, reason = "some of it is for the programs alone")]
mod layout;
#[cfg(has_programs)]
mod memory;
#[cfg(not(has_programs))]
mod missing;
#[cfg(has_programs)]
mod pipeline;
#[cfg(has_programs)]
mod plane;
#[cfg(has_programs)]
mod program;
#[cfg(has_programs)]
mod run_times;
#[cfg(has_programs)]
mod terms;
#[cfg(has_programs)]
mod workers;

pub(crate) use layout::JOBS_MAX;

pub use error::{Attached, Mode, XdpError};
#[cfg(has_programs)]
pub use gro::merge_arrivals;
#[cfg(not(has_programs))]
pub use missing::{PassProgram, RunTimes, XdpPlane, merge_arrivals};
#[cfg(has_programs)]
pub use pipeline::{Name, Verdict, XdpPipeline};
#[cfg(has_programs)]
pub use plane::XdpPlane;
#[cfg(has_programs)]
pub use program::PassProgram;
#[cfg(has_programs)]
pub use run_times::RunTimes;

/// Returns the reason why this build has no programs; none if it has them.
#[must_use]
pub fn left_out() -> Option<&'static str> {
    #[cfg(has_programs)]
    return None;
    #[cfg(not(has_programs))]
    return Some(missing::REASON);
}
