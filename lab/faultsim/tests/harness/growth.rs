//! Rows that come late and rows that go, while workers push to them and do not wait, on a network that loses, doubles and
//! reorders, with streams that break.
//!
//! Each push to a row is a power of two of its own, so that a row shows which pushes are in it. The server's order of them is
//! what was seen to arrive there.

use core::time::Duration;
use std::collections::BTreeMap;

use libra_faultsim::{ClusterHarness, Event, HarnessConfig, Quality, Random, Rows};
use libra_plan::Placement;
use libra_proto::{
    Durability, Instant, Level, Message, Outcome, PullId, Sizes, Statistics, WorkerCommand, WorkerEvent,
};
use libra_store::{Admission, Eviction, RowLifecycle};

/// Values of a row, and pushes that each of them can distinguish: their sums stay exact, as f32 and as sums of a switch.
const LANES: usize = 8;
const PUSHES_OF_LANE: usize = 16;
const KEYS: u64 = 12;
const HOT: u64 = 5;
const EVICTIONS: [Eviction; 3] = [
    Eviction::Idle { steps: 6 },
    Eviction::LeastUsed { rows_max: 5, half_life: 40 },
    Eviction::LowestNorm { rows_max: 5 },
];

/// Set of pushes in a row: a bit for each.
type Pushes = u128;

fn config(seed: u64, growth: RowLifecycle, durability: Durability) -> HarnessConfig {
    let rows =
        Rows { embedding: (KEYS, LANES), dense: (1, 1), hot: HOT, scale: 0, headroom_bits: 8, set: None };
    let sizes = Sizes { servers: 1, switches: 1, workers: 3 };
    let mut config =
        HarnessConfig { seed, durability, quality: Quality::BAD, ..HarnessConfig::of(rows, sizes) };
    config.hot_path.round_time_max = Duration::from_millis(2);
    config.tables[0].rule.growth = growth;
    config
}

fn evicting(eviction: Eviction) -> RowLifecycle {
    RowLifecycle { eviction: Some(eviction), ..RowLifecycle::default() }
}

fn gradient_of(push: usize) -> [f32; LANES] {
    let mut gradient = [0.0; LANES];
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    {
        gradient[push / PUSHES_OF_LANE] = (1_u32 << (push % PUSHES_OF_LANE)) as f32;
    }
    gradient
}

/// The pushes whose sum this is.
fn pushes_in(sum: impl IntoIterator<Item = f32>) -> Pushes {
    let mut pushes = 0;
    for (lane, value) in sum.into_iter().enumerate() {
        assert!((0.0..65536.0).contains(&value) && value.fract() == 0.0, "{value} is no sum of pushes");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was looked at")]
        let bits = value as u32;
        pushes |= Pushes::from(bits) << (PUSHES_OF_LANE * lane);
    }
    pushes
}

/// A row as it was read.
#[derive(Debug, Clone, Copy)]
struct Read {
    key: u64,
    asked: Instant,
    answered: Instant,
    pushes: Pushes,
}

/// Additions of the shard to a row: a push, or those of a round, at once.
type Applied = BTreeMap<u64, Vec<(Instant, Pushes)>>;

/// Returns the additions of the server to each row, in its order, as far as that follows from what came to it.
fn applied(cluster: &ClusterHarness) -> Applied {
    let placement = Placement::new(&cluster.config.rows.plan(), 1, cluster.config.hot_path.region_slots())
        .expect("it is a small plan");
    let server = cluster.servers().start;
    let (mut pushed, mut committed) = (BTreeMap::new(), BTreeMap::new());
    let mut applied = Applied::new();
    let arrived = cluster.world.observer.recorder.arrived.iter();
    for arrived in arrived.filter(|arrived| arrived.to == Some(server)) {
        let mut add = |key, pushes| applied.entry(key).or_default().push((arrived.at, pushes));
        match &arrived.message {
            Message::Push(push) => {
                let last = pushed.entry(arrived.from).or_insert(0);
                if push.number > *last {
                    *last = push.number;
                    let gradients = push.gradients.clone().into_vec();
                    for (key, gradient) in push.keys.to_vec().into_iter().zip(gradients.chunks(LANES)) {
                        add(key, pushes_in(gradient.iter().copied()));
                    }
                }
            }
            // As long as the region stays where it is, each round is applied once, and in order (rules E4, E5).
            Message::Drained(drained) if drained.round > *committed.entry(drained.region).or_insert(0) => {
                committed.insert(drained.region, drained.round);
                let slots = drained.slots.iter().flat_map(|(first, count)| *first..first + count);
                let sums: BTreeMap<u16, u32> = slots.zip(drained.sums.0.iter().copied()).collect();
                for row in &placement.region(drained.region).expect("the switch holds it").rows {
                    let lanes = (row.slot..).take(LANES).map(|slot| sums.get(&slot).copied().unwrap_or(0));
                    #[expect(clippy::cast_precision_loss, reason = "it is below 2^16")]
                    let pushes = pushes_in(lanes.map(|sum| sum as f32));
                    if pushes != 0 {
                        add(row.key, pushes);
                    }
                }
            }
            Message::Replay(_) => panic!("a switch was given up, which this test does not want"),
            _ => {}
        }
    }
    applied
}

