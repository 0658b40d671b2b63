//! A small model, pushes of known gradients to it, and the checks of what came of them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use libra_dataplane::{Flags, Header, Kind, Packet};
use libra_plan::{Budget, HotRow, Placement, Plan, Provenance, Scale, TableShape};
use libra_proto::{ArithmeticMode, HotPath, Level, Message, Sizes};
use libra_store::{Init, Optimizer, TableSpec};

use crate::link::{Network, Random};
use crate::world::{Setup, World};

/// Rows of three values, of which the first are hot.
pub(crate) const EMBEDDING: core::ops::Range<u64> = 0..60;
pub(crate) const HOT_ROWS: u64 = 25;
pub(crate) const EMBEDDING_WIDTH: usize = 3;
/// Rows of forty values, never hot.
pub(crate) const DENSE: core::ops::Range<u64> = 1000..1003;
pub(crate) const DENSE_WIDTH: usize = 40;

pub(crate) fn width(key: u64) -> usize {
    if DENSE.contains(&key) { DENSE_WIDTH } else { EMBEDDING_WIDTH }
}

pub(crate) fn all_keys() -> Vec<u64> {
    EMBEDDING.chain(DENSE).collect()
}

/// Gradient descent at rate 1 from zero: a row is minus the sum of its gradients.
pub(crate) fn table(name: &str, keys: core::ops::Range<u64>, width: usize) -> TableSpec {
    TableSpec { name: name.into(), keys, width, optimizer: Optimizer::Sgd { rate: 1.0 }, init: Init::Zero }
}

pub(crate) fn plan(tables: &[TableSpec], hot: impl IntoIterator<Item = u64>, scale: i8) -> Plan {
    let shape = |table: &TableSpec| TableShape {
        name: table.name.clone(),
        keys: table.keys.clone(),
        width: u32::try_from(table.width).unwrap(),
        hot: table.name == "embedding",
    };
    let rows = hot.into_iter().map(|key| HotRow { key, count: 1000 - key, scale: Scale(scale) });
    Plan {
        number: 4,
        provenance: Provenance::default(),
        tables: tables.iter().map(shape).collect(),
        budget: Budget::default(),
        headroom_bits: 12,
        predicted_share: 0.5,
        rows: rows.collect(),
    }
}

/// The small model, on a good network.
pub(crate) fn setup(servers: u16, switches: u16, workers: u16) -> Setup {
    let tables = vec![table("embedding", EMBEDDING, EMBEDDING_WIDTH), table("dense", DENSE, DENSE_WIDTH)];
    let plan = (switches > 0).then(|| plan(&tables, 0..HOT_ROWS, 0));
    let hot_path =
        HotPath { entries_max: 9, epoch_time_max: Duration::from_millis(3), ..HotPath::for_workers(workers) };
    let sizes = Sizes { servers, switches, workers };
    Setup { sizes, tables, plan, hot_path, network: Network::GOOD, seed: 1 }
}

/// What every row must be in the end: minus the sum of its gradients.
#[derive(Debug, Default)]
pub(crate) struct Model {
    sums: BTreeMap<u64, Vec<f64>>,
}

impl Model {
    pub(crate) fn add(&mut self, keys: &[u64], gradients: &[f32]) {
        let mut rest = gradients;
        for &key in keys {
            let (gradient, later) = rest.split_at(width(key));
            rest = later;
            let sum = self.sums.entry(key).or_insert_with(|| vec![0.0; width(key)]);
            for (sum, value) in sum.iter_mut().zip(gradient) {
                *sum += f64::from(*value);
            }
        }
        assert!(rest.is_empty());
    }

    /// The values of rows, to the bit as long as the sums are integers that an f32 can hold.
    #[expect(clippy::cast_possible_truncation, reason = "the tests choose gradients whose sums an f32 holds")]
    pub(crate) fn values(&self, keys: &[u64]) -> Vec<f32> {
        let row = |&key: &u64| self.sums.get(&key).cloned().unwrap_or_else(|| vec![0.0; width(key)]);
        keys.iter().flat_map(row).map(|sum| 0.0 - sum as f32).collect()
    }
}

/// Some rows, some of them twice, with small whole gradients.
pub(crate) fn draw_push(
    random: &mut Random,
    gradient: &mut impl FnMut(&mut Random) -> f32,
) -> (Vec<u64>, Vec<f32>) {
    let all = all_keys();
    let count = 1 + random.below(20);
    let keys: Vec<u64> = (0..count)
        .map(|_| {
            // Hot rows are those that occur often.
            let end = if random.below(4) == 0 { all.len() as u64 } else { HOT_ROWS };
            all[usize::try_from(random.below(end)).unwrap()]
        })
        .collect();
    let values = keys.iter().map(|&key| width(key)).sum();
    let gradients = (0..values).map(|_| gradient(random)).collect();
    (keys, gradients)
}

pub(crate) fn whole(random: &mut Random) -> f32 {
    f32::from(i16::try_from(random.below(201)).unwrap() - 100)
}

