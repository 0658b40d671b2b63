//! Cost of loop, sockets and kernel for the thread of a role.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use libra_net::probe::{Exchanged, Kind, NoIdle, ThreadStats, exchange};
use libra_perfsim::{CostKind, CostModel, WakeLatency, Work, fit};

/// A thread that was not woken yet.
const NOT_YET: u64 = u64::MAX;
/// Nanoseconds from the last work of a thread to where its core is idle.
const FALLING_ASLEEP: u64 = 3000;

/// Exchanges: their kind, the number of requests under way, and the number of round trips.
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

const ITEMS: &[CostKind] = &[
    CostKind::Turn,
    CostKind::Wake,
    CostKind::RunIn,
    CostKind::PacketByteIn,
    CostKind::RunOut,
    CostKind::PacketByteOut,
    CostKind::MessageIn,
    CostKind::MessageByteIn,
    CostKind::MessageOut,
    CostKind::MessageByteOut,
];

/// Idle time of a core before it is woken, in microseconds, and the number of wakes.
const IDLE: &[(u64, usize)] =
    &[(0, 2000), (20, 2000), (50, 2000), (100, 1000), (200, 1000), (500, 400), (1000, 300), (3000, 100)];

/// Measures the price of each thing.
///
/// Twice: with cores that never sleep, as in a cluster that has much to do, and with two that sleep in every round trip. What is then more is
/// the price of a wake that finds its core idle.
pub(super) fn measure() -> Result<CostModel> {
    let mut samples = Vec::new();
    {
        let _no_idle = NoIdle::new();
        for &exchanged in EXCHANGES {
            samples.extend(sample(exchanged, false)?);
        }
    }
    let mut prices = fit(ITEMS, &samples);
    // With one core a thread is always awake.
    if thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let (mut wakes, mut more) = (0.0, 0.0);
        for &exchanged in EXCHANGES.iter().filter(|(_, window, _)| *window == 1) {
            for (work, nanos) in sample(exchanged, true)? {
                wakes += work.count(CostKind::Wake);
                more += nanos - prices.of(&work);
            }
        }
        prices.0.insert(CostKind::IdleWake, (more / wakes).max(0.0));
    }
    let price = |prices: &CostModel, item| prices.0.get(&item).copied().unwrap_or(0.0);
    // Each message of a round comes or leaves.
    let round = (price(&prices, CostKind::MessageIn) + price(&prices, CostKind::MessageOut)) / 2.0;
    let byte = (price(&prices, CostKind::MessageByteIn) + price(&prices, CostKind::MessageByteOut)) / 2.0;
    prices.0.extend([(CostKind::Round, round), (CostKind::RoundByte, byte)]);
    super::replay::print_fit("kernel", &prices, &samples);
    Ok(prices)
}

/// Measures the wake-up latency of an idle core: the median.
///
/// One thread sleeps, and another, which does not, wakes it. Were the one that wakes to sleep, too, both would share a core, and none would be idle.
pub(super) fn wake_latency() -> WakeLatency {
    let woken_at = Arc::new(AtomicU64::new(NOT_YET));
    let ended = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let nanos = move || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(NOT_YET);
    let sleeper = {
        let (woken_at, ended) = (Arc::clone(&woken_at), Arc::clone(&ended));
        thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                thread::park();
                woken_at.store(nanos(), Ordering::Release);
            }
        })
    };
    let mut points: Vec<[f64; 2]> = Vec::new();
    for &(idle_us, rounds) in IDLE {
        let mut latencies: Vec<u64> = (0..rounds)
            .map(|_| {
                // What the sleeper does to fall asleep is no idle time yet.
                let until = nanos() + FALLING_ASLEEP + 1000 * idle_us;
                while nanos() < until {
                    spin_loop();
                }
                woken_at.store(NOT_YET, Ordering::Release);
                sleeper.thread().unpark();
                // The call itself is work of the thread that wakes, and counted there.
                let called = nanos();
                while woken_at.load(Ordering::Acquire) == NOT_YET {
                    spin_loop();
                }
                woken_at.load(Ordering::Acquire).saturating_sub(called)
            })
            .collect();
        latencies.sort_unstable();
        let before = points.last().map_or(1.0, |last| last[1]);
        points.push([1000.0 * idle_us as f64, (latencies[rounds / 2] as f64).max(before)]);
    }
    ended.store(true, Ordering::Release);
    sleeper.thread().unpark();
    let _ = sleeper.join();
    WakeLatency(points)
}

/// Measures the work of both threads of an exchange, and their time.
fn sample((kind, window, rounds): (Kind, usize, u64), apart: bool) -> Result<[(Work, f64); 2]> {
    // Twice, and what took less: the machine may have had other work.
    let runs = (0..2).map(|_| exchange(kind, window, rounds, apart)).collect::<Result<Vec<_>, _>>();
    let runs = runs.context("two threads cannot talk to each other over loopback")?;
    let best = runs.into_iter().min_by_key(|run| run.asks.cpu_ns + run.answers.cpu_ns);
    let Exchanged { asks, answers, .. } = best.context("there were two runs")?;
    ensure!(asks.rx > 0 && answers.rx > 0, "{kind:?}: nothing was exchanged");
    Ok([asks, answers].map(|stats| (work(kind, &stats), stats.cpu_ns as f64)))
}

fn work(kind: Kind, stats: &ThreadStats) -> Work {
    let work = Work::of(CostKind::Turn, stats.turns as f64).with(CostKind::Wake, stats.sleeps as f64);
    let (rx, rx_bytes) = (stats.rx as f64, stats.rx_bytes as f64);
    let (tx, tx_bytes) = (stats.tx as f64, stats.tx_bytes as f64);
    match kind {
        Kind::Datagrams(..) => work
            .with(CostKind::RunIn, rx)
            .with(CostKind::PacketByteIn, rx_bytes)
            .with(CostKind::RunOut, tx)
            .with(CostKind::PacketByteOut, tx_bytes),
        Kind::Messages(_) => work
            .with(CostKind::MessageIn, rx)
            .with(CostKind::MessageByteIn, rx_bytes)
            .with(CostKind::MessageOut, tx)
            .with(CostKind::MessageByteOut, tx_bytes),
    }
}