/// Workers that push and pull and wait for nothing.
struct GrowthHarness {
    cluster: ClusterHarness,
    random: Random,
    /// Number of pushes of each row that were made.
    made: BTreeMap<u64, usize>,
    asked: BTreeMap<u64, Instant>,
    reads: Vec<Read>,
}

impl GrowthHarness {
    fn new(config: HarnessConfig) -> Self {
        let random = Random::new(config.seed).fork(77);
        let cluster = ClusterHarness::started(config);
        Self { cluster, random, made: BTreeMap::new(), asked: BTreeMap::new(), reads: Vec::new() }
    }

    fn turn(&mut self) {
        let server = self.cluster.servers().start;
        for worker in self.cluster.workers() {
            let first = self.random.below(KEYS);
            let keys: Vec<u64> =
                (0..self.random.within(1..=3)).map(|step| (first + step * step) % KEYS).collect();
            let mut gradients = Vec::new();
            for key in &keys {
                let made = self.made.entry(*key).or_insert(0);
                gradients.extend(gradient_of(*made));
                *made += 1;
            }
            self.cluster.push(worker, &keys, &gradients, Level::Accepted);
            if self.random.chance(0.4) {
                let id = self.cluster.number();
                let keys = vec![self.random.below(HOT), self.random.within(HOT..=KEYS - 1)];
                self.asked.insert(id, self.cluster.world.now());
                self.cluster.command(worker, WorkerCommand::Pull { id: PullId(id), keys });
            }
            match self.random.below(20) {
                0 => self.cluster.world.reset_streams(worker, server),
                1 => self.cluster.world.reset_streams(self.cluster.switches().start, server),
                _ => {}
            }
            let pause = self.random.up_to(Duration::from_micros(700));
            self.pass(pause);
        }
    }

    /// Lets time pass, and takes the answers.
    fn pass(&mut self, time: Duration) {
        let end = self.cluster.world.now() + time;
        while self.cluster.world.now() < end {
            self.cluster.step();
            self.take_events();
        }
    }

    fn take_events(&mut self) {
        let answered = self.cluster.world.now();
        for worker in self.cluster.workers() {
            while let Some(event) = self.cluster.next_event(worker) {
                if let Event::Worker(WorkerEvent::Pulled(PullId(id), pulled)) = event {
                    let asked = self.asked.remove(&id).expect("what is answered was asked");
                    for (key, row) in pulled.keys.iter().zip(pulled.values.chunks(LANES)) {
                        let pushes = pushes_in(row.iter().map(|value| -value));
                        self.reads.push(Read { key: *key, asked, answered, pushes });
                    }
                }
            }
        }
    }

    /// Everything that was begun comes to its end. Returns the rows, as they stay until the next push.
    fn settle(&mut self) -> Vec<Vec<f32>> {
        while !self.asked.is_empty() {
            self.pass(Duration::from_millis(1));
        }
        self.cluster.flush_all();
        // An owner is notified of an evicted row, but no role waits for it.
        self.cluster.run_for(Duration::from_millis(300));
        self.rows()
    }

    fn rows(&mut self) -> Vec<Vec<f32>> {
        let keys: Vec<u64> = (0..KEYS).collect();
        let read: Vec<_> = self.cluster.workers().map(|worker| self.cluster.pull(worker, &keys)).collect();
        assert!(read.iter().all(|values| *values == read[0]), "all workers read the same");
        read[0].chunks(LANES).map(<[f32]>::to_vec).collect()
    }

