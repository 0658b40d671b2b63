//! Mutants: single faults of the memory limit to enable, so that a test can show that the others would notice each of them.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static ENABLED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// A single fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The active snapshot forgets a row that goes to the file.
    PendingForgotten,
    /// The active snapshot forgets a row that comes from the file.
    CopyForgotten,
    /// A row counts as unchanged when it goes to the file.
    ChangeForgottenOnDisk,
    /// A row counts as unchanged when it comes from the file.
    ChangeForgottenInMemory,
    /// Snapshots take a row for the one whose place it took when that one went to the file.
    SwapForgotten,
    /// Rows go to the file though they were used since the hand came by.
    UseForgotten,
    /// A row that came from the file is taken for one that is still there.
    RecordKept,
}

/// Enables one in this thread, or none.
#[cfg(test)]
pub(super) fn enable(mutant: Option<Mutant>) {
    ENABLED.set(mutant);
}

/// Returns true if a mutant is enabled.
#[cfg(test)]
pub(super) fn is_enabled(mutant: Mutant) -> bool {
    ENABLED.get() == Some(mutant)
}

/// Returns false, and costs nothing: only tests have mutants.
#[cfg(not(test))]
pub(super) const fn is_enabled(_: Mutant) -> bool {
    false
}
