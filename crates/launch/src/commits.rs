//! Commits of checkpoints at a URL, by the process of the controller: on a thread of their own, so that its role never waits.

use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result};
use libra_monitor::EventSender;
use libra_proto::{ControllerEvent, Durability, Upload};
use libra_storage::archive::{Archive, ArchiveError, Environment, Owner};
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::arguments::DurabilityArguments;
use crate::progress::Bars;
use crate::watching::report;

/// Pause between looks for the last checkpoint.
const POLL: Duration = Duration::from_millis(500);
/// So long the last checkpoint is waited for while nothing of it arrives.
const PATIENCE: Duration = Duration::from_secs(120);

/// The thread that commits.
pub struct Committer {
    archive: Archive,
    takes_over: bool,
    bars: Bars,
    orders: Sender<Order>,
    thread: JoinHandle<Option<String>>,
}

/// Orders commits, from whichever thread.
#[derive(Debug, Clone)]
pub struct Commits(Option<Sender<Order>>);

#[derive(Debug)]
enum Order {
    /// The job owns the URL by this number, and its checkpoints are above another.
    Owner { owner: u64, above: u64 },
    /// All servers have uploaded it.
    Commit(u64),
    /// Nothing came of it.
    Failed(u64),
    /// The job is done, and servers upload one more. It is waited for, if they may not have ended.
    Last { patience: Duration },
}

impl Committer {
    /// Starts the thread, if the job uploads checkpoints. Nothing is written until the first commit.
    ///
    /// # Errors
    /// The URL is none of a store.
    pub fn start(
        arguments: &DurabilityArguments,
        bars: Bars,
        events: Option<EventSender>,
    ) -> Result<Option<Self>> {
        let Some(url) = &arguments.checkpoints else { return Ok(None) };
        let archive = Archive::open(url, &Environment::of_process()).context("--checkpoints")?;
        let (orders, ordered) = channel();
        let keep = usize::from(arguments.keep_checkpoints);
        let work = Work { archive: archive.clone(), keep, owner: None, newest: 0, bars, events };
        let thread = thread::Builder::new().name("libra-commit".to_owned());
        let thread = thread.spawn(move || work.run(&ordered)).context("cannot start a thread")?;
        let takes_over = arguments.begins_with(archive.url());
        Ok(Some(Self { archive, takes_over, bars, orders, thread }))
    }

    /// Looks that something can be written at the URL, and makes it that of this job.
    ///
    /// # Errors
    /// Nothing can be written, or it is that of another job.
    pub fn claim(&self, durability: &mut Durability) -> Result<()> {
        let owner = OsRng.try_next_u64().context("the machine has no random number for the job")?;
        let claim =
            self.archive.claim(&Owner::of_process(owner), self.takes_over).context("--checkpoints")?;
        let url = self.archive.url().to_owned();
        if !claim.is_conditional {
            self.bars.line(&format!(
                "note: the store of {url} has no conditional put: jobs that begin there at the same moment do not notice each other"
            ));
        }
        let _ = self.orders.send(Order::Owner { owner, above: claim.newest });
        durability.upload = Some(Upload { url, owner, above: claim.newest });
        Ok(())
    }

    /// A handle for the thread that hears of the controller's events.
    pub fn commits(this: Option<&Self>) -> Commits {
        Commits(this.map(|this| this.orders.clone()))
    }

    /// Commits the last checkpoint of a job that is done, which servers upload after its end; if they may not have ended, it is waited
    /// for. Returns why it does not count.
    pub fn finish(self, is_done: bool, servers_have_ended: bool) -> Option<String> {
        if is_done {
            let patience = if servers_have_ended { Duration::ZERO } else { PATIENCE };
            let _ = self.orders.send(Order::Last { patience });
        }
        drop(self.orders);
        // One that panicked has reported it.
        self.thread.join().unwrap_or_default()
    }
}

impl Commits {
    /// Takes note of an event of the controller.
    pub fn note(&self, event: &ControllerEvent) {
        let order = match event {
            ControllerEvent::Checkpointed { number, .. } => Order::Commit(*number),
            ControllerEvent::CheckpointFailed { number, .. } => Order::Failed(*number),
            _ => return,
        };
        if let Some(orders) = &self.0 {
            let _ = orders.send(order);
        }
    }
}

/// State of the thread.
struct Work {
    archive: Archive,
    /// Number of checkpoints that are kept.
    keep: usize,
    /// Not known to a controller that has taken over its cluster, before its first commit.
    owner: Option<u64>,
    /// The newest checkpoint that was heard of.
    newest: u64,
    bars: Bars,
    events: Option<EventSender>,
}

impl Work {
    fn run(mut self, orders: &Receiver<Order>) -> Option<String> {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Owner { owner, above } => (self.owner, self.newest) = (Some(owner), above),
                Order::Failed(number) => {
                    self.newest = self.newest.max(number);
                    self.renew();
                }
                Order::Commit(number) => {
                    self.newest = self.newest.max(number);
                    if let Err(error) = self.commit(number) {
                        self.tell(number, error.to_string());
                        self.renew();
                    }
                }
                Order::Last { patience } => {
                    let url = self.archive.url().to_owned();
                    return match self.last(patience) {
                        Ok(number) => {
                            self.bars.line(&format!("checkpoint {number}, the last, is at {url}"));
                            None
                        }
                        Err(error) => Some(format!("the last checkpoint does not count at {url}: {error}")),
                    };
                }
            }
        }
        None
    }

    fn commit(&mut self, number: u64) -> Result<(), ArchiveError> {
        let owner = match self.owner {
            Some(owner) => owner,
            None => self.archive.owner_number()?,
        };
        self.owner = Some(owner);
        self.archive.commit(number, owner)?;
        // What cannot be removed now can be next time.
        let _ = self.archive.retain(self.keep);
        Ok(())
    }

    /// Servers go on to upload when the place is there again that was removed.
    fn renew(&self) {
        if let Some(owner) = self.owner {
            let _ = self.archive.renew(&Owner::of_process(owner));
        }
    }

    fn tell(&self, number: u64, reason: String) {
        let reason = format!("it is on the disks of servers, and does not count at the URL: {reason}");
        self.bars.line(&format!("note: checkpoint {number}: {reason}"));
        report(self.events.as_ref(), &ControllerEvent::CheckpointFailed { number, reason });
    }

    /// Waits for the checkpoint that servers write when the job is done, for as long as something arrives.
    fn last(&mut self, patience: Duration) -> Result<u64> {
        let (mut bytes, mut since) = (None, Instant::now());
        loop {
            let look = self.archive.look_above(self.newest);
            match look {
                Ok(look) if look.uploaded.is_some() => {
                    let number = look.uploaded.expect("it was looked at");
                    self.commit(number)?;
                    return Ok(number);
                }
                Ok(look) if bytes != Some(look.bytes) => (bytes, since) = (Some(look.bytes), Instant::now()),
                Ok(_) => {}
                Err(error) if patience.is_zero() => return Err(error.into()),
                Err(_) => {}
            }
            if since.elapsed() >= patience {
                anyhow::bail!("not all servers have uploaded their part");
            }
            thread::sleep(POLL);
        }
    }
}
