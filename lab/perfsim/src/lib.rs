//! Performance simulation of a cluster: the roles as they ship, on simulated machines and links, with times that were measured.
//!
//! [`World`](libra_faultsim::World) asks whether roles are right under faults, so what a role does takes no time there. Here nothing fails, and everything
//! takes time: a process waits for a core of its host, a turn of its loop takes what the work in it [costs](Costs), and packets wait for links.
//! Windows, rounds, acknowledgements and flow control are those of the roles, so they are those that ship.
//!
//! ```text
//!  Pushes ─▶ user ─▶ worker ─┐                        ┌─▶ switch: a process, or hardware at the rate of links
//!            (a thread each, │                        │      │ rounds
//!             on a host with ├─▶ up ─▶ switch ─▶ down ─┤      ▼
//!             cores)         │   (links with queues)  └─▶ server: a process
//!  Costs: ns for each turn, run, packet, byte, pair, message ── of the role, and of the kernel beneath it
//! ```
//!
//! [`Setting::run`] simulates, [`estimate`] computes what limits where a simulation would take too long, and both use the same [`Costs`]. Those are fitted to
//! what single roles take: a switch and a server when what they were handed in a simulation is handed to them alone, see [`Recording`], and a worker with its user on real
//! sockets before a [`AckingPeer`] that answers them.
//!
//! Not modelled: caches that processes take from each other, interrupts, the driver of a network card, congestion control of TCP (a message is a train of
//! packets at the rate of its links), and disks.

#![forbid(unsafe_code)]

mod acking_peer;
mod cores;
mod costs;
mod engine;
mod fabric;
mod formula;
mod loss;
mod member;
mod recording;
mod report;
mod run;
mod switchml;
mod trace;
mod user;

#[cfg(test)]
mod tests;

pub use acking_peer::{AckingPeer, Counters};
pub use cores::Host;
pub use costs::{CostKind, CostModel, Costs, WakeLatency, Work, fit};
pub use fabric::{DATAGRAM_OVERHEAD, LinkCounts, LinkSpec};
pub use formula::{Estimate, dense_pairs_per_second, estimate};
pub use recording::Recording;
pub use report::{LinkUsage, Report, Usage};
pub use run::{Recorded, Replay, Setting, System, Topology};
pub use switchml::{DenseReport, DenseSetting};
pub use trace::{Model, PowerLaw, Push, Pushes, cached};
