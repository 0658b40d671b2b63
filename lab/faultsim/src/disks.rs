//! The disks of servers: what they are asked, in virtual time.
//!
//! A write stays when its process is killed. When its machine fails, what was not synced may be lost, in whole or in part.

use core::time::Duration;
use std::collections::BTreeMap;

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_proto::{Instant, Restoring, Role, Server, ServerCommand, StorageEvent, StorageRequest};
use libra_storage::checkpoint::Checkpoints;
use libra_storage::disk::{Disk, DiskError, Entry, SimulatedDisk};
use libra_storage::{Recovered, ShardCheckpoints, ShardLog, create, restore, restoring};

use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, AnyRole};
use crate::random::Random;
use crate::world::{Happening, World};

/// A sync takes up to this long.
const SYNC_MAX: Duration = Duration::from_millis(4);
/// A process that sleeps takes results of its disk, and commands, when it wakes up: its state is polled at this interval.
pub(crate) const ASLEEP_PAUSE: Duration = Duration::from_millis(50);

/// A disk that takes its time, until then.
#[derive(Debug, Clone)]
pub(crate) struct Slowness {
    until: Instant,
    /// Typical delay that is added to every operation.
    by: Duration,
    random: Random,
}

/// The disk as a server has it.
#[derive(Debug, Clone)]
pub(crate) struct ServerDisk(SimulatedDisk);

impl Disk for ServerDisk {
    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.0.create(name)
    }
    fn create_directory(&self, name: &str) -> Result<(), DiskError> {
        self.0.create_directory(name)
    }
    fn append(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.append(name, bytes)
    }
    fn truncate(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        self.0.truncate(name, bytes)
    }
    fn sync(&self, name: &str) -> Result<(), DiskError> {
        match self.0.sync(name) {
            Err(_) if is_enabled(Mutant::SyncFailureRetried) => self.0.sync(name),
            result => result,
        }
    }
    fn close(&self, name: &str) {
        self.0.close(name);
    }
    fn bytes(&self, name: &str) -> Result<u64, DiskError> {
        self.0.bytes(name)
    }
    fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.0.read(name, offset, buffer)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.0.remove(name)
    }
    fn list(&self, directory: &str) -> Result<Vec<Entry>, DiskError> {
        self.0.list(directory)
    }
    fn sync_directory(&self, directory: &str) -> Result<(), DiskError> {
        self.0.sync_directory(directory)
    }
}

/// Storage of a server while it runs.
#[derive(Debug)]
pub(crate) struct ServerStorage {
    disk: ServerDisk,
    log: Option<ShardLog<ServerDisk>>,
    checkpoints: Option<ShardCheckpoints<ServerDisk>>,
    /// Requests for the thread of the log, in order.
    asked: Vec<StorageRequest>,
    /// True while the thread of the log is at work: its requests are done when it ends.
    syncing: bool,
    /// When the thread of the checkpoints is done with what it was asked.
    busy_until: Instant,
}

impl ServerStorage {
    /// For a new shard.
    fn new(disk: ServerDisk) -> Self {
        let (log, checkpoints, asked) = (None, None, Vec::new());
        Self { disk, log, checkpoints, asked, syncing: false, busy_until: Instant::ZERO }
    }

    /// Goes on with the shard that was there.
    fn going_on(disk: ServerDisk, log: Option<ShardLog<ServerDisk>>) -> Self {
        let checkpoints = Some(ShardCheckpoints::new(disk.clone()));
        Self { log, checkpoints, ..Self::new(disk) }
    }

    /// Does at once what it can; `Err` if the thread of the log must.
    fn carry_out(&mut self, request: StorageRequest) -> Result<Option<StorageEvent>, ForLog> {
        match request {
            StorageRequest::Create { job, shard, log, resumes } => {
                match create(self.disk.clone(), job, shard, log, resumes) {
                    Ok((log, checkpoints)) => (self.log, self.checkpoints) = (log, Some(checkpoints)),
                    Err(error) => return Ok(Some(StorageEvent::Failed { reason: error.to_string() })),
                }
                Ok(None)
            }
            // It takes no time, and no role waits for it.
            StorageRequest::TrimLog { .. } if !self.syncing => {
                Ok(self.log.as_mut().and_then(|log| log.handle(request)))
            }
            StorageRequest::Append { .. }
            | StorageRequest::RestartLog { .. }
            | StorageRequest::TrimLog { .. } => {
                self.asked.push(request);
                Err(ForLog)
            }
            request => Ok(self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.handle(request))),
        }
    }

    /// Does what the thread of the log was asked, and syncs what was appended; returns what the server must receive.
    fn keep_log(&mut self, now: Instant) -> Vec<StorageEvent> {
        let asked = core::mem::take(&mut self.asked);
        let Some(log) = &mut self.log else { return Vec::new() };
        let mut events: Vec<StorageEvent> =
            asked.into_iter().filter_map(|request| log.handle(request)).collect();
        events.extend(log.sync(now));
        events
    }
}

/// Something was asked of the log.
#[derive(Debug)]
struct ForLog;

impl<O: Observer> World<O> {
    /// The disk of a machine; it has one from the first time that it is asked for.
    pub fn disk(&mut self, host: Host) -> SimulatedDisk {
        let seed = self.random.fork(host as u64).below(u64::MAX);
        self.machines[host].disk.get_or_insert_with(|| SimulatedDisk::new(seed)).clone()
    }

    /// The shard that is on the disk of a machine, if there is one.
    ///
    /// # Panics
    /// It cannot go on: a bug, unless the disk was damaged.
    fn shard_on_disk(&mut self, host: Host) -> Option<Recovered<ServerDisk>> {
        let disk = ServerDisk(self.disk(host));
        restore(disk, None).unwrap_or_else(|error| panic!("the shard of host {host} cannot go on: {error}"))
    }

