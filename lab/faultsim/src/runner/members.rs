//! The machines of a scenario, and the members that are started on them.

use core::time::Duration;

use libra_p4::P4Plane;
use libra_proto::{Cluster, DeferredPlane, Instant, Server, SoftPlane, Switch, Worker};

use super::{BEGIN_BOUND, Kind, RESTART_PAUSE, ScenarioRunner, Scheduled};
use crate::async_device::{DelayedDevice, p4_sizes};
use crate::network::Host;
use crate::process::AnyRole;
use crate::scenario::NarrowLink;
use crate::workload::User;

/// Bytes of datagrams that wait for a switch at most.
const RECEIVE_BYTES: u32 = 8 << 20;

impl ScenarioRunner {
    /// Starts the members that the scenario begins with.
    pub(super) fn start_processes(&mut self) {
        let sizes = self.scenario.sizes;
        let kinds = [
            (Kind::Controller, 1),
            (Kind::Server, sizes.servers),
            (Kind::Switch, sizes.switches + self.scenario.standbys),
            (Kind::Worker, sizes.workers),
        ];
        for (kind, count) in kinds {
            for _ in 0..count {
                let host = self.add_host(kind);
                if kind == Kind::Controller {
                    self.start(host, kind);
                    continue;
                }
                let at = self.now() + self.random.up_to(Duration::from_millis(20));
                self.schedule(at, Scheduled::Start(host, kind));
                if kind == Kind::Server {
                    self.add_shards(host, at);
                }
            }
        }
        if self.scenario.narrow_link.is_some() {
            self.count_fault("narrow link");
        }
        if let Some(other) = self.scenario.proposals.as_ref().and_then(|proposals| proposals.other.clone()) {
            let workers = self.kinds.iter().enumerate().filter(|(_, kind)| **kind == Kind::Worker);
            self.disagreeing = workers.map(|(host, _)| host).nth(other.worker.into());
            let at = self.now() + other.ends;
            self.disagreeing.into_iter().for_each(|host| self.schedule(at, Scheduled::Agree(host)));
        }
        let at = self.now() + BEGIN_BOUND;
        self.schedule(at, Scheduled::CheckBegin);
    }

    /// Adds a machine for a process of a kind.
    pub(crate) fn add_host(&mut self, kind: Kind) -> Host {
        let host = self.world.add_host(format!("{kind:?}-{}", self.kinds.len()).to_lowercase());
        self.kinds.push(kind);
        self.narrow_the_link();
        host
    }

    /// Makes the link between a worker and all switches narrow, if the scenario has such a worker.
    fn narrow_the_link(&mut self) {
        let Some(NarrowLink { worker, bytes_max, there, back }) = self.scenario.narrow_link else { return };
        let of = |kind: Kind| {
            let hosts = self.kinds.iter().enumerate();
            hosts.filter(move |(_, other)| **other == kind).map(|(host, _)| host)
        };
        let Some(worker) = of(Kind::Worker).nth(worker.into()) else { return };
        for switch in of(Kind::Switch) {
            if there {
                self.world.network.narrow(worker, switch, bytes_max);
            }
            if back {
                self.world.network.narrow(switch, worker, bytes_max);
            }
        }
    }

    /// Adds hosts for the other shards of a server, which start with it.
    fn add_shards(&mut self, host: Host, at: Instant) {
        for _ in 1..self.scenario.shards_per_server {
            let shard = self.world.add_shard(format!("shard-{}", self.kinds.len()), host);
            self.kinds.push(Kind::Server);
            self.schedule(at, Scheduled::Start(shard, Kind::Server));
        }
    }

    /// Hosts of a kind on which a process runs, awake or not.
    pub(crate) fn alive(&self, kind: Kind) -> Vec<Host> {
        (0..self.kinds.len()).filter(|host| self.kinds[*host] == kind && self.world.is_alive(*host)).collect()
    }

    /// The worker that is exempt from fatal faults, so that there is one to the end.
    pub(crate) fn protected(&self) -> Option<Host> {
        self.kinds.iter().position(|kind| *kind == Kind::Worker)
    }

    pub(crate) fn start(&mut self, host: Host, kind: Kind) {
        self.down.remove(&host);
        let own = self.world.address(host);
        let role = match kind {
            Kind::Controller => AnyRole::Controller(Box::new(self.scenario.controller())),
            Kind::Server if self.scenario.durability.needs_disk() => {
                // One that reads its disk starts them all.
                if !self.world.is_alive(self.world.shards_of(host)[0]) {
                    self.start_server_with_disk(host);
                }
                return;
            }
            Kind::Server => {
                let server = Server::new(own).among(self.scenario.shards_per_server);
                self.world.start(host, AnyRole::Server(Box::new(server)));
                return self.bound_pages(host);
            }
            Kind::Switch if self.scenario.has_async_devices => {
                let random = self.random.fork(self.account.operations << 8 | host as u64);
                match p4_sizes(&self.scenario) {
                    Some(sizes) => {
                        let plane = DeferredPlane::new(DelayedDevice::new(
                            P4Plane::new(libra_p4model::Switch::new(sizes), sizes),
                            random,
                        ));
                        AnyRole::P4Switch(Box::new(Switch::with_plane(own, RECEIVE_BYTES, plane)))
                    }
                    None => {
                        let plane = DeferredPlane::new(DelayedDevice::new(SoftPlane::default(), random));
                        AnyRole::DelayedSwitch(Box::new(Switch::with_plane(own, RECEIVE_BYTES, plane)))
                    }
                }
            }
            Kind::Switch => AnyRole::Switch(Box::new(Switch::new(own, RECEIVE_BYTES))),
            Kind::Worker => {
                let random = self.random.fork(self.account.operations << 8 | host as u64);
                let mut user = User::new(host, &self.scenario.rows, random);
                user.next_barrier = self.phase_on_disks;
                self.departed.extend(self.users.insert(host, user));
                let worker = Worker::new(own).with_restarts(self.scenario.workers_return);
                AnyRole::Worker(Box::new(match self.proposal(host) {
                    Some(job) => worker.with_proposal(job),
                    None => worker,
                }))
            }
        };
        self.world.start(host, role);
    }

    /// Tells a server how large a page of a scan is.
    pub(super) fn bound_pages(&mut self, host: Host) {
        let bytes = self.scenario.page_bytes_max;
        self.world.act(host, |role, _| {
            if let AnyRole::Server(server) = role {
                server.set_page_bytes_max(bytes);
            }
        });
    }

    /// The job as a worker describes it, if it does.
    fn proposal(&self, host: Host) -> Option<Box<Cluster>> {
        let proposals = self.scenario.proposals.as_ref()?;
        let other = proposals.other.as_ref().filter(|_| self.disagreeing == Some(host));
        let job = self.scenario.cluster();
        Some(Box::new(other.map_or_else(|| job.clone(), |other| other.job(job.clone()))))
    }

    /// A worker that describes another job than the others is started again with theirs.
    pub(super) fn agree(&mut self, host: Host) {
        self.disagreeing = None;
        if self.begun_at.is_none() && self.world.is_alive(host) {
            self.count_fault("another job is described");
            self.exempt(host, RESTART_PAUSE);
            self.world.crash(host);
            let at = self.now() + RESTART_PAUSE;
            self.schedule(at, Scheduled::Start(host, Kind::Worker));
        }
    }
}
