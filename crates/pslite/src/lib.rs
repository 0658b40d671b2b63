//! Libra for other languages: a C ABI (`include/libra.h`), and on it the API of ps-lite for C++ (`include/ps/ps.h`).
//!
//! It has `unsafe` only where C begins: `ffi`, one list of the system in `interface`, and one variable of the environment in `token`.
//! Messages go over a network of their own, [`mesh`]; sums of the default handler lie in a `libra_store::Store`, and those of hot keys,
//! if there is a plan, in the servers of a job whose roles `libra_net` runs (`hot`).
//!
//! ```text
//!  C++ ── ps/ps.h ──┐            ┌── customer: queue, thread, requests ── callback ──▶ handlers of the program
//!  C ── libra.h ────┴── ffi ──── │
//!                                └── exchange ◀── mesh ──▶ other processes
//!                                       ├── shard: sums in libra-store
//!                                       └── hot: a job of Libra ──▶ switch
//! ```
//!
//! The API of ps-lite and its behaviour here: `docs/operating/pslite.md`.

mod arrays;
mod customer;
mod environment;
mod error;
mod exchange;
pub mod ffi;
mod hot;
mod interface;
pub mod mesh;
mod profile;
mod shard;
mod token;
mod tracker;
