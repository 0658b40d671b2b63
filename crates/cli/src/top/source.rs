//! Looks at a job again and again.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use libra_monitor::JobDocument;

use crate::http::Controller;

/// Pause after a look that has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// A controller whose job is looked at.
pub(crate) struct Source {
    controller: Controller,
}

/// Result of a look.
pub(crate) struct Look {
    /// Place of the controller.
    pub(crate) controller: String,
    /// The status, or the reason why there is none.
    pub(crate) found: Result<JobDocument, String>,
}

impl Source {
    pub(crate) fn new(controller: Controller) -> Self {
        Self { controller }
    }

    /// Returns the place of the controller.
    pub(crate) fn name(&self) -> String {
        self.controller.name()
    }

    /// Looks once.
    ///
    /// # Errors
    /// Those of [`Controller::status`].
    pub(crate) fn look(&mut self) -> Result<JobDocument> {
        Ok(self.controller.status()?.1)
    }

    /// Looks again and again on a thread of its own: a controller that does not answer stops no screen.
    pub(crate) fn looks(mut self, interval: Duration) -> Receiver<Look> {
        let (sender, looks) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let found = self.look().map_err(|error| format!("{error:#}"));
                let pause = if found.is_ok() { interval } else { interval.max(RETRY_PAUSE) };
                if sender.send(Look { controller: self.name(), found }).is_err() {
                    return;
                }
                thread::sleep(pause);
            }
        });
        looks
    }
}
