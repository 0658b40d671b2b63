//! The controller without a network: the test is its driver and all its members.

mod checkpoints;
mod clocks;
mod desk;
mod ends;
mod holes;
mod nonsense;
mod numbers;
mod patience;
mod recovery;
mod refusals;
mod rejoining;
mod rivals;
mod strangers;
mod views;
