//! Processes that were forked from one with a session.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::failure::Failure;

/// This process is a fork of one that had threads: they are not here, and their locks may be taken for ever.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Marks this process as a fork of the one that loaded the module.
#[pyfunction]
pub(crate) fn mark_forked() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Fails in a fork.
pub(crate) fn check_fork() -> Result<(), Failure> {
    if IS_FORKED.load(Ordering::Relaxed) {
        let text = "this process is a fork of the one that called init(): look rows up in the main process, \
                    or start workers with multiprocessing_context=\"spawn\"";
        return Err(Failure::Libra("Forked", text.to_owned()));
    }
    Ok(())
}