    /// The server is killed, or its machine fails, and it goes on from its disk.
    fn restart_server(&mut self) {
        let server = self.cluster.servers().start;
        if self.random.chance(0.5) {
            self.cluster.world.crash(server);
        } else {
            self.cluster.world.fail_machine(server);
        }
        let pause = self.random.up_to(Duration::from_millis(20));
        self.cluster.run_for(pause);
        self.cluster.start_server(server);
    }

    /// Without a switch all rows are read at the shard.
    fn rows_of_the_shard(&mut self) -> Vec<Vec<f32>> {
        let switch = self.cluster.switches().start;
        self.cluster.world.crash(switch);
        self.cluster.run_for(Duration::from_secs(3));
        self.rows()
    }

    fn end(mut self) -> Outcome {
        self.cluster.finish()
    }
}

fn evicted_and_dropped(outcome: &Outcome) -> (u64, u64) {
    let of_server = |statistics: &Statistics| match statistics {
        Statistics::Server(server) => Some((server.rows_evicted, server.gradients_not_admitted)),
        _ => None,
    };
    outcome.statistics.iter().find_map(|(_, statistics)| of_server(statistics)).expect("there is a server")
}

/// Returns the index in the additions at which these pushes begin, if they are all from there to one of `ends`.
fn begin_of(
    applied: &[(Instant, Pushes)],
    ends: core::ops::RangeInclusive<usize>,
    pushes: Pushes,
) -> Option<usize> {
    ends.rev().find_map(|end| {
        let mut sum = 0;
        (0..=end).rev().find(|begin| {
            sum |= if *begin < end { applied[*begin].1 } else { 0 };
            sum == pushes
        })
    })
}

/// Every read was, at a time between question and answer, what the shard had applied since the row last went. At a switch it may be
/// older. What went does not come back.
fn check_reads(applied: &Applied, reads: &[Read]) -> Result<(), String> {
    let mut begins: Vec<(Read, usize)> = Vec::new();
    for read in reads {
        let of_row = applied.get(&read.key).map_or(&[][..], Vec::as_slice);
        let until = |time| of_row.partition_point(|(at, _)| *at <= time);
        let first = if read.key < HOT { 0 } else { of_row.partition_point(|(at, _)| *at < read.asked) };
        let begin = begin_of(of_row, first..=until(read.answered), read.pushes)
            .ok_or_else(|| format!("{read:x?} is no end of {of_row:x?}"))?;
        if read.pushes != 0 {
            let before =
                begins.iter().filter(|(other, _)| other.key == read.key && other.answered < read.asked);
            if let Some((other, begin)) =
                before.max_by_key(|(_, begin)| *begin).filter(|(_, other)| *other > begin)
            {
                return Err(format!(
                    "{read:x?} has what had gone before {other:x?}, which begins at {begin}"
                ));
            }
            begins.push((*read, begin));
        }
    }
    Ok(())
}

/// Checks that each row is at last an end of what was applied. Returns how many rows have lost something.
fn check_rows(applied: &Applied, rows: &[Vec<f32>]) -> usize {
    let mut went = 0;
    for (key, row) in (0..).zip(rows) {
        let of_row = applied.get(&key).map_or(&[][..], Vec::as_slice);
        let pushes = pushes_in(row.iter().map(|value| -value));
        let begin = begin_of(of_row, of_row.len()..=of_row.len(), pushes);
        let begin =
            begin.unwrap_or_else(|| panic!("row {key} is {pushes:x}, which is no end of {of_row:x?}"));
        went += usize::from(begin > 0);
    }
    went
}

// rules G2, E6, C1
#[test]
fn a_row_is_the_pushes_since_it_last_went() {
    for seed in 0..60 {
        let eviction = EVICTIONS[usize::try_from(seed % 3).unwrap()];
        let mut harness = GrowthHarness::new(config(seed, evicting(eviction), Durability::NONE));
        for _ in 0..30 {
            harness.turn();
        }
        let rows = harness.settle();
        let applied = applied(&harness.cluster);
        let total: u32 = applied.values().flatten().map(|(_, pushes)| pushes.count_ones()).sum();
        assert_eq!(
            total as usize,
            harness.made.values().sum::<usize>(),
            "seed {seed}: each push is applied once"
        );
        check_reads(&applied, &harness.reads)
            .unwrap_or_else(|text| panic!("seed {seed}, {eviction:?}: {text}"));
        assert!(check_rows(&applied, &rows) > 2, "seed {seed}, {eviction:?}");
        assert_eq!(
            harness.rows_of_the_shard(),
            rows,
            "seed {seed}, {eviction:?}: the switch had what the shard has"
        );
        let (evicted, _) = evicted_and_dropped(&harness.end());
        assert!(evicted > 10, "seed {seed}, {eviction:?}: {evicted} rows went");
    }
}

