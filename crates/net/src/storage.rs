//! The disk of a server: its log, its checkpoints and their uploads, each on a thread, so that neither the role nor one another waits.

use core::ops::ControlFlow;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use libra_proto::{Instant, ServerCommand, StorageEvent, StorageRequest, Upload};
use libra_storage::archive::{Archive, Environment, Rate, Uploader};
use libra_storage::checkpoint::Checkpoints;
use libra_storage::disk::RealDisk;
use libra_storage::{Loaded, ShardCheckpoints, ShardLog, create, load, note_address, shard_directory};
use tokio::sync::mpsc::UnboundedSender;
use tracing::debug;

/// Niceness of the thread of the checkpoints: with 10 it gets a tenth of a core that another thread could fill.
const NICENESS: i32 = 10;

/// Carries out the requests of a server to its disk.
pub(crate) struct Storage {
    data: Option<PathBuf>,
    /// The data directory is made when it is needed, and for no other user.
    is_own: bool,
    /// The data directory may have shards of a run of the job that this one resumes.
    resumes: bool,
    /// Address of the shard, for the others.
    address: SocketAddr,
    events: UnboundedSender<ServerCommand>,
    log: Option<Sender<StorageRequest>>,
    checkpoints: Option<Sender<StorageRequest>>,
    uploads: Uploads,
    threads: Vec<JoinHandle<()>>,
}

impl Storage {
    /// For a server that has not asked for anything; without a data directory it must not.
    pub(crate) fn new(
        data: Option<PathBuf>,
        resumes: bool,
        address: SocketAddr,
        events: UnboundedSender<ServerCommand>,
    ) -> Self {
        let (is_own, uploads, threads) = (false, Uploads::default(), Vec::new());
        Self { data, is_own, resumes, address, events, log: None, checkpoints: None, uploads, threads }
    }

    /// The same, with a data directory that is not there yet, among those of others.
    pub(crate) fn of_own_directory(self) -> Self {
        Self { is_own: true, ..self }
    }

    /// Goes on with the shard that was found on a disk.
    pub(crate) fn go_on(&mut self, disk: RealDisk, log: Option<ShardLog<RealDisk>>) -> std::io::Result<()> {
        self.start(log, ShardCheckpoints::new(disk.clone()), disk)
    }

