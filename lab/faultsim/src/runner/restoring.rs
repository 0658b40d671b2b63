//! Servers that take long to read their disks when they come back.

use core::time::Duration;

use libra_proto::{Instant, RESTORING_INTERVAL, Restoring, RestoringServer, Role};

use super::{ScenarioRunner, Scheduled};
use crate::network::Host;
use crate::process::{Actor, AnyRole};

/// A process that reads a disk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reader {
    host: Host,
    actor: Actor,
    /// Its shards.
    restoring: Vec<Restoring>,
    began: Instant,
    lasts: Duration,
}

impl Reader {
    /// Reads on; `None` if it has read everything.
    fn progress(&mut self, now: Instant) -> Option<Restoring> {
        let share = now.since(self.began).as_secs_f64() / self.lasts.as_secs_f64();
        let shards = self.restoring.len();
        let shard = (0..shards).find(|shard| share * (shards as f64) < (shard + 1) as f64)?;
        self.restoring[shard].read += 1;
        Some(self.restoring[shard])
    }
}

impl ScenarioRunner {
    /// Draws for how long a server that has died reads its disk when it is started again.
    pub(crate) fn draw_restore_time(&mut self, host: Host) -> Duration {
        let most = self.scenario.restore_time_max;
        if most.is_zero() {
            return most;
        }
        let lasts = self.random_of_disks.up_to(most);
        self.restore_times.insert(self.world.shards_of(host)[0], lasts);
        lasts
    }

    /// Starts the shards of a server that has a disk. One that was killed may take a while for what is there.
    pub(super) fn start_server_with_disk(&mut self, host: Host) {
        let shards = self.world.shards_of(host);
        let host = shards[0];
        // The operator tries to start it until the disk works.
        for shard in &shards {
            let disk = self.world.disk(*shard);
            disk.fail_syncs(0..0);
            disk.fail_directory_syncs(0);
        }
        let lasts = self.restore_times.remove(&host).filter(|_| self.quiesced_at.is_none());
        let restoring: Vec<Restoring> =
            shards.iter().filter_map(|shard| self.world.restoring(*shard)).collect();
        if let Some(lasts) = lasts.filter(|_| !restoring.is_empty()) {
            self.count_fault("server reads for long");
            let role = RestoringServer::default();
            self.world.start(host, AnyRole::Restoring(Box::new(role)));
            if let Some(actor) = self.world.actor(host) {
                let began = self.now();
                self.read_on(Reader { host, actor, restoring, began, lasts });
            }
            return;
        }
        for shard in shards {
            self.down.remove(&shard);
            self.world.start_server_with_disk(shard, self.scenario.shards_per_server);
            self.bound_pages(shard);
        }
    }

    /// A process has read more of its disk, one shard after the other, or all of it.
    pub(super) fn read_on(&mut self, mut reader: Reader) {
        let (host, now) = (reader.host, self.now());
        if self.world.actor(host) != Some(reader.actor) {
            return;
        }
        // What reads sleeps with its process.
        if self.world.is_awake(host) {
            let Some(progress) = reader.progress(now).filter(|_| self.quiesced_at.is_none()) else {
                return self.start_server_with_disk(host);
            };
            self.world.act(host, |role, now| {
                if let AnyRole::Restoring(server) = role {
                    server.handle_command(now, progress);
                }
            });
        }
        self.schedule(now + RESTORING_INTERVAL, Scheduled::ReadOn(reader));
    }
}
