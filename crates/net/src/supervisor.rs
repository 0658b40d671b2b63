//! The service manager that has started this process (`sd_notify(3)`): it learns that a process is ready, stops, and is alive.

use core::fmt;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Turns of a loop are noted this often in the time for which the manager waits: it is told when all loops have turned, so that two of
/// these may pass between two notes, and one more while a machine is busy.
const BEATS: u32 = 4;

/// What a service manager is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The process listens.
    Ready,
    /// All its loops have turned.
    Alive,
    /// It ends.
    Stopping,
}

impl Notice {
    /// Tells the service manager, if there is one.
    pub fn send(self) {
        let state = match self {
            Self::Ready => sd_notify::NotifyState::Ready,
            Self::Alive => sd_notify::NotifyState::Watchdog,
            Self::Stopping => sd_notify::NotifyState::Stopping,
        };
        // A manager that does not listen cannot be told so either.
        let _ = sd_notify::notify(&[state]);
    }
}

/// Tells a service manager that the loops of a process turn. The loops themselves note it: a process with one that stands still counts
/// as dead, though it has other threads.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

struct Shared {
    send: Box<dyn Fn(Notice) + Send + Sync>,
    /// Time after which the manager ends a process that is silent.
    silence_max: Option<Duration>,
    is_ready: AtomicBool,
    /// Of each loop, whether it has turned since the manager was told last.
    turned: Mutex<Vec<Option<bool>>>,
}

impl Supervisor {
    /// The one in the environment of this process; none if there is none.
    pub fn from_environment() -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        Some(Self::new(sd_notify::watchdog_enabled(), Notice::send))
    }

    pub(crate) fn new(silence_max: Option<Duration>, send: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        let (is_ready, turned) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(Shared { send: Box::new(send), silence_max, is_ready, turned }))
    }

    /// One more loop, which begins to turn.
    pub(crate) fn pulse(&self) -> Pulse {
        let mut turned = self.0.turned();
        turned.push(Some(false));
        let place = turned.len() - 1;
        Pulse { supervisor: self.clone(), place, due: Some(Instant::now()) }
    }
}

impl Shared {
    fn turned(&self) -> MutexGuard<'_, Vec<Option<bool>>> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Supervisor").field("silence_max", &self.0.silence_max).finish_non_exhaustive()
    }
}

/// Two are the same if one was cloned from the other.
impl PartialEq for Supervisor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One loop.
#[derive(Debug)]
pub(crate) struct Pulse {
    supervisor: Supervisor,
    place: usize,
    /// When to note a turn.
    due: Option<Instant>,
}

impl Pulse {
    /// When the loop must turn again, though nothing else happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The loop has turned.
    pub(crate) fn beat(&mut self) {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        let shared = &self.supervisor.0;
        self.due = shared.silence_max.map(|silence_max| Instant::now() + silence_max / BEATS);
        if !shared.is_ready.swap(true, Ordering::Relaxed) {
            (shared.send)(Notice::Ready);
        }
        let mut turned = shared.turned();
        turned[self.place] = Some(true);
        if shared.silence_max.is_some() && turned.iter().all(|turned| turned.unwrap_or(true)) {
            turned.iter_mut().flatten().for_each(|turned| *turned = false);
            (shared.send)(Notice::Alive);
        }
    }
}

impl Drop for Pulse {
    /// A loop that has ended stands still for good.
    fn drop(&mut self) {
        self.supervisor.0.turned()[self.place] = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn supervisor() -> (Supervisor, mpsc::Receiver<Notice>) {
        let (notices, received) = mpsc::channel();
        (
            Supervisor::new(Some(Duration::ZERO), move |notice| {
                notices.send(notice).expect("the test receives")
            }),
            received,
        )
    }

    #[test]
    fn a_process_is_alive_only_while_all_its_loops_turn() {
        let (supervisor, received) = supervisor();
        let (mut one, mut other) = (supervisor.pulse(), supervisor.pulse());
        one.beat();
        one.beat();
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [Notice::Ready]);
        other.beat();
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [Notice::Alive]);
        // The first stands still.
        (0..3).for_each(|_| other.beat());
        assert!(received.try_iter().next().is_none());
        drop(one);
        other.beat();
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [Notice::Alive]);
    }

    #[test]
    fn without_a_watchdog_a_process_is_only_ready() {
        let (notices, received) = mpsc::channel();
        let supervisor =
            Supervisor::new(None, move |notice| notices.send(notice).expect("the test receives"));
        let mut pulse = supervisor.pulse();
        (0..3).for_each(|_| pulse.beat());
        assert!(pulse.due().is_none());
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [Notice::Ready]);
    }
}
