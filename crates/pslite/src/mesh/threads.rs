//! Numbers of threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other thread of the process has or had.
///
/// Not that of [`std::thread::current`]: it allocates, and leak checkers report such memory of a thread of C at its end.
#[must_use]
pub fn thread_number() -> u64 {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    thread_local!(static OWN: Cell<u64> = const { Cell::new(0) });
    if OWN.get() == 0 {
        OWN.set(GIVEN.fetch_add(1, Ordering::Relaxed) + 1);
    }
    OWN.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_one_number_of_its_own() {
        let own = thread_number();
        let other = std::thread::spawn(|| (thread_number(), thread_number())).join().unwrap();
        assert_eq!((own, other.0), (thread_number(), other.1));
        assert_ne!(own, other.0);
    }
}
