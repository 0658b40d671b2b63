//! Hot keys through a switch: a job of Libra among the processes of a program, beside their mesh.
//!
//! The scheduler, which alone has the plan, runs the controller of the job, at the address where it awaits a switch. Each server
//! process has a server of the job, which owns a shard of the hot keys; each worker process a worker. Cold keys, and everything else, go
//! over the mesh as they do without a plan.
//!
//! ```text
//!  libra_send ── requests ── hot keys ── turns ── worker ──UDP── libra switch ──TCP── server of the job
//!                    └────── cold keys ── mesh ───────────────── shard of the server process
//! ```
//!
//! A request with keys of both kinds is two, and has one answer, when both are done (`requests`). The operations of one worker on hot keys
//! happen in its order (`turns`): a push is done when it can be read, and a pull begins when all pushes before it are done.

mod job;
mod requests;
mod split;
mod turns;

pub(crate) use job::{Job, JobSettings, Preparation};
pub(crate) use requests::HotRequests;

/// The application whose keys a plan names: the one that programs with one application have.
pub(crate) const APPLICATION: i32 = 0;
