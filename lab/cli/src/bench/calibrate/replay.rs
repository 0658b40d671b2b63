//! Cost of a switch and a server: each is replayed its inputs of a simulation.

use core::time::Duration;
use std::time::Instant;

use anyhow::{Result, anyhow};
use libra_perfsim::{
    CostKind, CostModel, Costs, Host, Model, PowerLaw, Recorded, Setting, System, Topology, Work, fit,
};

use libra_launch::table::paragraph;

/// A replay is repeated, and each step counts with the median of what it took: it does the same each time, and is interrupted in some.
const REPLAYS: usize = 5;

const SWITCH: &[CostKind] =
    &[CostKind::RunIn, CostKind::PacketIn, CostKind::PacketByteIn, CostKind::RoundByte];
// A round is paid for by the byte: its messages are all of one size, as all rows are hot, so that the two prices cannot be separated.
const SERVER: &[CostKind] = &[CostKind::RoundByte, CostKind::MessageIn, CostKind::Pair];

/// Half of what a core remembers by itself: in a machine with fewer cores than threads, others have used some of it between two turns.
const OTHERS_BYTES: usize = 1 << 20;

/// Rows of the table: as many as the benchmark of the hot path has.
const ROWS: u64 = 30_000;

/// Load that is recorded: the shapes of packets, pushes and rounds between which prices hold.
struct Shape {
    entries_max: u8,
    batch: usize,
    hot: u64,
    pushes_per_round: u32,
}

const SHAPES: &[Shape] = &[
    Shape { entries_max: 240, batch: 10_000, hot: ROWS, pushes_per_round: 64 },
    Shape { entries_max: 240, batch: 10_000, hot: ROWS, pushes_per_round: 8 },
    Shape { entries_max: 64, batch: 10_000, hot: ROWS, pushes_per_round: 64 },
    Shape { entries_max: 16, batch: 4000, hot: ROWS, pushes_per_round: 16 },
    Shape { entries_max: 240, batch: 1000, hot: ROWS, pushes_per_round: 64 },
    Shape { entries_max: 240, batch: 10_000, hot: 3000, pushes_per_round: 64 },
    Shape { entries_max: 240, batch: 10_000, hot: 0, pushes_per_round: 64 },
    Shape { entries_max: 240, batch: 3000, hot: 0, pushes_per_round: 64 },
    Shape { entries_max: 240, batch: 500, hot: 0, pushes_per_round: 64 },
];

/// Fills in what switch and server cost. What they cost before hardly matters: it decides only what comes together.
pub(super) fn measure(costs: &mut Costs, shared: bool) -> Result<()> {
    let mut spread = Spread::default();
    let switch = price("switch", SWITCH, Recorded::Switch, (costs, shared), &mut spread)?;
    let server = price("server", SERVER, Recorded::Server, (costs, shared), &mut spread)?;
    (costs.switch, costs.server, costs.spread) = (switch, server, spread.deviation());
    println!(
        "turns: the logarithms of times of the same turn have a standard deviation of {:.3}",
        costs.spread
    );
    Ok(())
}

fn setting(costs: &Costs, shape: &Shape) -> Setting {
    Setting {
        system: if shape.hot > 0 { System::Libra } else { System::PsSparse },
        workers: 2,
        servers: 1,
        topology: Topology::OneMachine(Host { cores: 2, speed: 1.0, polls: false }),
        model: Model { rows: ROWS, width: 1, law: PowerLaw::new(ROWS, 1.05), batch: shape.batch },
        hot: shape.hot,
        open: 8,
        pushes_per_round: shape.pushes_per_round,
        entries_max: shape.entries_max,
        costs: costs.clone(),
        warm_up: Duration::from_millis(10),
        measured: Duration::from_millis(25),
        drawn: 64,
        seed: 1,
    }
}

/// By how much times of the same step differ. Steps count by the time they take: short ones measure the clock rather than the role.
#[derive(Default)]
struct Spread {
    nanos: f64,
    squares: f64,
}

impl Spread {
    /// Times of one step, and the one in their middle.
    fn add(&mut self, times: &[f64], median: f64) {
        for time in times.iter().filter(|time| **time > 0.0) {
            self.nanos += median;
            self.squares += median * (time / median).ln().powi(2);
        }
    }

    fn deviation(&self) -> f64 {
        if self.nanos > 0.0 { (self.squares / self.nanos).sqrt() } else { 0.0 }
    }
}

fn price(
    name: &str,
    items: &[CostKind],
    role: Recorded,
    (costs, shared): (&Costs, bool),
    spread: &mut Spread,
) -> Result<CostModel> {
    let begun = Instant::now();
    let mut of_others = vec![1_u64; if shared { OTHERS_BYTES / size_of::<u64>() } else { 0 }];
    let mut begins = false;
    let mut clock = || {
        begins = !begins;
        if begins {
            of_others.iter_mut().step_by(8).for_each(|word| *word += 1);
        }
        u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    let mut totals = Vec::new();
    for shape in SHAPES.iter().filter(|shape| shape.hot > 0 || role != Recorded::Switch) {
        let recording = setting(costs, shape).record(role).map_err(|reason| anyhow!("{name}: {reason}"))?;
        let replays: Vec<Vec<(Work, f64)>> = (0..REPLAYS).map(|_| recording.replay(&mut clock)).collect();
        let mut total = (Work::default(), 0.0);
        for (number, (work, _)) in replays[0].iter().enumerate() {
            let mut times: Vec<f64> = replays.iter().map(|replay| replay[number].1).collect();
            times.sort_by(f64::total_cmp);
            let median = times[REPLAYS / 2];
            spread.add(&times, median);
            total = (total.0 + *work, total.1 + median);
        }
        totals.push(total);
    }
    // A row that is pushed in one step leaves in another, so that single steps show nothing. All shapes count alike, however long they were recorded.
    let samples: Vec<_> = totals.iter().map(|(work, nanos)| (work.times(1.0 / nanos), 1.0)).collect();
    let prices = fit(items, &samples);
    print_fit(name, &prices, &totals);
    Ok(prices)
}

/// Prints how well prices explain what was measured.
pub(super) fn print_fit(name: &str, prices: &CostModel, samples: &[(Work, f64)]) {
    let ratios: Vec<String> =
        samples.iter().map(|(work, nanos)| format!("{:.2}", prices.of(work) / nanos)).collect();
    let sentence = format!("{name}: prices explain, of what each run took, {}", ratios.join(", "));
    println!("{}", paragraph(&sentence));
}