// rules G2, L1, L3
#[test]
fn a_server_that_was_killed_has_the_rows_that_it_had() {
    let durability = Durability {
        log: true,
        checkpoint_every: Some(Duration::from_millis(30)),
        increments: 2,
        ..Durability::NONE
    };
    for seed in 0..30 {
        let eviction = EVICTIONS[usize::try_from(seed % 3).unwrap()];
        // In some, rows are also made late.
        let admission = (seed % 2 == 1).then_some(Admission::Occurrences { updates: 2, keys: 1000 });
        let growth = RowLifecycle { admission, eviction: Some(eviction) };
        let mut harness = GrowthHarness::new(config(seed, growth, durability.clone()));
        for _ in 0..4 {
            for _ in 0..8 {
                harness.turn();
            }
            let rows = harness.settle();
            assert!(check_rows(&applied(&harness.cluster), &rows) > 0, "seed {seed}, {growth:?}");
            harness.restart_server();
            assert_eq!(harness.rows(), rows, "seed {seed}, {growth:?}");
        }
        check_reads(&applied(&harness.cluster), &harness.reads)
            .unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        let rows = harness.rows();
        assert_eq!(harness.rows_of_the_shard(), rows, "seed {seed}, {growth:?}");
        assert!(evicted_and_dropped(&harness.end()).0 > 10, "seed {seed}, {growth:?}");
    }
}

// rules G2, L1, L3
#[test]
fn a_server_that_was_killed_amid_pushes_lets_nothing_come_back() {
    let durability = Durability { log: true, ..Durability::NONE };
    for seed in 0..15 {
        let eviction = EVICTIONS[usize::try_from(seed % 3).unwrap()];
        let mut harness = GrowthHarness::new(config(seed, evicting(eviction), durability.clone()));
        for _ in 0..4 {
            for _ in 0..3 {
                harness.turn();
            }
            harness.restart_server();
            for _ in 0..3 {
                harness.turn();
            }
        }
        let rows = harness.settle();
        harness.restart_server();
        assert_eq!(harness.rows(), rows, "seed {seed}, {eviction:?}");
        assert_eq!(harness.rows_of_the_shard(), rows, "seed {seed}, {eviction:?}");
    }
}

// rules G1, C1, D2, E6
#[test]
fn a_push_that_is_sent_again_is_one_occurrence() {
    const UPDATES: u8 = 4;
    let admission = Some(Admission::Occurrences { updates: UPDATES, keys: 1000 });
    let before = usize::from(UPDATES) - 1;
    let mut sent_again = 0;
    for seed in 0..40 {
        let growth = RowLifecycle { admission, eviction: None };
        let mut harness = GrowthHarness::new(config(seed, growth, Durability::NONE));
        for _ in 0..8 {
            harness.turn();
        }
        let rows = harness.settle();
        let applied = applied(&harness.cluster);
        check_reads(&applied, &harness.reads).unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        let mut dropped = 0;
        for (key, row) in (0..).zip(&rows) {
            let of_row = applied.get(&key).map_or(&[][..], Vec::as_slice);
            let expected = of_row.iter().skip(before).fold(0, |sum, (_, pushes)| sum | pushes);
            let read = pushes_in(row.iter().map(|value| -value));
            assert_eq!(read, expected, "seed {seed}, row {key} of {of_row:x?}");
            dropped += of_row.len().min(before) as u64;
        }
        let outcome = harness.end();
        assert_eq!(evicted_and_dropped(&outcome).1, dropped, "seed {seed}");
        sent_again += outcome.statistics.iter().fold(0, |sum, (_, statistics)| match statistics {
            Statistics::Server(server) => sum + server.duplicates,
            Statistics::Switch(switch) => sum + switch.duplicates,
            Statistics::Worker(_) => sum,
        });
    }
    assert!(sent_again > 100, "{sent_again}");
}
