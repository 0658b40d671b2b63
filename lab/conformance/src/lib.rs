//! The vectors in `conformance/`, and whether a data plane reproduces them: state before, packets in, packets out, state after.
//!
//! It contains no network and no device. The data plane under test is behind [`Target`], which may lie in this process, in the kernel or
//! in another machine. `conformance/README.md` describes the files, for readers without Rust.
//!
//! ```text
//!  conformance/*.txt -- Vector::read --> Vector -- run ------------> Target: one datagram, its answer
//!                                               \- run_in_bursts --> Target: datagrams, their answers
//!                                                       |
//!                                                       +--> Passed | Skipped | Failure: file, line, what differs
//! ```
//!
//! ```
//! use libra_conformance::Vector;
//!
//! let text = "conformance 1\n# No worker holds the region.\nflip r7.0 = 1\n";
//! let vector = Vector::read("example.txt", text)?;
//! assert_eq!(vector.lines[0].number, 3);
//! assert_eq!(vector.lines[0].step.to_string(), "flip r7.0 = 1");
//!
//! let error = Vector::read("example.txt", "conformance 1\nflop r7.0\n").unwrap_err();
//! assert_eq!(error.to_string(), "example.txt:2: no line begins with `flop`");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod burst;
mod describe;
mod ip;
mod key;
mod need;
mod read;
mod run;
mod target;
mod vector;

pub use key::Key;
pub use need::Need;
pub use read::{Problem, ReadError, folder, read_folder};
pub use run::{Cause, Difference, Failure, Outcome, run, run_in_bursts};
pub use target::Target;
pub use vector::{
    COUNTERS, Counter, Exchange, FlowSeqs, IpVerdict, Line, RegionName, Sender, Slots, Step, VERSION, Vector,
    WorkerName,
};