    fn start(
        &mut self,
        log: Option<ShardLog<RealDisk>>,
        checkpoints: ShardCheckpoints<RealDisk>,
        disk: RealDisk,
    ) -> std::io::Result<()> {
        let events = self.events.clone();
        self.uploads.disk = Some(disk);
        if let Some(log) = log {
            let (sender, requests) = channel();
            self.log = Some(sender);
            self.spawn("libra-log", move || keep_log(log, &requests, &events))?;
        }
        let (sender, requests) = channel();
        self.checkpoints = Some(sender);
        let events = self.events.clone();
        self.spawn("libra-checkpoint", move || keep_checkpoints(checkpoints, &requests, &events))
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    pub(crate) fn carry_out(&mut self, request: StorageRequest) {
        let thread = match request {
            StorageRequest::Create { job, shard, log, resumes } => {
                if let Err(reason) = self.create(job, shard, log, resumes) {
                    let _ = self.events.send(ServerCommand::Storage(StorageEvent::Failed { reason }));
                }
                return;
            }
            StorageRequest::Upload { number, to, bytes_per_second } => {
                return self.upload(number, to, bytes_per_second);
            }
            StorageRequest::Append { .. }
            | StorageRequest::RestartLog { .. }
            | StorageRequest::TrimLog { .. } => &self.log,
            _ => &self.checkpoints,
        };
        // Without a thread there is no log, or nothing could be created, and the server is about to be told.
        if let Some(thread) = thread {
            let _ = thread.send(request);
        }
    }

    /// Hands a checkpoint to the thread of uploads, which starts with the first.
    fn upload(&mut self, number: u64, to: Upload, bytes_per_second: u64) {
        if self.uploads.numbers.is_none() {
            let disk = self.uploads.disk.clone().expect("a checkpoint was written there");
            let (sender, numbers) = channel();
            let (events, given_up) = (self.events.clone(), Arc::clone(&self.uploads.given_up));
            let rate = Rate(bytes_per_second);
            let spawned =
                self.spawn("libra-upload", move || upload(&disk, &to, rate, given_up, &numbers, &events));
            if let Err(error) = spawned {
                let failure = Some(format!("there is no thread for it: {error}"));
                let _ = self.events.send(ServerCommand::Storage(StorageEvent::Uploaded {
                    number,
                    bytes: 0,
                    failure,
                }));
                return;
            }
            self.uploads.numbers = Some(sender);
        }
        if let Some(numbers) = &self.uploads.numbers {
            let _ = numbers.send(number);
        }
    }

    /// Makes a place for a shard. It takes some milliseconds, before the server serves any worker.
    fn create(&mut self, job: u16, shard: u16, with_log: bool, resumes: bool) -> Result<(), String> {
        let data = self.data.as_ref().ok_or("the server was started without a data directory")?;
        let directory = shard_directory(data, shard);
        debug!(directory = %directory.display(), with_log, "a place for a shard is made");
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
        if self.is_own {
            match DirBuilder::new().mode(0o700).create(data) {
                // Another shard of the process was first.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made.map_err(|error| named(&error))?,
            }
        }
        let disk = RealDisk::open(&directory).map_err(|error| named(&error))?;
        let (log, checkpoints) = create(disk.clone(), job, shard, with_log, resumes && self.resumes)
            .map_err(|error| named(&error))?;
        // Before the first checkpoint, so that no shard is found without.
        note_address(&directory, self.address).map_err(|error| named(&error))?;
        self.start(log, checkpoints, disk).map_err(|error| named(&error))
    }

    /// Waits until everything is written. An upload that no event of it is waited for is given up.
    pub(crate) fn finish(&mut self) {
        self.uploads.given_up.store(true, Ordering::Relaxed);
        self.uploads.numbers = None;
        self.log = None;
        self.checkpoints = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// Uploads of the checkpoints of a shard.
#[derive(Default)]
struct Uploads {
    disk: Option<RealDisk>,
    numbers: Option<Sender<u64>>,
    given_up: Arc<AtomicBool>,
}

/// Uploads checkpoints until the sender of their numbers is gone.
fn upload(
    disk: &RealDisk,
    to: &Upload,
    rate: Rate,
    given_up: Arc<AtomicBool>,
    numbers: &Receiver<u64>,
    events: &UnboundedSender<ServerCommand>,
) {
    yield_to_others();
    let checkpoints = Checkpoints::new(disk.clone());
    let archive = Archive::open(&to.url, &Environment::of_process());
    let mut uploader = archive.map(|archive| Uploader::new(archive, to.owner, rate, given_up));
    while let Ok(number) = numbers.recv() {
        let (failure, bytes) = match &mut uploader {
            Ok(uploader) => {
                let failure = uploader.upload(&checkpoints, number).err();
                (failure.map(|error| error.to_string()), uploader.bytes_sent())
            }
            Err(error) => (Some(error.to_string()), 0),
        };
        debug!(number, ?failure, "an upload has ended");
        let _ = events.send(ServerCommand::Storage(StorageEvent::Uploaded { number, bytes, failure }));
    }
}

/// Writes the log until the sender of its requests is gone. Records that come while a sync is under way go with the next one.
fn keep_log(
    mut log: ShardLog<RealDisk>,
    requests: &Receiver<StorageRequest>,
    events: &UnboundedSender<ServerCommand>,
) {
    let begun = std::time::Instant::now();
    let report = |event: Option<StorageEvent>| {
        if let Some(event) = event {
            let _ = events.send(ServerCommand::Storage(event));
        }
    };
    loop {
        let first = if log.lags() {
            match requests.recv_timeout(ShardLog::<RealDisk>::RETRY_PAUSE) {
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
        for request in first.into_iter().chain(requests.try_iter()) {
            report(log.handle(request));
        }
        report(log.sync(Instant::ZERO + begun.elapsed()));
    }
    // Records that did not get there were not answered, or the server went on without a log and reported that.
    let _ = log.close();
}

/// With all cores busy, a checkpoint takes longer, and pushes do not.
fn yield_to_others() {
    // A thread has a priority of its own on Linux. Without this one it is only not as kind.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
}

fn keep_checkpoints(
    mut checkpoints: ShardCheckpoints<RealDisk>,
    requests: &Receiver<StorageRequest>,
    events: &UnboundedSender<ServerCommand>,
) {
    yield_to_others();
    while let Ok(request) = requests.recv() {
        let event = match request {
            StorageRequest::Load { directory, number, seed, tables, shard, states: wanted } => {
                let next = |rows| {
                    let asked = events.send(ServerCommand::Storage(StorageEvent::Loaded(rows))).is_ok()
                        && matches!(requests.recv(), Ok(StorageRequest::LoadNext));
                    if asked { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                match load(Path::new(&directory), number, seed, &tables, shard, next) {
                    Ok(loaded) => loaded.map(|Loaded { steps, states }| {
                        let states = if wanted { states } else { Vec::new() };
                        StorageEvent::LoadEnded { steps, states }
                    }),
                    Err(error) => Some(StorageEvent::Failed { reason: error.to_string() }),
                }
            }
            request => checkpoints.handle(request),
        };
        if let Some(event) = event {
            let _ = events.send(ServerCommand::Storage(event));
        }
    }
}
