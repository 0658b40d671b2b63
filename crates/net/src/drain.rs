//! The request to a running member to end in order.

use std::sync::Arc;

use tokio::sync::watch;

/// Asks members to end in order: a worker leaves after its step, a switch brings its sums to the servers, a server saves what it has
/// answered. Clones are one request: keep one, and give others to [`NodeOptions::drain`](crate::NodeOptions::drain).
#[derive(Debug, Clone)]
pub struct Drain(Arc<watch::Sender<bool>>);

impl Drain {
    /// A request that was not made yet.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Makes it. It cannot be taken back.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Returns true once it was made.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the end of a loop, and calls a function once when the request is made before.
    pub(crate) async fn beside<T>(&self, driven: impl Future<Output = T>, on_begun: impl FnOnce()) -> T {
        let ask = async {
            let mut changes = self.0.subscribe();
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
