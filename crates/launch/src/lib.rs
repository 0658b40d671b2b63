//! Jobs, members and reports, as command lines start and print them.
//!
//! `libra` and `libra-lab` share it: arguments, the [`job`] that a controller runs, the [`member`]s that join it, the lines printed
//! while it runs ([`progress`], [`notices`]) and at its end ([`report`], [`table`]), and processes and their end ([`process`], [`parent_guard`], [`interrupt`], [`exit`]).
//! It never makes a decision of a role: those are `libra-proto`'s.
//!
//! ```
//! use libra_launch::fault_schedule::{TargetAt, Target};
//!
//! let kill: TargetAt = "switch@2.5s".parse().unwrap();
//! assert_eq!((kill.target, kill.at.as_millis()), (Target::Switch, 2500));
//! ```

#![forbid(unsafe_code)]

pub mod arguments;
pub mod commits;
pub mod counts;
pub mod diagnostics;
mod differences;
pub mod document;
pub mod event_log;
mod examination;
pub mod exit;
pub mod fault_schedule;
pub mod follow;
pub mod gathering;
pub mod interrupt;
pub mod job;
pub mod job_directory;
pub mod member;
pub mod models;
pub mod network;
pub mod notices;
pub mod p4;
pub mod parent_guard;
pub mod plane;
pub mod privileges;
pub mod process;
pub mod progress;
pub mod report;
pub mod resume;
pub mod rule;
pub mod security;
pub mod state_directory;
pub mod table;
pub mod task;
pub mod training;
pub mod watching;
