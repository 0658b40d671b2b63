//! The disks of servers: what they are asked, in virtual time.
//!
//! What a process has written stays when it is killed. When its machine fails, what was not synced may be lost, in whole or in part.

use core::net::SocketAddr;
use core::time::Duration;

use libra_durable::disk::SimulatedDisk;
use libra_proto::{Instant, Role, Server, StorageEvent, StorageRequest};
use libra_storage::{Recovered, ShardCheckpoints, ShardLog, create, restore};

use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, AnyRole};
use crate::world::{Happening, World};

/// A sync takes up to this long.
const SYNC_MAX: Duration = Duration::from_millis(4);
/// Whoever sleeps hears of its disk when it wakes up: it is looked at so often.
const ASLEEP_PAUSE: Duration = Duration::from_millis(50);

/// What a server has on its disk while it runs.
#[derive(Debug)]
pub(crate) struct Keeping {
    disk: SimulatedDisk,
    log: Option<ShardLog<SimulatedDisk>>,
    checkpoints: Option<ShardCheckpoints<SimulatedDisk>>,
    /// Whether a sync is under way.
    syncing: bool,
    /// When the thread of the checkpoints is done with what it was asked.
    busy_until: Instant,
}

impl Keeping {
    /// For a new shard.
    fn new(disk: SimulatedDisk) -> Self {
        Self { disk, log: None, checkpoints: None, syncing: false, busy_until: Instant::ZERO }
    }

    /// Goes on with the shard that was there.
    fn going_on(disk: SimulatedDisk, log: Option<ShardLog<SimulatedDisk>>) -> Self {
        let checkpoints = Some(ShardCheckpoints::new(disk.clone()));
        Self { log, checkpoints, ..Self::new(disk) }
    }

    /// Does at once what it can; `Err` if the log must be synced.
    fn carry_out(&mut self, request: StorageRequest) -> Result<Option<StorageEvent>, Append> {
        match request {
            StorageRequest::Create { job, shard, log } => {
                match create(self.disk.clone(), job, shard, log) {
                    Ok((log, checkpoints)) => (self.log, self.checkpoints) = (log, Some(checkpoints)),
                    Err(error) => return Ok(Some(StorageEvent::Failed { reason: error.to_string() })),
                }
                Ok(None)
            }
            StorageRequest::Append { .. }
            | StorageRequest::RestartLog { .. }
            | StorageRequest::TrimLog { .. } => {
                let appends = matches!(request, StorageRequest::Append { .. });
                let event = self.log.as_mut().and_then(|log| log.handle(request));
                if appends { Err(Append) } else { Ok(event) }
            }
            request => Ok(self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.handle(request))),
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
    fn shard_on_disk(&mut self, host: Host) -> Option<Recovered<SimulatedDisk>> {
        let disk = self.disk(host);
        restore(disk).unwrap_or_else(|error| panic!("the shard of host {host} cannot go on: {error}"))
    }

    /// Starts a server that has a disk: it goes on with the shard that is there, or it is a new one.
    pub fn start_server_with_disk(&mut self, host: Host, controller: SocketAddr) {
        let (own, disk) = (self.address(host), self.disk(host));
        let (server, keeping) = match self.shard_on_disk(host) {
            Some(Recovered { restored, log, .. }) => {
                (restored.finish(controller, own), Keeping::going_on(disk, log))
            }
            None => (Server::new(controller, own).with_disk(), Keeping::new(disk)),
        };
        self.start_process(host, AnyRole::Server(Box::new(server)), Some(keeping));
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
        let event = keeping.log.as_mut().and_then(|log| log.sync(now));
        let again = keeping.log.as_ref().is_some_and(ShardLog::lags);
        keeping.syncing = again;
        if again {
            let pause = ShardLog::<SimulatedDisk>::RETRY_PAUSE;
            self.schedule(now + pause, Happening::Sync { actor });
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
            self.schedule(self.now + ASLEEP_PAUSE, Happening::Stored { actor, event: Box::new(event) });
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
