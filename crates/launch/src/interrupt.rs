//! Handling of interrupts (Ctrl-C). Unless a function for a clean end is set, the first ends the process at once; the second always does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The exit code of a process that was interrupted.
pub const EXIT_CODE: u8 = 130;

type Shutdown = Box<dyn FnOnce() + Send>;

static SHUTDOWN: Mutex<Option<Shutdown>> = Mutex::new(None);
static HAPPENED: AtomicBool = AtomicBool::new(false);
static IS_REPORTED_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Handles interrupts from now on.
pub fn watch() {
    let watched = ctrlc::set_handler(|| {
        if !IS_REPORTED_ELSEWHERE.load(Ordering::SeqCst) {
            eprintln!("libra: interrupted");
        }
        HAPPENED.store(true, Ordering::SeqCst);
        match SHUTDOWN.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(shutdown) => shutdown(),
            None => std::process::exit(EXIT_CODE.into()),
        }
    });
    if let Err(error) = watched {
        eprintln!("libra: cannot watch for an interrupt: {error}");
    }
}

/// This process is one of several that a Ctrl-C reaches; another one reports it.
pub fn report_elsewhere() {
    IS_REPORTED_ELSEWHERE.store(true, Ordering::SeqCst);
}

/// The first interrupt calls `shutdown`, which ends the work of this process.
pub fn on_first(shutdown: impl FnOnce() + Send + 'static) {
    *SHUTDOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(shutdown));
}

/// Returns true if there was one.
pub fn happened() -> bool {
    HAPPENED.load(Ordering::SeqCst)
}
