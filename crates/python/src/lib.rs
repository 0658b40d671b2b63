//! `libra_ps._native`: what the Python package does not do in Python.
//!
//! Tensors come as addresses and lengths, which the package has taken from them; `border` makes slices of them, and `team` runs work on the
//! threads of torch: these two alone have `unsafe`. No operation holds the lock of the interpreter while it computes or waits, and no
//! thread of this crate ever takes it.
//!
//! ```text
//!  libra_ps.nn ─► session: look-ups, backward, push ─┬─► libra-lookup: slots, pooling, sums
//!                                                    └─► backend ─┬─ alone: stores, a thread that updates them
//!                                                                 └─ cluster: a worker on a thread of its own
//! ```

mod backend;
mod border;
mod failure;
mod fork;
mod lookups;
mod profile;
mod rules;
mod session;
mod table;
mod team;

use pyo3::prelude::*;

/// The private native part of `libra_ps`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::fork::mark_forked;
    #[pymodule_export]
    use super::lookups::PooledLookup;
    #[pymodule_export]
    use super::session::Session;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("VERSION", env!("CARGO_PKG_VERSION"))
    }
}
