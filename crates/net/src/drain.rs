//! The request to a running member to end in order.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tracing::debug;

/// Asks members to end in order: a worker leaves after its step, a switch brings its sums to the servers, a server saves what it has
/// answered. Clones are one request: keep one, and give others to [`NodeOptions::drain`](crate::NodeOptions::drain).
#[derive(Debug, Clone)]
pub struct Drain(Arc<State>);

struct State {
    begun: watch::Sender<bool>,
    on_begin: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Drain {
    /// A request that was not made yet.
    pub fn new() -> Self {
        Self(Arc::new(State { begun: watch::Sender::new(false), on_begin: Mutex::new(None) }))
    }

    /// Makes it. It cannot be taken back.
    pub fn begin(&self) {
        debug!("is asked to end in order");
        let on_begin = self.0.on_begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !self.0.begun.send_replace(true)
            && let Some(on_begin) = on_begin
        {
            on_begin();
        }
    }

    /// Has a function called once when it is made: at the request of this process or of the controller's user.
    pub fn on_begin(&self, call: impl FnOnce() + Send + 'static) {
        *self.0.on_begin.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(call));
    }

    /// Returns true once it was made.
    pub fn has_begun(&self) -> bool {
        *self.0.begun.borrow()
    }

    /// Waits for the end of a loop, and calls a function once when the request is made before.
    pub(crate) async fn beside<T>(&self, driven: impl Future<Output = T>, on_begun: impl FnOnce()) -> T {
        let ask = async {
            let mut changes = self.0.begun.subscribe();
            // This holds a sender, so it is not closed.
            let _ = changes.wait_for(|has_begun| *has_begun).await;
            on_begun();
            core::future::pending().await
        };
        tokio::select! {
            ended = driven => ended,
            never = ask => never,
        }
    }
}

impl core::fmt::Debug for State {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Drain").field("begun", &*self.begun.borrow()).finish_non_exhaustive()
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

/// Requests are equal if they are one.
impl PartialEq for Drain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