    /// The progress of the shard on the disk of a machine, of which nothing is read yet, if there is one.
    pub(crate) fn restoring(&mut self, host: Host) -> Option<Restoring> {
        restoring(ServerDisk(self.disk(host)))
            .unwrap_or_else(|error| panic!("the disk of host {host}: {error}"))
    }

    /// The checkpoints that all shards have, with those that they build on: their numbers, and the phase that the work was in.
    pub(crate) fn complete_checkpoints(&mut self) -> BTreeMap<u64, u64> {
        let hosts: Vec<Host> = self.shards.values().copied().collect();
        let of_shard = |host| {
            let checkpoints = Checkpoints::new(self.disk(host));
            let numbers = checkpoints.list().into_iter().flatten().map(|listed| listed.number);
            let phase = |number| {
                let manifest = checkpoints.manifests(number).ok()?.pop()?;
                let position = manifest.description.position;
                Some((number, position.map_or(0, |of| of["work"]["done"]["phase"].as_u64().unwrap_or(0))))
            };
            numbers.filter_map(phase).collect()
        };
        let of_shards = hosts.into_iter().map(of_shard);
        let both = |mut some: BTreeMap<u64, u64>, others: BTreeMap<u64, u64>| {
            some.retain(|number, _| others.contains_key(number));
            some
        };
        of_shards.reduce(both).unwrap_or_default()
    }

    /// Starts a server that has a disk: it goes on with the shard that is there, or it is a new one, of a process with so many.
    pub fn start_server_with_disk(&mut self, host: Host, shards: u16) {
        let (own, disk) = (self.address(host), ServerDisk(self.disk(host)));
        let (server, storage) = match self.shard_on_disk(host) {
            Some(Recovered { restored, log, .. }) => {
                (restored.finish(own), ServerStorage::going_on(disk, log))
            }
            None => (Server::new(own).with_disk().among(shards), ServerStorage::new(disk)),
        };
        let lags = storage.log.as_ref().is_some_and(ShardLog::lags);
        let storage = ServerStorage { syncing: lags, ..storage };
        self.start_process(host, AnyRole::Server(Box::new(server)), Some(storage));
        if let Some(actor) = self.actor(host).filter(|_| lags) {
            self.schedule(self.now, Happening::Sync { actor });
        }
    }

    /// Delays everything on the disk of a machine from now on, until a time.
    pub(crate) fn slow_disk(&mut self, host: Host, until: Instant, by: Duration, random: Random) {
        self.machines[host].slowness = Some(Slowness { until, by, random });
    }

    /// A disk is as fast again as it should be.
    pub(crate) fn mend_slow_disk(&mut self, host: Host) {
        self.machines[host].slowness = None;
    }

    /// Draws the delay of the next operation on the disk of a machine.
    fn delay_of_disk(&mut self, host: Host) -> Duration {
        let now = self.now;
        match self.machines[host].slowness.as_mut().filter(|slowness| slowness.until > now) {
            Some(Slowness { by, random, .. }) => by.mul_f64(3.0 * random.unit() * random.unit()),
            None => Duration::ZERO,
        }
    }

    /// A server asks something of its disk.
    pub(crate) fn store(&mut self, host: Host, request: StorageRequest) {
        let delay = self.delay_of_disk(host);
        let Some(process) = &mut self.machines[host].process else { return };
        let (actor, now) = (process.actor, self.now);
        let Some(storage) = &mut process.storage else { return };
        match storage.carry_out(request) {
            Ok(None) => {}
            Ok(Some(event)) => {
                self.checkpointed |= matches!(event, StorageEvent::Checkpointed { .. });
                let at = now.max(storage.busy_until) + self.random.up_to(SYNC_MAX) + delay;
                storage.busy_until = at;
                self.schedule(at, Happening::Stored { actor, event: Box::new(event) });
            }
            Err(ForLog) => {
                if !core::mem::replace(&mut storage.syncing, true) {
                    let at = now + self.random.up_to(SYNC_MAX) + delay;
                    self.schedule(at, Happening::Sync { actor });
                }
            }
        }
    }

    /// A process with this disk, if it still runs.
    fn storage(&mut self, actor: Actor) -> Option<&mut ServerStorage> {
        let process = self.machines[actor.host].process.as_mut().filter(|process| process.actor == actor)?;
        process.storage.as_mut()
    }

    pub(crate) fn sync(&mut self, actor: Actor) {
        let (now, delay) = (self.now, self.delay_of_disk(actor.host));
        let Some(storage) = self.storage(actor) else { return };
        let events = storage.keep_log(now);
        let again = storage.log.as_ref().is_some_and(ShardLog::lags);
        storage.syncing = again;
        if again {
            let pause = ShardLog::<ServerDisk>::RETRY_PAUSE;
            self.schedule(now + pause + delay, Happening::Sync { actor });
        }
        for event in events {
            self.stored(actor, event);
        }
    }

    /// The disk has done something.
    pub(crate) fn stored(&mut self, actor: Actor, event: StorageEvent) {
        if self.storage(actor).is_none() {
            return;
        }
        if !self.is_awake(actor.host) {
            // It takes the event when it wakes up.
            self.schedule(self.now + ASLEEP_PAUSE, Happening::Stored { actor, event: Box::new(event) });
            return;
        }
        self.hash.event(self.now, actor.host, 13);
        if self.trace.is_some() {
            self.note_of(actor.host, &format!("disk: {event:?}").chars().take(160).collect::<String>());
        }
        self.act(actor.host, |role, now| {
            if let AnyRole::Server(server) = role {
                server.handle_command(now, ServerCommand::Storage(event));
            }
        });
    }
}
