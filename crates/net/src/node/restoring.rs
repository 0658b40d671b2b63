//! Tells the controller, from a thread of its own, how much of its disk this process has read (rule L8).

use core::convert::Infallible;
use core::ops::ControlFlow;
use core::time::Duration;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use libra_proto::{RESTORING_INTERVAL, Restoring, RestoringServer};
use libra_storage::Reading;
use tokio::sync::{mpsc, oneshot};

use super::{NodeOptions, runtime};
use crate::driver::{Ports, drive};

/// A user is told this often.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The thread, from the first shard on that is read. It ends when this is dropped.
pub(super) struct Announcer<F> {
    options: NodeOptions,
    /// The shard that is read.
    reading: Arc<Mutex<Option<Reading>>>,
    on_progress: Option<F>,
    /// Ends the thread when it is dropped.
    running: Option<(oneshot::Sender<Infallible>, JoinHandle<()>)>,
}

impl<F: FnMut(&Restoring) + Send + 'static> Announcer<F> {
    pub(super) fn new(options: NodeOptions, on_progress: F) -> Self {
        Self { options, reading: Arc::default(), on_progress: Some(on_progress), running: None }
    }

    /// A shard is read from now on.
    pub(super) fn begin(&mut self, reading: Reading) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        let Some(on_progress) = self.on_progress.take() else { return };
        let (end, ended) = oneshot::channel();
        let (options, reading) = (self.options.clone(), Arc::clone(&self.reading));
        let thread = thread::Builder::new().name("libra-restoring".to_owned());
        // Without a thread the shard is read all the same.
        let spawned = thread.spawn(move || drop(announce(&options, &reading, ended, on_progress)));
        self.running = spawned.ok().map(|thread| (end, thread));
    }
}

impl<F> Drop for Announcer<F> {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            // One that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// Drives the role until `ended` is ready.
fn announce(
    options: &NodeOptions,
    reading: &Mutex<Option<Reading>>,
    ended: oneshot::Receiver<Infallible>,
    mut on_progress: impl FnMut(&Restoring),
) -> io::Result<()> {
    let runtime = runtime().map_err(io::Error::other)?;
    let (commands, inbox) = mpsc::unbounded_channel();
    let role = RestoringServer::default();
    let look = async {
        // Most are done before the first look.
        let mut notice_in = Duration::ZERO;
        loop {
            tokio::time::sleep(RESTORING_INTERVAL).await;
            let reading = reading.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(progress) = reading.map(|reading| reading.progress()) else { continue };
            if let Some(inspector) = &options.inspector {
                inspector.note_restore(progress.server, progress.read);
            }
            if commands.send(progress).is_err() {
                return core::future::pending::<()>().await;
            }
            if notice_in.is_zero() {
                on_progress(&progress);
                notice_in = NOTICE_INTERVAL;
            }
            notice_in = notice_in.saturating_sub(RESTORING_INTERVAL);
        }
    };
    let (links, never) = (options.links(), |event| -> ControlFlow<()> { match event {} });
    runtime.block_on(async {
        tokio::select! {
            _ = ended => {}
            () = look => {}
            _ = drive(role, Ports::new(links), inbox, never) => {}
        }
    });
    runtime.shutdown_background();
    if let Some(inspector) = &options.inspector {
        inspector.end_restore();
    }
    Ok(())
}