/// Every worker makes `rounds` pushes at its own pace. Returns what must come of it.
pub(crate) fn run(world: &mut World, rounds: usize, mut gradient: impl FnMut(&mut Random) -> f32) -> Model {
    let mut random = Random::new(world.setup.seed ^ 0x0070_7573_6865_7321);
    let mut model = Model::default();
    for _ in 0..rounds {
        for worker in world.workers() {
            let (keys, gradients) = draw_push(&mut random, &mut gradient);
            model.add(&keys, &gradients);
            world.push(worker, &keys, &gradients, Level::Accepted);
            world.run_for(Duration::from_micros(random.below(400)));
        }
    }
    world.flush_all();
    model
}

/// Whether every worker reads what the model says, to the bit.
pub(crate) fn check_values(world: &mut World, model: &Model) -> Result<(), String> {
    let keys = all_keys();
    let expected: Vec<u32> = model.values(&keys).iter().map(|value| value.to_bits()).collect();
    for worker in world.workers() {
        let read: Vec<u32> = world.pull(worker, &keys).iter().map(|value| value.to_bits()).collect();
        let differing = read.iter().zip(&expected).filter(|(read, expected)| read != expected).count();
        if differing > 0 {
            return Err(format!("worker at {worker}: {differing} of {} values differ", expected.len()));
        }
    }
    Ok(())
}

/// What the epochs of a run held, read off the wire.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    pub(crate) epochs: u64,
    /// How many rows each epoch changed, summed over all epochs.
    pub(crate) rows_touched: u64,
}

/// Checks each epoch that a switch sent to a shard: its cut must name exactly the packets that were acknowledged up to it,
/// and its sums must be those of the packets acknowledged in it.
pub(crate) fn check_epochs(world: &World) -> Result<Epochs, String> {
    let mut added: BTreeMap<(u16, u8, u32), Vec<(u16, u32)>> = BTreeMap::new();
    let mut taken: BTreeMap<(u16, u8, u32), u64> = BTreeMap::new();
    for sent in &world.datagrams {
        let packet = Packet::parse(&sent.bytes).map_err(|malformed| malformed.to_string())?;
        let Header { worker, region, seq, kind, epoch, .. } = packet.header;
        if kind == Kind::Push {
            let entries: Vec<_> = packet.entries().map(|entry| (entry.cell, entry.value)).collect();
            let before = added.insert((worker, region, seq), entries.clone());
            let again = packet.header.flags.contains(Flags::RETRANSMIT);
            if again != before.is_some() || before.is_some_and(|before| before != entries) {
                return Err(format!(
                    "worker {worker}, region {region}: {seq} names two packets, or is not marked"
                ));
            }
        }
        // The first acknowledgement tells the epoch exactly; that of a duplicate may tell a later one.
        for seq in packet.acknowledged().flat_map(|range| range.iter()) {
            taken.entry((worker, region, seq)).or_insert_with(|| u64::from(epoch));
        }
    }
    let placement =
        Placement::new(world.setup.plan.as_ref().expect("there are switches"), world.setup.sizes.servers);
    let placement = placement.map_err(|error| error.to_string())?;
    let mut seen = Epochs::default();
    for sent in &world.messages {
        let Message::Drained(drained) = &sent.message else { continue };
        let region = drained.region;
        for (worker, flow) in (0u16..).zip(&drained.cut.flows) {
            let above = flow.above.iter().flat_map(|&(first, count)| first..first + count);
            let cut: BTreeSet<u32> = (0..flow.below).chain(above).collect();
            let flow = taken.range((worker, region, 0)..=(worker, region, u32::MAX));
            let up_to_it: BTreeSet<u32> =
                flow.filter(|(_, epoch)| **epoch <= drained.epoch).map(|(key, _)| key.2).collect();
            if cut != up_to_it {
                return Err(format!(
                    "region {region}, epoch {}: the cut of worker {worker} is not exact",
                    drained.epoch
                ));
            }
        }
        let own = taken.iter().filter(|(key, epoch)| key.1 == region && **epoch == drained.epoch);
        let mut sums: BTreeMap<u16, u32> = BTreeMap::new();
        for (key, _) in own {
            let entries = added.get(key).ok_or_else(|| format!("{key:?} was taken, and nobody sent it"))?;
            for (slot, value) in entries {
                let sum = sums.entry(*slot).or_default();
                *sum = sum.wrapping_add(*value);
            }
        }
        let rows =
            sums.keys().map(|slot| placement.row_at(region, *slot).expect("workers know the plan").key);
        seen.rows_touched += rows.collect::<BTreeSet<u64>>().len() as u64;
        seen.epochs += 1;
        let slots = drained.slots.iter().flat_map(|&(first, count)| first..first + count);
        let mut drained_sums: BTreeMap<u16, u32> = slots.zip(drained.sums.0.iter().copied()).collect();
        sums.retain(|_, sum| *sum != 0);
        drained_sums.retain(|_, sum| *sum != 0);
        if world.setup.hot_path.arithmetic == ArithmeticMode::Fixed && sums != drained_sums {
            return Err(format!(
                "region {region}, epoch {}: the sums are not those of its packets",
                drained.epoch
            ));
        }
    }
    Ok(seen)
}
