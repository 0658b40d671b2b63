//! Scenarios: everything that a seed decides before the world begins.
//!
//! Swarm testing (Groce et al., ISSTA 2012): a scenario has some kinds of faults and not others, and even how likely each is
//! is drawn, so that rare combinations are not drowned by common ones.

mod fault;
mod proposals;
mod restarts;
mod work;

use core::time::Duration;

use libra_dataplane::packet_bytes;
use libra_proto::{
    ArithmeticMode, CheckpointAt, Cluster, Controller, Durability, HotPath, Secret, Sizes, TagKind, Work,
};

pub use self::fault::{CutOff, Fault, Side, Target};
use self::fault::{SEVERE_KINDS, draw_faults, draw_severe_fault};
pub use self::proposals::{Disagreement, Proposals};
pub use self::work::OPEN_WORK_FROM;
use crate::async_device::p4_sizes;
use crate::flips::FlippedBits;
use crate::network::{Bursts, Quality};
use crate::random::Random;
use crate::rows::{Rows, SetTable};
use crate::set_rows::SetWorkload;
use crate::workload::Workload;

/// The job of every scenario.
const JOB: u16 = 9;

/// Everything that a seed decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Number of members that the job begins with.
    pub sizes: Sizes,
    /// Places for workers: as many as the job begins with, or more.
    pub places: u16,
    /// The work that is dealt in chunks, if users work so.
    pub work: Option<Work>,
    /// Shards of each server: they are in one process, which has one address.
    pub shards_per_server: u16,
    /// Switches that come with the first members beyond those.
    pub standbys: u16,
    /// Quality of the network until the end of the faults.
    pub quality: Quality,
    /// The rows of the model.
    pub rows: Rows,
    /// True if the data planes of switches carry out requests of their agents with a delay.
    pub has_async_devices: bool,
    /// True if there is a plan of hot rows at all.
    pub planned: bool,
    /// Settings of the hot path.
    pub hot_path: HotPath,
    /// State that servers keep on disk.
    pub durability: Durability,
    /// True if another process comes in the place of each worker that dies, which a job without workers waits for.
    pub workers_return: bool,
    /// A server that comes back reads its disk for so long, at most.
    pub restore_time_max: Duration,
    /// A link that long packets do not come through, if there is one.
    pub narrow_link: Option<NarrowLink>,
    /// Operations of users.
    pub workload: Workload,
    /// Bytes of a page of a scan, at most.
    pub page_bytes_max: usize,
    /// How workers describe the job, if the controller takes its tables from them.
    pub proposals: Option<Proposals>,
    /// The faults, and when they begin, counted from the start of the job.
    pub faults: Vec<(Duration, Fault)>,
    /// When they end.
    pub safety: Duration,
    /// True if bits flip in fields that nothing protects: then no sum is right, and no role may panic.
    pub is_unprotected: bool,
}

