//! Libra for other languages: a C ABI (`include/libra.h`), and on it the API of ps-lite for C++ (`include/ps/ps.h`).
//!
//! It is the only crate with `unsafe`, and that only where C begins: `ffi`, and one list of the system in `interface`. It has no
//! socket: messages go over `libra_net::mesh`, sums of the default handler lie in a `libra_store::Store`.
//!
//! ```text
//!  C++ ── ps/ps.h ──┐            ┌── customer: queue, thread, requests ── callback ──▶ handlers of the program
//!  C ── libra.h ────┴── ffi ──── │
//!                                └── exchange ◀── mesh of libra-net ──▶ others
//!                                       └── shard: sums in libra-store
//! ```
//!
//! What the API of ps-lite is and how it behaves here: `docs/pslite.md`.

mod customer;
mod environment;
mod error;
mod exchange;
pub mod ffi;
mod interface;
mod shard;
mod tracker;
