//! The disk of a server: its log and its checkpoints, each on a thread, so that neither the role nor one another waits.

use core::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libra_durable::disk::{Disk, RealDisk};
use libra_proto::{StorageEvent, StorageRequest};
use libra_storage::{ShardCheckpoints, ShardLog, load, shard_directory};
use tokio::sync::mpsc::UnboundedSender;

/// How long to wait before the disk is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long the log may fail before the server goes on without: its workers wait as long.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// How much the thread of the checkpoints stands back: with 10 it gets a tenth of a core that another wants whole.
const NICENESS: i32 = 10;

/// Carries out what a server asks of its disk.
pub(crate) struct Storage {
    data: Option<PathBuf>,
    events: UnboundedSender<StorageEvent>,
    log: Option<Sender<StorageRequest>>,
    checkpoints: Option<Sender<StorageRequest>>,
    threads: Vec<JoinHandle<()>>,
}

impl Storage {
    /// For a server that has not asked for anything; without a data directory it must not.
    pub(crate) fn new(data: Option<PathBuf>, events: UnboundedSender<StorageEvent>) -> Self {
        Self { data, events, log: None, checkpoints: None, threads: Vec::new() }
    }

    /// Goes on with the shard that was found on a disk.
    pub(crate) fn go_on(&mut self, disk: RealDisk, log: Option<ShardLog<RealDisk>>) -> std::io::Result<()> {
        let events = self.events.clone();
        if let Some(log) = log {
            let (sender, requests) = channel();
            self.log = Some(sender);
            self.spawn("libra-log", move || keep_log(log, &requests, &events))?;
        }
        let (sender, requests) = channel();
        self.checkpoints = Some(sender);
        let events = self.events.clone();
        self.spawn("libra-checkpoint", move || {
            keep_checkpoints(ShardCheckpoints::new(disk), &requests, &events);
        })
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    pub(crate) fn carry_out(&mut self, request: StorageRequest) {
        let thread = match request {
            StorageRequest::Create { job, shard, log } => {
                if let Err(reason) = self.create(job, shard, log) {
                    let _ = self.events.send(StorageEvent::Failed { reason });
                }
                return;
            }
            StorageRequest::Append { .. }
            | StorageRequest::RestartLog { .. }
            | StorageRequest::TrimLog { .. } => &self.log,
            _ => &self.checkpoints,
        };
        // Without a thread there is no log, or nothing could be created, and the server is about to hear it.
        if let Some(thread) = thread {
            let _ = thread.send(request);
        }
    }

    /// Makes a place for a shard. It takes some milliseconds, before the server serves anybody.
    fn create(&mut self, job: u16, shard: u16, with_log: bool) -> Result<(), String> {
        let data = self.data.as_ref().ok_or("the server was started without a data directory")?;
        let directory = shard_directory(data, shard);
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
        let disk = RealDisk::open(&directory).map_err(|error| named(&error))?;
        let others = disk.list("").map_err(|error| named(&error))?;
        if let Some(entry) = others.iter().find(|entry| is_of_a_shard(&entry.name)) {
            return Err(format!(
                "{} holds a shard already ({}): choose an empty data directory, or remove it",
                directory.display(),
                entry.name
            ));
        }
        let log = with_log.then(|| ShardLog::begin(disk.clone(), job, shard)).transpose();
        let log = log.map_err(|error| named(&error))?;
        self.go_on(disk, log).map_err(|error| named(&error))
    }

    /// Waits until everything is written.
    pub(crate) fn finish(&mut self) {
        self.log = None;
        self.checkpoints = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn is_of_a_shard(name: &str) -> bool {
    name.starts_with("checkpoint-") || name.starts_with("log-")
}

/// Writes the log until nobody will append to it. Whatever has come while a sync was under way goes with the next one.
fn keep_log(
    mut log: ShardLog<RealDisk>,
    requests: &Receiver<StorageRequest>,
    events: &UnboundedSender<StorageEvent>,
) {
    let mut failing_since: Option<Instant> = None;
    let mut trim = None;
    loop {
        let first = if failing_since.is_some() {
            match requests.recv_timeout(RETRY_PAUSE) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        } else {
            match requests.recv() {
                Ok(request) => Some(request),
                Err(_) => break,
            }
        };
        let mut too_much = None;
        for request in first.into_iter().chain(requests.try_iter()) {
            match request {
                StorageRequest::Append { number, record } => {
                    // The records before wait for the same disk: the one that does not fit ends the log.
                    if too_much.is_none()
                        && let Err(error) = log.append(number, &record)
                    {
                        too_much = Some(error.to_string());
                    }
                }
                StorageRequest::RestartLog { from } => {
                    let event = match log.restart(from) {
                        Ok(record) => StorageEvent::Durable { record },
                        Err(error) => StorageEvent::LogFailed { reason: error.to_string() },
                    };
                    let _ = events.send(event);
                }
                StorageRequest::TrimLog { before } => trim = Some(before),
                _ => unreachable!("carry_out sends only what is about the log"),
            }
        }
        let failure = match log.sync() {
            _ if too_much.is_some() => too_much,
            Ok(synced) => {
                failing_since = None;
                if let Some(record) = synced {
                    let _ = events.send(StorageEvent::Durable { record });
                }
                None
            }
            Err(error) => {
                let since = *failing_since.get_or_insert_with(Instant::now);
                (since.elapsed() >= LOG_PATIENCE).then(|| error.to_string())
            }
        };
        if let Some(reason) = failure {
            log.give_up();
            failing_since = None;
            let _ = events.send(StorageEvent::LogFailed { reason });
        }
        if let Some(before) = trim.take() {
            // What cannot be removed costs room, no more; the next checkpoint tries again.
            let _ = log.trim(before);
        }
    }
    // What did not get there was not answered, or the server went on without a log and said so.
    let _ = log.close();
}

/// Where all cores are busy, a checkpoint takes longer, and pushes do not.
fn yield_to_others() {
    // A thread has a priority of its own on Linux. Without this one it is only not as kind.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
}

fn keep_checkpoints(
    mut checkpoints: ShardCheckpoints<RealDisk>,
    requests: &Receiver<StorageRequest>,
    events: &UnboundedSender<StorageEvent>,
) {
    yield_to_others();
    while let Ok(request) = requests.recv() {
        let event = match request {
            StorageRequest::Load { directory, number, seed, tables } => {
                let next = |rows| {
                    let asked = events.send(StorageEvent::Loaded(rows)).is_ok()
                        && matches!(requests.recv(), Ok(StorageRequest::LoadNext));
                    if asked { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                match load(Path::new(&directory), number, seed, &tables, next) {
                    Ok(steps) => steps.map(|steps| StorageEvent::LoadEnded { steps }),
                    Err(error) => Some(StorageEvent::Failed { reason: error.to_string() }),
                }
            }
            request => checkpoints.handle(request),
        };
        if let Some(event) = event {
            let _ = events.send(event);
        }
    }
}
