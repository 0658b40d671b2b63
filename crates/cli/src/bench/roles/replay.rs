//! What roles take for what they do: each is handed again what it was handed in a simulation.

use core::time::Duration;
use std::time::Instant;

use anyhow::{Result, anyhow};
use libra_sim::performance::{
    Costs, Host, Item, Model, PowerLaw, Prices, Recorded, Setting, Site, System, Work, fit,
};

/// A replay is repeated, and each step counts with the least that it took: it does the same each time.
const REPLAYS: usize = 4;

const WORKER: &[Item] = &[
    Item::Turn,
    Item::PacketIn,
    Item::Command,
    Item::Pair,
    Item::PacketOut,
    Item::PacketByteOut,
    Item::MessageIn,
    Item::MessageOut,
    Item::MessageByteOut,
];
const SWITCH: &[Item] =
    &[Item::Turn, Item::RunIn, Item::PacketIn, Item::PacketByteIn, Item::PacketOut, Item::Epoch, Item::EpochByte];
const SERVER: &[Item] =
    &[Item::Turn, Item::Epoch, Item::EpochByte, Item::MessageIn, Item::MessageByteIn, Item::MessageOut];

/// Fills in what roles cost. What is recorded hardly depends on what was there before: it decides only what comes together.
pub(super) fn measure(costs: &mut Costs) -> Result<()> {
    let hot = |entries_max, batch, hot| setting(costs, System::Libra, entries_max, batch, hot);
    let through = [hot(240, 10_000, 30_000), hot(16, 4000, 30_000), hot(240, 1000, 30_000)];
    let mixed = hot(240, 10_000, 10_000);
    let cold = [10_000, 1000].map(|batch| setting(costs, System::PsSparse, 240, batch, 0));
    let settings = |more: &[Setting]| [through.as_slice(), core::slice::from_ref(&mixed), more].concat();
    let worker = price("worker", WORKER, Recorded::Worker, &settings(&cold))?;
    let switch = price("switch", SWITCH, Recorded::Switch, &settings(&[]))?;
    let server = price("server", SERVER, Recorded::Server, &settings(&cold))?;
    (costs.worker, costs.switch, costs.server) = (worker, switch, server);
    Ok(())
}

fn setting(costs: &Costs, system: System, entries_max: u8, batch: usize, hot: u64) -> Setting {
    let rows = 30_000;
    Setting {
        system,
        workers: 2,
        servers: 1,
        site: Site::OneMachine(Host { cores: 2, speed: 1.0 }),
        model: Model { rows, width: 1, law: PowerLaw::new(rows, 1.05), batch },
        hot,
        open: 8,
        pushes_per_epoch: 64,
        entries_max,
        costs: costs.clone(),
        warm_up: Duration::from_millis(10),
        measured: Duration::from_millis(25),
        drawn: 64,
        seed: 1,
    }
}

fn price(name: &str, items: &[Item], role: Recorded, settings: &[Setting]) -> Result<Prices> {
    let begun = Instant::now();
    let clock = || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut samples: Vec<(Work, f64)> = Vec::new();
    let mut totals = Vec::new();
    for setting in settings {
        let recording = setting.record(role).map_err(|reason| anyhow!("{name}: {reason}"))?;
        let mut least = recording.replay(clock);
        for _ in 1..REPLAYS {
            for (step, again) in least.iter_mut().zip(recording.replay(clock)) {
                step.1 = step.1.min(again.1);
            }
        }
        let total = least.iter().fold((Work::default(), 0.0), |(work, nanos), step| (work + step.0, nanos + step.1));
        totals.push(total);
        samples.extend(least);
    }
    let prices = fit(items, &samples);
    tell_fit(name, &prices, &totals);
    Ok(prices)
}

/// Says how well prices explain what was measured.
pub(super) fn tell_fit(name: &str, prices: &Prices, samples: &[(Work, f64)]) {
    let ratios: Vec<String> =
        samples.iter().map(|(work, nanos)| format!("{:.2}", prices.of(work) / nanos)).collect();
    println!("{name}: prices explain, of what each run took, {}", ratios.join(", "));
}
