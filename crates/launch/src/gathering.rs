//! Reminders of a controller that waits for members.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use libra_proto::{ControllerEvent, Sizes};

use crate::progress::Bars;

/// Interval of reminders.
const EVERY: Duration = Duration::from_secs(10);

/// Says which members are still to come, again and again until all are there.
#[derive(Debug, Clone)]
pub struct Gathering(Sender<Option<Sizes>>);

impl Gathering {
    /// Begins when it is told how many it waits for.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(bars: Bars) -> io::Result<Self> {
        let (sender, missing) = channel();
        thread::Builder::new().name("gathering".to_owned()).spawn(move || {
            let mut awaited: Option<Sizes> = None;
            loop {
                match missing.recv_timeout(EVERY) {
                    Ok(missing) => awaited = missing,
                    Err(RecvTimeoutError::Timeout) => {
                        if let Some(Sizes { servers, switches, workers }) = awaited {
                            bars.line(&format!(
                                "controller: still waiting for {servers} servers, {switches} switches, {workers} workers"
                            ));
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// So many members are to come.
    pub fn begin(&self, missing: Sizes) {
        // Its thread ends with the last of these.
        let _ = self.0.send(Some(missing));
    }

    /// Takes note of an event of the controller.
    pub fn note(&self, event: &ControllerEvent) {
        let missing = match event {
            ControllerEvent::Joined { missing, .. } => Some(*missing),
            ControllerEvent::Started | ControllerEvent::Recovered | ControllerEvent::TakesOver => None,
            _ => return,
        };
        let none = Sizes { servers: 0, switches: 0, workers: 0 };
        let _ = self.0.send(missing.filter(|missing| *missing != none));
    }
}
