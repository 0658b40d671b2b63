//! What loop, sockets and kernel take of the thread of a role.

use anyhow::{Context, Result, ensure};
use libra_net::probe::{Exchanged, Kind, Side, exchange};
use libra_sim::performance::{Item, Prices, Work, fit};

/// What is exchanged, with how many questions under way, and how often.
const EXCHANGES: &[(Kind, usize, u64)] = &[
    (Kind::Datagrams(1, 40), 1, 6000),
    (Kind::Datagrams(1, 1400), 1, 4000),
    (Kind::Datagrams(64, 126), 1, 3000),
    (Kind::Datagrams(64, 126), 8, 12_000),
    (Kind::Datagrams(44, 1470), 1, 3000),
    (Kind::Datagrams(44, 1470), 4, 8000),
    (Kind::Datagrams(44, 1470), 12, 12_000),
    (Kind::Messages(20), 1, 5000),
    (Kind::Messages(20), 8, 12_000),
    (Kind::Messages(4000), 4, 8000),
    (Kind::Messages(60_000), 1, 2000),
    (Kind::Messages(60_000), 4, 5000),
    (Kind::Messages(120_000), 4, 3000),
];

const ITEMS: &[Item] = &[
    Item::Turn,
    Item::Wake,
    Item::RunIn,
    Item::PacketByteIn,
    Item::RunOut,
    Item::PacketByteOut,
    Item::MessageIn,
    Item::MessageByteIn,
    Item::MessageOut,
    Item::MessageByteOut,
];

/// Prices, and how long an idle core takes to wake.
pub(super) fn measure() -> Result<(Prices, f64)> {
    let mut samples = Vec::new();
    let mut latency = None;
    for &(kind, window, rounds) in EXCHANGES {
        // Twice, and what took less: somebody else may have had work for the machine.
        let runs = (0..2).map(|_| exchange(kind, window, rounds)).collect::<Result<Vec<_>, _>>();
        let runs = runs.context("two threads cannot talk to each other over loopback")?;
        let best = runs.into_iter().min_by_key(|run| run.asks.cpu_ns + run.answers.cpu_ns);
        let Exchanged { asks, answers, mut round_trips } = best.context("there were two runs")?;
        ensure!(asks.came > 0 && answers.came > 0, "{kind:?}: nothing was exchanged");
        samples.extend([asks, answers].map(|side| sample(kind, &side)));
        if latency.is_none() && !round_trips.is_empty() {
            round_trips.sort_unstable();
            let [low, typical] = [4, 2].map(|part| round_trips[round_trips.len() / part] as f64);
            println!(
                "kernel: a quarter of round trips take less than {low:.0} ns, half of them less than {typical:.0} ns"
            );
            // Each side sleeps once in a round trip; what is left when both have done their work is waking.
            let busy =
                (asks.cpu_ns as f64 / asks.came as f64) + (answers.cpu_ns as f64 / answers.came as f64);
            latency = Some(((typical - busy) / 2.0).max(500.0));
        }
    }
    let mut prices = fit(ITEMS, &samples);
    let price = |prices: &Prices, item| prices.0.get(&item).copied().unwrap_or(0.0);
    // Each message of an epoch comes or leaves.
    let epoch = (price(&prices, Item::MessageIn) + price(&prices, Item::MessageOut)) / 2.0;
    let byte = (price(&prices, Item::MessageByteIn) + price(&prices, Item::MessageByteOut)) / 2.0;
    prices.0.extend([(Item::Epoch, epoch), (Item::EpochByte, byte)]);
    super::replay::tell_fit("kernel", &prices, &samples);
    Ok((prices, latency.context("nothing was exchanged")?))
}

fn sample(kind: Kind, side: &Side) -> (Work, f64) {
    let work = Work::of(Item::Turn, side.turns as f64).with(Item::Wake, side.sleeps as f64);
    let (came, bytes_came) = (side.came as f64, side.bytes_came as f64);
    let (left, bytes_left) = (side.left as f64, side.bytes_left as f64);
    let work = match kind {
        Kind::Datagrams(..) => work
            .with(Item::RunIn, came)
            .with(Item::PacketByteIn, bytes_came)
            .with(Item::RunOut, left)
            .with(Item::PacketByteOut, bytes_left),
        Kind::Messages(_) => work
            .with(Item::MessageIn, came)
            .with(Item::MessageByteIn, bytes_came)
            .with(Item::MessageOut, left)
            .with(Item::MessageByteOut, bytes_left),
    };
    (work, side.cpu_ns as f64)
}
