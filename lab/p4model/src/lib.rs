//! The P4 program of Libra in Rust: each control as a function of the same name, over registers that a packet may access once.
//!
//! [`Switch`] takes and answers packets as the program does, [`FrameSwitch`] the frames that such packets come in. Simulations run it
//! in place of a switch, and tests compare it with bmv2, packet by packet, and with the vectors of `conformance/`. It is a model for
//! tests: it opens no socket, and no product runs it. An example is on the front page of [`libra_p4`].

#![forbid(unsafe_code)]

mod frame;
mod register;
mod switch;

pub use frame::{FrameFault, FrameSwitch};
pub use switch::{Again, Passed, Port, Switch};