/// The link of a worker, which loses datagrams that are too long, without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NarrowLink {
    /// The worker's machine, among those that the job begins with.
    pub worker: u16,
    /// Bytes of the longest datagrams that come through.
    pub bytes_max: usize,
    /// True if it is narrow on the way to switches.
    pub there: bool,
    /// True if it is on the way back.
    pub back: bool,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let trunk = Random::new(seed);
        let mut random = trunk.fork(1);
        let switches = *random.pick(&[0, 1, 1, 1, 2, 2, 3]);
        let sizes = Sizes { servers: random.small(1..=3), switches, workers: random.small(1..=4) };
        let planned = switches > 0 || random.chance(0.7);
        let safety = Duration::from_millis(random.within(1500..=8000));
        Self {
            seed,
            sizes,
            places: sizes.workers,
            work: None,
            shards_per_server: draw_shards(&mut trunk.fork(53)),
            standbys: if planned { *random.pick(&[0, 0, 1, 1, 2]) } else { 0 },
            has_async_devices: trunk.fork(11).chance(0.25),
            quality: draw_quality(&mut trunk.fork(2)),
            rows: draw_rows(&mut trunk.fork(3)),
            planned,
            hot_path: HotPath {
                tags: draw_tags(&mut trunk.fork(60)),
                ..draw_hot_path(&mut trunk.fork(4), sizes.workers)
            },
            durability: draw_durability(&mut trunk.fork(9)),
            workers_return: false,
            restore_time_max: Duration::ZERO,
            narrow_link: None,
            workload: draw_workload(&mut trunk.fork(5), safety, sizes.workers),
            page_bytes_max: usize::MAX,
            proposals: Proposals::draw(&mut trunk.fork(51), sizes.workers),
            faults: draw_faults(&mut trunk.fork(6), safety, planned),
            safety,
            is_unprotected: false,
        }
        .with_sums_of_tables()
        .with_wide_rows(&mut trunk.fork(7))
        .with_many_rounds(&mut trunk.fork(8))
        .with_lanes(&mut trunk.fork(10))
        .with_set_rows(&mut trunk.fork(50))
        .with_tags_of_its_switches()
        .with_forged_answers(&mut trunk.fork(12))
        .with_forged_packets(&mut trunk.fork(61))
        .with_short_flows(&mut trunk.fork(13))
        .with_faults_of_disks(&mut trunk.fork(40))
        .with_severe_faults(&mut trunk.fork(14))
        .with_long_restores(&mut trunk.fork(52))
        .with_drains(&mut trunk.fork(70))
        .with_paths_to_adapt_to(&mut trunk.fork(71))
        .with_work(&mut trunk.fork(80))
        .with_restarted_workers(&mut trunk.fork(90))
    }

    /// In some scenarios packets are as long as paths allow, and mostly the link of one worker allows less than the job.
    fn with_paths_to_adapt_to(mut self, random: &mut Random) -> Self {
        let has_switches = self.sizes.switches + self.standbys > 0;
        if !has_switches || self.hot_path.lanes > 1 || !random.chance(0.2) {
            return self;
        }
        self.hot_path.adapts_to_paths = true;
        if random.chance(0.8) {
            // An adversary would bring answers past the link.
            self.faults.retain(|(_, fault)| !matches!(fault, Fault::ForgedPackets));
            let entries = random.small(1..=u16::from(self.hot_path.entries_max));
            let bytes_max = packet_bytes(u8::try_from(entries).unwrap_or(u8::MAX)) + random.index(6);
            let worker = random.small(1..=self.sizes.workers) - 1;
            let (there, back) = *random.pick(&[(true, true), (true, false), (false, true)]);
            self.narrow_link = Some(NarrowLink { worker, bytes_max, there, back });
        }
        self
    }

    /// Switches that run the P4 program can do cookies alone, and a job has one kind of tags.
    fn with_tags_of_its_switches(mut self) -> Self {
        if self.has_async_devices && p4_sizes(&self).is_some() {
            self.hot_path.tags = self.hot_path.tags.min(TagKind::Cookie);
        }
        self
    }

    /// Sometimes a flow has so few numbers that it restarts again and again (rule T18).
    fn with_short_flows(mut self, random: &mut Random) -> Self {
        if random.chance(0.2) {
            self.hot_path.flow_packets_max = *random.pick(&[1, 7, 20, 60, 200]);
        }
        self
    }

    /// Sometimes answers are forged, again and again, and just then a switch dies: what a worker has forgotten by then is missed.
    fn with_forged_answers(mut self, random: &mut Random) -> Self {
        if self.sizes.switches > 0 && random.chance(0.25) {
            for _ in 0..random.within(1..=20) {
                let at = random.up_to(self.safety.mul_f64(0.85));
                self.faults.push((at, Fault::ForgedAnswers));
                if random.chance(0.15) {
                    let soon = at + random.up_to(Duration::from_millis(50));
                    let returns = Some(random.duration(Duration::from_millis(1)..Duration::from_secs(2)));
                    self.faults.push((soon, Fault::SwitchDies { machine: random.chance(0.5), returns }));
                }
            }
            self.faults.sort_by_key(|(at, _)| *at);
        }
        self
    }

    /// In half of the scenarios with tags an adversary sends packets that it has no keys for, and just then a switch dies.
    fn with_forged_packets(mut self, random: &mut Random) -> Self {
        let has_tags = self.hot_path.tags != TagKind::Off;
        if self.sizes.switches == 0 || !has_tags || !random.chance(0.5) {
            return self;
        }
        for _ in 0..random.within(1..=12) {
            let at = random.up_to(self.safety.mul_f64(0.85));
            self.faults.push((at, Fault::ForgedPackets));
            if random.chance(0.2) {
                let soon = at + random.up_to(Duration::from_millis(50));
                let returns = Some(random.duration(Duration::from_millis(1)..Duration::from_secs(2)));
                self.faults.push((soon, Fault::SwitchDies { machine: random.chance(0.5), returns }));
            }
            if random.chance(0.2) {
                self.faults.push((at, Fault::Impostor));
            }
        }
        // It also alters what is on its way.
        if self.hot_path.tags == TagKind::Mac && random.chance(0.3) {
            let (bits, chance) = (FlippedBits::Any, 0.2 * random.unit());
            let at = random.up_to(self.safety.mul_f64(0.5));
            self.faults.push((at, Fault::BitsFlip { bits, chance, lasts: self.safety.mul_f64(0.3) }));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }

    /// Syncs fail, and disks are slow, in some of the scenarios that have disks.
    fn with_faults_of_disks(mut self, random: &mut Random) -> Self {
        if !self.durability.needs_disk() {
            return self;
        }
        let (fail, slow) = (random.chance(0.4), random.chance(0.3));
        let ms = Duration::from_millis;
        let times = |random: &mut Random, most| {
            (0..random.within(1..=most)).map(|_| random.up_to(self.safety.mul_f64(0.9))).collect::<Vec<_>>()
        };
        for at in if fail { times(random, 6) } else { Vec::new() } {
            let files = *random.pick(&[0, 1, 1, 1, 2, 5, 40]);
            let directories = *random.pick(&[0, 0, 0, 1, 2]);
            self.faults.push((at, Fault::SyncsFail { files, directories, kept: random.chance(0.3) }));
            // What was not written shows only when the machine fails.
            if random.chance(0.4) {
                let at = (at + random.up_to(ms(300))).min(self.safety.mul_f64(0.95));
                let returns = random.duration(ms(1)..ms(500));
                self.faults.push((at, Fault::ServerDies { machine: true, returns }));
            }
        }
        // A disk that first refuses and then works slowly: the log is given up, and takes long to restart.
        if random.chance(0.06) {
            let at = random.up_to(self.safety.mul_f64(0.3));
            self.faults.push((at, Fault::SyncsFail { files: 25, directories: 0, kept: false }));
            let by = random.duration(ms(100)..ms(600));
            self.faults.push((at + ms(1000), Fault::DiskSlow { lasts: ms(6000), by }));
        }
        for at in if slow { times(random, 3) } else { Vec::new() } {
            let lasts = random.duration(ms(200)..ms(6000));
            let by = random.duration(ms(100)..ms(3000));
            self.faults.push((at, Fault::DiskSlow { lasts, by }));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }

    /// In some scenarios servers take long to read their disks, and now and then longer than a member may be away.
    fn with_long_restores(mut self, random: &mut Random) -> Self {
        if !self.durability.log || self.safety > Duration::from_secs(10) || !random.chance(0.25) {
            return self;
        }
        self.restore_time_max = random.duration(Duration::from_millis(500)..Duration::from_secs(5));
        if random.chance(0.15) {
            let (died, returns) = (random.up_to(self.safety), random.up_to(Duration::from_secs(20)));
            self.faults.push((died, Fault::ServerDies { machine: random.chance(0.5), returns }));
            self.faults.sort_by_key(|(at, _)| *at);
            self.restore_time_max = Duration::from_secs(100);
            let safety = Duration::from_secs(130);
            self.workload.pause =
                self.workload.pause.mul_f64(safety.as_secs_f64() / self.safety.as_secs_f64());
            self.safety = safety;
        }
        self
    }

    /// Sums of tables are not exact: they give no lower bound of what is visible.
    fn with_sums_of_tables(mut self) -> Self {
        self.workload.positive &= self.hot_path.arithmetic != ArithmeticMode::Table;
        self
    }

    /// Now and then more rounds pass than their numbers in packets can distinguish.
    fn with_many_rounds(mut self, random: &mut Random) -> Self {
        if self.sizes.switches > 0 && random.chance(0.004) {
            for (at, _) in &mut self.faults {
                *at *= 2;
            }
            self.safety = Duration::from_secs(20);
            self.has_async_devices = false;
            (self.sizes.servers, self.shards_per_server) = (1, 1);
            self.sizes.workers = 2;
            self.rows = Rows { embedding: (8, 1), hot: 8, headroom_bits: 12, ..self.rows };
            self.hot_path.pushes_per_round = 1;
            self.hot_path.packets_in_flight_max = 64;
            self.quality = Quality { delay: Duration::from_micros(20), rate: 0, ..Quality::GOOD };
            self.workload = Workload {
                mix: [20, 1, 1, 1, 0],
                rows_max: 1,
                hot_share: 1.0,
                large: 0.0,
                under_way: 3,
                pause: Duration::from_micros(500),
                barrier_every: 0,
                tick_every: 0,
                ..self.workload
            };
        }
        self
    }

    /// Now and then so many values are hot that a shard needs more than one region.
    fn with_wide_rows(mut self, random: &mut Random) -> Self {
        if random.chance(0.03) {
            self.rows = Rows { embedding: (280, 240), hot: 280, ..self.rows };
            self.hot_path.entries_max = 240;
            self.workload.rows_max = 5;
            // What clocks stand for would be summed up over too many values.
            self.workload.tick_every = 0;
            self.workload.pause = self.workload.pause.max(Duration::from_millis(20));
        }
        self
    }

    /// In some scenarios there is a table whose rows workers set, reset and scan, in pages of a few rows.
    fn with_set_rows(mut self, random: &mut Random) -> Self {
        if self.rows.embedding.0 > 60 || self.safety > Duration::from_secs(10) || !random.chance(0.3) {
            return self;
        }
        let rows = random.within(1..=12);
        // Sums of tables do not tell how many ones they are of.
        let has_hot = self.hot_path.arithmetic != ArithmeticMode::Table;
        let hot = if has_hot { random.within(0..=rows) } else { 0 };
        self.rows.set = Some(SetTable { rows, width: self.rows.embedding.1, hot });
        self.workload.set = Some(SetWorkload {
            share: *random.pick(&[0.1, 0.3, 0.6]),
            at_barriers: self.workload.barrier_every > 0 && random.chance(0.4),
            shards: self.shards(),
        });
        self.page_bytes_max = *random.pick(&[1, 100, 300, usize::MAX]);
        self
    }

    /// Often packets have an entry for each lane, in which a row must have room; now and then regions are so small that there are many.
    fn with_lanes(mut self, random: &mut Random) -> Self {
        let lanes = *random.pick(&[1, 1, 2, 16]);
        let is_small = random.chance(0.2);
        let (rows, width) = self.rows.embedding;
        if width <= usize::from(lanes) {
            self.hot_path = self.hot_path.with_lanes(lanes);
        }
        if rows <= 60 && is_small {
            self.hot_path.cells_max = 1 + 32 / u16::from(self.hot_path.lanes);
        }
        self
    }

    /// In some scenarios there are faults of connections and clocks, too, and now and then ones that last longer than the timeouts of members.
    fn with_severe_faults(mut self, random: &mut Random) -> Self {
        if self.safety > Duration::from_secs(10) || !random.chance(0.3) {
            return self;
        }
        let lasts_long = random.chance(0.2);
        let faults = self.safety;
        if lasts_long {
            let safety = Duration::from_secs(50);
            self.workload.pause = self.workload.pause.mul_f64(safety.as_secs_f64() / faults.as_secs_f64());
            self.safety = safety;
        }
        let kinds: Vec<u8> = (0..SEVERE_KINDS).filter(|_| random.chance(0.4)).collect();
        for _ in 0..if kinds.is_empty() { 0 } else { random.within(1..=4) } {
            let kind = *random.pick(&kinds);
            let fault = draw_severe_fault(random, kind, lasts_long);
            self.faults.push((random.up_to(faults.mul_f64(0.9)), fault));
        }
        if random.chance(0.05) {
            self.is_unprotected = self.hot_path.tags != TagKind::Mac;
            let chance = 0.2 * random.unit();
            let bits = FlippedBits::Any;
            self.faults.push((Duration::ZERO, Fault::BitsFlip { bits, chance, lasts: faults }));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self
    }

    /// Shards of all servers.
    pub(crate) fn shards(&self) -> u16 {
        self.sizes.servers * self.shards_per_server
    }

    /// Its controller, with the tables or without.
    pub(crate) fn controller(&self) -> Controller {
        match self.proposals {
            None => Controller::new(self.sizes, self.cluster()),
            Some(_) => {
                let cluster = Cluster { tables: Vec::new(), plan: None, ..self.cluster() };
                Controller::new(self.sizes, cluster).with_tables_of_workers()
            }
        }
    }

    /// The template of its cluster.
    pub fn cluster(&self) -> Cluster {
        let plan = self.planned.then(|| self.rows.plan());
        let mut cluster = Cluster::new(JOB, self.rows.tables(), plan, self.hot_path.clone());
        if self.hot_path.tags != TagKind::Off {
            cluster.secret = Some(Secret::new(draw_secret(&mut Random::new(self.seed).fork(62))));
        }
        cluster.seed = self.seed;
        cluster.durability = self.durability.clone();
        (cluster.work, cluster.shares) = (self.work.clone(), self.places);
        cluster
    }
}

/// A probability: often none, else of any magnitude up to `most`.
fn draw_chance(random: &mut Random, most: f64) -> f64 {
    if random.chance(0.5) { 0.0 } else { most * random.unit() * random.unit() }
}

fn draw_secret(random: &mut Random) -> [u8; 32] {
    let mut secret = [0; 32];
    secret.as_chunks_mut().0.iter_mut().for_each(|bytes| *bytes = random.bits().to_le_bytes());
    secret
}

/// The kind of tags of packets. Without them the network alone is trusted, as on one machine.
fn draw_tags(random: &mut Random) -> TagKind {
    match random.unit() {
        unit if unit < 0.3 => TagKind::Off,
        unit if unit < 0.44 => TagKind::Cookie,
        _ => TagKind::Mac,
    }
}

fn draw_shards(random: &mut Random) -> u16 {
    if random.chance(0.3) { random.small(2..=3) } else { 1 }
}

fn draw_quality(random: &mut Random) -> Quality {
    let delay = random.duration(Duration::from_micros(20)..Duration::from_millis(10));
    let bursts = random.chance(0.2).then(|| Bursts {
        begin: 0.001 + 0.01 * random.unit(),
        end: 0.02 + 0.3 * random.unit(),
        loss: 0.5 + 0.5 * random.unit(),
    });
    Quality {
        rate: *random.pick(&[12_500_000, 125_000_000, 1_250_000_000]),
        delay,
        jitter: if random.chance(0.5) { Duration::ZERO } else { delay.mul_f64(random.unit()) },
        queue_bytes: *random.pick(&[20_000, 200_000, 1 << 20]),
        loss: draw_chance(random, 0.25),
        bursts,
        duplicate: draw_chance(random, 0.3),
        reorder: draw_chance(random, 0.4),
        // Up to copies that come when everybody has forgotten the first one.
        reorder_delay: random.duration(Duration::from_micros(100)..Duration::from_secs(2)),
        corrupt: draw_chance(random, 0.1),
        misdeliver: draw_chance(random, 0.05),
        tick: *random.pick(&[Duration::ZERO, Duration::from_micros(10), Duration::from_micros(100)]),
    }
}

fn draw_rows(random: &mut Random) -> Rows {
    let width = usize::from(*random.pick(&[1u8, 2, 3, 8]));
    let rows = random.within(8..=60);
    Rows {
        embedding: (rows, width),
        dense: (random.within(1..=3), usize::from(*random.pick(&[1u8, 10, 40]))),
        hot: random.within(1..=rows),
        scale: *random.pick(&[0, 0, 2]),
        headroom_bits: *random.pick(&[2, 4, 12, 12, 20]),
        set: None,
    }
}

fn draw_hot_path(random: &mut Random, workers: u16) -> HotPath {
    let arithmetic = match random.unit() {
        ..0.15 => ArithmeticMode::F32,
        ..0.25 => ArithmeticMode::Table,
        _ => ArithmeticMode::Fixed,
    };
    HotPath {
        arithmetic,
        pushes_per_round: *random.pick(&[1, 2, u32::from(workers), 4, 6]),
        round_time_max: random.duration(Duration::from_millis(1)..Duration::from_millis(40)),
        entries_max: *random.pick(&[8, 9, 20, 60, 240]),
        packets_in_flight_max: *random.pick(&[1, 2, 4, 16, 64, 512]),
        ..HotPath::for_workers(workers)
    }
}

fn draw_durability(random: &mut Random) -> Durability {
    if random.chance(0.4) {
        return Durability::NONE;
    }
    let every = random.duration(Duration::from_millis(50)..Duration::from_secs(4));
    Durability {
        log: random.chance(0.85),
        checkpoint_every: Some(every),
        // Not drawn: the seeds at which faults are found stay.
        checkpoint_at: if every.subsec_nanos().is_multiple_of(2) {
            CheckpointAt::Steps
        } else {
            CheckpointAt::Chunks
        },
        log_bytes_max: *random.pick(&[10_000, 1 << 30]),
        keep: random.small(1..=3),
        increments: *random.pick(&[0, 0, 1, 4]),
        checkpoint_bytes_per_second: *random.pick(&[10_000, 1 << 30]),
        load: None,
        upload: None,
    }
}

fn draw_workload(random: &mut Random, safety: Duration, workers: u16) -> Workload {
    // So many operations of one user, whatever else happens: the time that a scenario takes depends on it.
    let operations = *random.pick(&[100, 400, 1000, 6000]) / u64::from(workers);
    let operations = u32::try_from(operations).unwrap_or(u32::MAX);
    let pause = (safety / operations).mul_f64(2.0 * (0.3 + random.unit()));
    let weight = |random: &mut Random, most| if random.chance(0.3) { 0 } else { random.within(1..=most) };
    Workload {
        mix: [
            random.within(1..=20),
            weight(random, 10),
            weight(random, 10),
            weight(random, 10),
            weight(random, 3),
        ],
        rows_max: *random.pick(&[1, 5, 20]),
        hot_share: *random.pick(&[0.3, 0.8, 1.0]),
        positive: random.chance(0.6),
        gradient_max: *random.pick(&[1, 100]),
        large: if random.chance(0.3) { 0.01 } else { 0.0 },
        under_way: usize::from(random.small(1..=6)),
        pause,
        barrier_every: if random.chance(0.3) { u32::from(random.small(3..=30)) } else { 0 },
        tick_every: if random.chance(0.35) { u32::from(random.small(1..=8)) } else { 0 },
        in_chunks: false,
        staleness: *random.pick(&[0, 1, 3]),
        set: None,
    }
}

#[cfg(test)]
mod tests {
    use super::fault::KINDS;
    use super::*;

    #[test]
    fn a_seed_is_a_scenario_and_every_kind_of_fault_occurs() {
        assert_eq!(Scenario::draw(5), Scenario::draw(5));
        let (mut kinds, mut lanes) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        let mut narrow_links = 0;
        for seed in 0..500 {
            let scenario = Scenario::draw(seed);
            assert!(scenario.faults.iter().all(|(at, _)| *at < scenario.safety));
            assert!(scenario.rows.hot <= scenario.rows.embedding.0);
            assert!(scenario.rows.embedding.1 <= scenario.hot_path.entries_max.into());
            lanes.insert(scenario.hot_path.lanes);
            narrow_links += u32::from(scenario.narrow_link.is_some());
            kinds.extend(
                scenario
                    .faults
                    .iter()
                    .map(|(_, fault)| core::mem::discriminant(fault))
                    .map(|kind| format!("{kind:?}")),
            );
        }
        // And those that are drawn apart from the others: forged answers and packets, impostors, two of disks, and three of drains.
        assert_eq!(kinds.len(), usize::from(KINDS + SEVERE_KINDS) + 8);
        assert_eq!(lanes, [1, 2, 16].into());
        assert!(narrow_links > 20, "{narrow_links}");
    }
}
