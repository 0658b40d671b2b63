//! Handling of interrupts (Ctrl-C). Unless a function for a clean end is set, the first ends the process at once; the second always does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The exit code of a process that was interrupted.
pub const EXIT_CODE: u8 = 130;

type Farewell = Box<dyn FnOnce() + Send>;

static FAREWELL: Mutex<Option<Farewell>> = Mutex::new(None);
static HAPPENED: AtomicBool = AtomicBool::new(false);
static IS_TOLD_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Handles interrupts from now on.
pub fn watch() {
    let watched = ctrlc::set_handler(|| {
        if !IS_TOLD_ELSEWHERE.load(Ordering::SeqCst) {
            eprintln!("libra: interrupted");
        }
        HAPPENED.store(true, Ordering::SeqCst);
        match FAREWELL.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(farewell) => farewell(),
            None => std::process::exit(EXIT_CODE.into()),
        }
    });
    if let Err(error) = watched {
        eprintln!("libra: cannot watch for an interrupt: {error}");
    }
}

/// This process is one of several that a Ctrl-C reaches; another one reports it.
pub fn leave_telling_to_another() {
    IS_TOLD_ELSEWHERE.store(true, Ordering::SeqCst);
}

/// The first interrupt calls `farewell`, which ends the work of this process.
pub fn on_first(farewell: impl FnOnce() + Send + 'static) {
    *FAREWELL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(farewell));
}

/// Returns true if there was one.
pub fn happened() -> bool {
    HAPPENED.load(Ordering::SeqCst)
}
