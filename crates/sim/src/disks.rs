//! The disks of servers: what they are asked, in virtual time.
//!
//! What a process has written stays when it is killed. When its machine fails, what was not synced may be lost, in whole or in part.

use core::time::Duration;

use libra_durable::disk::{Disk, SimulatedDisk};
use libra_proto::{Instant, Role, StorageEvent, StorageRequest};
use libra_storage::{Recovered, ShardCheckpoints, ShardLog, restore};

use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, AnyRole};
use crate::world::{Happening, World};

/// A sync takes up to this long.
const SYNC_MAX: Duration = Duration::from_millis(4);
/// A disk that refuses is tried again after this.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long the log may fail before the server goes on without.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// What a server has on its disk while it runs.
#[derive(Debug)]
pub(crate) struct Keeping {
    disk: SimulatedDisk,
    log: Option<ShardLog<SimulatedDisk>>,
    checkpoints: Option<ShardCheckpoints<SimulatedDisk>>,
    /// Whether a sync is under way.
    syncing: bool,
    failing_since: Option<Instant>,
    /// When the thread of the checkpoints is done with what it was asked.
    busy_until: Instant,
}

impl Keeping {
    pub(crate) fn new(disk: SimulatedDisk) -> Self {
        Self {
            disk,
            log: None,
            checkpoints: None,
            syncing: false,
            failing_since: None,
            busy_until: Instant::ZERO,
        }
    }

    /// Goes on with the shard that was there.
    pub(crate) fn going_on(disk: SimulatedDisk, log: Option<ShardLog<SimulatedDisk>>) -> Self {
        let checkpoints = Some(ShardCheckpoints::new(disk.clone()));
        Self { log, checkpoints, ..Self::new(disk) }
    }

    fn create(&mut self, job: u16, shard: u16, log: bool) -> Result<(), String> {
        if !self.disk.list("").map_err(|error| error.to_string())?.is_empty() {
            return Err("there is a shard already".to_owned());
        }
        if log {
            let begun = ShardLog::begin(self.disk.clone(), job, shard);
            self.log = Some(begun.map_err(|error| error.to_string())?);
        }
        self.checkpoints = Some(ShardCheckpoints::new(self.disk.clone()));
        Ok(())
    }

    /// Does at once what it can; `None` if the log must be synced.
    fn carry_out(&mut self, request: StorageRequest) -> Result<Option<StorageEvent>, Append> {
        match request {
            StorageRequest::Create { job, shard, log } => {
                Ok(self.create(job, shard, log).err().map(|reason| StorageEvent::Failed { reason }))
            }
            StorageRequest::Append { number, record } => {
                let appended = self.log.as_mut().map(|log| log.append(number, &record));
                appended.transpose().expect("a scenario does not append so much");
                Err(Append)
            }
            StorageRequest::RestartLog { from } => Ok(self.log.as_mut().map(|log| match log.restart(from) {
                Ok(record) => StorageEvent::Durable { record },
                Err(error) => StorageEvent::LogFailed { reason: error.to_string() },
            })),
            StorageRequest::TrimLog { before } => {
                // What is not removed now is the next time.
                drop(self.log.as_mut().map(|log| log.trim(before)));
                Ok(None)
            }
            request => Ok(self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.handle(request))),
        }
    }

    /// Tries to sync the log. `None`: nothing to say, and whether to try again.
    fn sync(&mut self, now: Instant) -> (Option<StorageEvent>, bool) {
        let Some(log) = &mut self.log else { return (None, false) };
        match log.sync() {
            Ok(synced) => {
                self.failing_since = None;
                (synced.map(|record| StorageEvent::Durable { record }), false)
            }
            Err(error) => {
                let since = *self.failing_since.get_or_insert(now);
                if now.since(since) < LOG_PATIENCE {
                    return (None, true);
                }
                log.give_up();
                self.failing_since = None;
                (Some(StorageEvent::LogFailed { reason: error.to_string() }), false)
            }
        }
    }
}

/// Something was appended to the log.
#[derive(Debug)]
struct Append;

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
    pub fn shard_on_disk(&mut self, host: Host) -> Option<Recovered<SimulatedDisk>> {
        let disk = self.disk(host);
        restore(disk).unwrap_or_else(|error| panic!("the shard of host {host} cannot go on: {error}"))
    }

    /// Starts a server that goes on with a shard, or a new one that has a disk.
    pub fn start_with_disk(
        &mut self,
        host: Host,
        role: AnyRole,
        log: Option<ShardLog<SimulatedDisk>>,
        goes_on: bool,
    ) {
        let disk = self.disk(host);
        self.keeping = Some(if goes_on { Keeping::going_on(disk, log) } else { Keeping::new(disk) });
        self.start(host, role);
    }

    /// A server asks something of its disk.
    pub(crate) fn store(&mut self, host: Host, request: StorageRequest) {
        let Some(process) = &mut self.machines[host].process else { return };
        let (actor, now) = (process.actor, self.now);
        let Some(keeping) = &mut process.keeping else { return };
        match keeping.carry_out(request) {
            Ok(None) => {}
            Ok(Some(event)) => {
                let at = now.max(keeping.busy_until) + self.random.up_to(SYNC_MAX);
                keeping.busy_until = at;
                self.schedule(at, Happening::Stored { actor, event: Box::new(event) });
            }
            Err(Append) => {
                if !core::mem::replace(&mut keeping.syncing, true) {
                    let at = now + self.random.up_to(SYNC_MAX);
                    self.schedule(at, Happening::Sync { actor });
                }
            }
        }
    }

    /// A process with this disk, if it still runs.
    fn keeping(&mut self, actor: Actor) -> Option<&mut Keeping> {
        let process = self.machines[actor.host].process.as_mut().filter(|process| process.actor == actor)?;
        process.keeping.as_mut()
    }

    pub(crate) fn sync(&mut self, actor: Actor) {
        let now = self.now;
        let Some(keeping) = self.keeping(actor) else { return };
        let (event, again) = keeping.sync(now);
        keeping.syncing = again;
        if again {
            self.schedule(now + RETRY_PAUSE, Happening::Sync { actor });
        }
        if let Some(event) = event {
            self.stored(actor, event);
        }
    }

    /// The disk has done something.
    pub(crate) fn stored(&mut self, actor: Actor, event: StorageEvent) {
        if self.keeping(actor).is_none() {
            return;
        }
        if !self.is_awake(actor.host) {
            // It hears of it when it wakes up.
            self.schedule(self.now + RETRY_PAUSE, Happening::Stored { actor, event: Box::new(event) });
            return;
        }
        self.hash.event(self.now, actor.host, 13);
        if self.trace.is_some() {
            self.note_of(actor.host, &format!("disk: {event:?}").chars().take(160).collect::<String>());
        }
        self.act(actor.host, |role, now| {
            if let AnyRole::Server(server) = role {
                server.handle_command(now, event);
            }
        });
    }
}
