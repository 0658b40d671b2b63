//! Programs to begin with. Each is an example of this package, and uses `libra-client` alone:
//!
//! | example | shows |
//! |---|---|
//! | `logistic_regression` | a model and data of its own, in a cluster of processes |
//! | `in_process` | a cluster inside the process, whose switch is killed |
//! | `custom_plan` | hot rows that are known beforehand, without a profile |
//!
//! `cargo run --release -p libra-examples --example in_process` runs one; `cargo xtask examples` runs all as CI does.
