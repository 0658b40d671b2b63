//! Signals that end a process: SIGINT (Ctrl-C) and SIGTERM.
//!
//! | signal | first | second |
//! |---|---|---|
//! | SIGINT | calls the function of [`on_first`]; without one, ends the process | ends the process |
//! | SIGTERM | calls the function of [`on_terminate`]; without one, ends the process, which may be [started again](exit::AGAIN) | ends the process |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{io, thread};

use libra_net::Notice;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit;

type Reaction = Box<dyn FnOnce() + Send>;

static ON_INTERRUPT: Mutex<Option<Reaction>> = Mutex::new(None);
static ON_TERMINATE: Mutex<Option<Reaction>> = Mutex::new(None);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
static IS_REPORTED_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Handles both signals from now on, on a thread that has the privileges that this one has now.
pub fn watch() {
    if let Err(error) = start() {
        eprintln!("libra: cannot watch for signals: {error}");
    }
}

fn start() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let react = move || {
        for signal in signals.forever() {
            if signal == SIGTERM { terminate() } else { interrupt() }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(react)?;
    Ok(())
}

fn interrupt() {
    if !IS_REPORTED_ELSEWHERE.load(Ordering::SeqCst) {
        exit::report("libra", "interrupted");
    }
    INTERRUPTED.store(true, Ordering::SeqCst);
    match take(&ON_INTERRUPT) {
        Some(react) => react(),
        None => exit::at_once(exit::INTERRUPTED),
    }
}

fn terminate() {
    Notice::Stopping.send();
    let is_second = TERMINATED.swap(true, Ordering::SeqCst);
    let react = take(&ON_TERMINATE);
    if is_second {
        exit::report("libra", "terminated before it had left the cluster");
        exit::at_once(exit::TERMINATED);
    }
    match react {
        Some(react) => react(),
        None => {
            exit::report("libra", "terminated");
            exit::at_once(exit::AGAIN);
        }
    }
}

fn take(reaction: &Mutex<Option<Reaction>>) -> Option<Reaction> {
    reaction.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// This process is one of several that a Ctrl-C reaches; another one reports it.
pub fn report_elsewhere() {
    IS_REPORTED_ELSEWHERE.store(true, Ordering::SeqCst);
}

/// The first SIGINT calls `shutdown`, which ends the work of this process.
pub fn on_first(shutdown: impl FnOnce() + Send + 'static) {
    *ON_INTERRUPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(shutdown));
}

/// The first SIGTERM calls `drain`, which begins to end the work of this process so that nothing is lost. It
/// returns soon: until then no other signal is heard.
pub fn on_terminate(drain: impl FnOnce() + Send + 'static) {
    *ON_TERMINATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(drain));
}

/// Returns true if there was a SIGINT.
pub fn happened() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Returns true if there was a SIGTERM.
pub fn terminated() -> bool {
    TERMINATED.load(Ordering::SeqCst)
}
