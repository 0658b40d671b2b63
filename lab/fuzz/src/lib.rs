//! A harness for fuzz targets: stored and random inputs for a reader of bytes, and a bound of the memory that it takes.
//!
//! A *target* is a reader and its *seeds*, valid inputs that code makes. Random bytes do not pass a check of a magic number, so random inputs are
//! seeds with changes ([`Changes`]), whose checksums are right again half of the time ([`Target::sealed`]). Inputs that were of interest once are
//! stored in `corpus/`: only of formats that are stable, as others make them stale. A reader returns its [`Outcome`]; how many inputs came past
//! its first check is a part of the target's report, and a target that none passes fails.
//!
//! ```text
//!  seeds ──┬────────────────────┐
//!          └─▶ Changes ─▶ seal ─┼─▶ reader, its memory counted ─▶ outcome ─▶ report
//!  corpus/ ─────────────────────┘
//! ```
//!
//! The targets are tests whose names begin with `fuzz_`: those of public functions in `tests/targets`, others beside what they read. Under
//! `cargo test` each takes a fraction of a second of random inputs; `cargo xtask fuzz` gives it more. An input that fails is written to
//! `target/fuzz/` of the workspace, the smallest that bolero came upon, and belongs into `corpus/` with the fix.
//!
//! ```
//! use libra_fuzz::{Outcome, Target, fuzz};
//!
//! fn fuzz_numbers() {
//!     let target = Target::new("numbers", vec![b"17".to_vec(), b"-3".to_vec()]);
//!     fuzz!(target, |bytes: &[u8]| match std::str::from_utf8(bytes) {
//!         Err(_) => Outcome::refused("no text"),
//!         Ok(text) => Outcome::of(&text.parse::<i64>().map_err(|error| error.kind().clone())),
//!     });
//! }
//! # fuzz_numbers();
//! ```
#![forbid(unsafe_code)]

mod changes;
mod corpus;
mod target;

pub use bolero;

pub use changes::{Changes, Input, Sequences, join, split};
pub use target::{ATTEMPTS_MAX, Measured, Outcome, TEST_TIME, Target, measured};

/// Runs a target: its seeds and stored inputs, then random ones, which are changes of these unless another generator is named.
#[macro_export]
macro_rules! fuzz {
    ($target:expr, $read:expr) => {{
        let target = &$target;
        $crate::fuzz!(target, target.changes(), $read)
    }};
    ($target:expr, $inputs:expr, $read:expr) => {{
        let (target, read) = (&$target, &$read);
        target.replay(read);
        for _ in 0..$crate::ATTEMPTS_MAX {
            $crate::bolero::check!()
                .with_generator($inputs)
                .with_test_time($crate::TEST_TIME)
                .for_each(|input: &$crate::Input| target.run(&input.0, read));
            if target.has_enough_inputs() {
                break;
            }
        }
        target.report();
    }};
}
