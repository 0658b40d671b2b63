//! Faults: of processes and machines, of the network between them, and their injection by a scenario.

mod adversary;
mod drains;
mod inject;
mod network;
mod process;
mod severe;

use inject::EXEMPTION;

pub(crate) use drains::Drain;
