//! Cost of agreeing on a scaling factor in each iteration.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use libra_paper::{Factor, Model, exponent};
use libra_plan::{DEFAULT_HEADROOM_BITS, Quantizer, Scale, bound};

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};
use super::tasks::Tasks;
use super::testbed::dense;
use super::throughput::{MEMORY, WORKERS};
use crate::bench::usage::processor_time;
use libra_launch::progress::Bars;

/// Gradients that are gone through at once: more than caches hold.
const BLOCK: usize = 1 << 23;

/// Pushes that are dealt to see how many values one updates.
const PUSHES: u64 = 16;

/// Time that a negotiation adds to an iteration, in seconds.
struct Added {
    /// Until a worker has computed the exponent of its largest gradient, on average.
    pass: f64,
    /// Until the slowest one does.
    slowest: f64,
    /// Until all have received the largest of all.
    round_trip: f64,
    /// With a factor for each packet: exponents of all packets before their values.
    of_packets: f64,
    /// The same, if exponents travel in the packets before: those of the first round alone are extra.
    ahead: f64,
}

impl Added {
    /// Workers have gone through their gradients in these times. A pass of exponents over the pool takes so long a round.
    fn new(ready: &[Duration], parameters: u64, seconds_a_round: f64) -> Self {
        let mean = ready.iter().map(Duration::as_secs_f64).sum::<f64>() / ready.len() as f64;
        let slowest = ready.iter().max().map_or(0.0, Duration::as_secs_f64);
        let setting = dense(u16::try_from(ready.len()).unwrap_or(u16::MAX), MEMORY, parameters);
        Self {
            pass: mean,
            slowest: slowest - mean,
            round_trip: setting.negotiate(ready).as_secs_f64() - slowest,
            of_packets: seconds_a_round * setting.profile.cost(parameters).rounds as f64,
            ahead: seconds_a_round,
        }
    }

    fn of_one(&self) -> f64 {
        self.pass + self.slowest + self.round_trip
    }
}

/// A model, by its size.
struct ModelSize {
    name: String,
    parameters: u64,
}

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "Negotiation of a scaling factor".to_owned(),
        section: "Figure \"The extra delay incurred in each iteration for negotiating the scaling factor\""
            .to_owned(),
        notes: NOTES.map(str::to_owned).into(),
        ..Finding::default()
    };
    let mut models = Vec::new();
    let mut updated = 0;
    for task in tasks.all()? {
        let parameters = task
            .embeddings()
            .iter()
            .map(|table| (table.keys.end - table.keys.start) * u64::from(table.width))
            .sum();
        if task.name == "OA" {
            task.pushes(1.0, PUSHES, bars, |keys| updated = updated.max(keys.len()))?;
        }
        models.push(ModelSize { name: task.label(), parameters });
    }
    models.push(ModelSize {
        name: "NCF, as large as in the paper".to_owned(),
        parameters: Model::ncf().sparse_parameters(),
    });

    bars.line("  conversion");
    let machine = Machine::new();
    finding.tables.push(machine.costs());
    finding.notes.push(machine.reading(&models[0]));
    let mut rows = Vec::new();
    let mut shown = Vec::new();
    let rounds = WORKERS.map(|workers| {
        let pass = dense(workers, MEMORY, models[0].parameters).run_exponents();
        (workers, pass.iteration_seconds / pass.rounds as f64)
    });
    for (place, model) in models.iter().enumerate() {
        bars.line(&format!("  {}", model.name));
        let [.., most] = WORKERS;
        let ready: Vec<Duration> = (0..most).map(|_| machine.pass(model.parameters)).collect();
        for (workers, seconds_a_round) in rounds {
            let added = Added::new(&ready[..workers.into()], model.parameters, seconds_a_round);
            let ms = |seconds: f64| format!("{:.3}", seconds * 1e3);
            rows.push(vec![
                model.name.clone(),
                model.parameters.to_string(),
                workers.to_string(),
                ms(added.pass),
                ms(added.slowest),
                ms(added.round_trip),
                ms(added.of_one()),
                ms(added.of_packets),
                ms(added.ahead),
            ]);
            if place == 0 || place + 1 == models.len() {
                finding.claims.extend(claim(place == 0, &model.name, workers, &added));
            }
            if place == 0 {
                shown.push((workers, added));
            }
        }
    }
    let grows = |of: fn(&Added) -> f64| match &shown[..] {
        [(_, first), .., (_, last)] => of(last) / of(first),
        _ => 1.0,
    };
    for (what, ours) in [
        ("one factor for everything", grows(Added::of_one)),
        ("a factor for each packet", grows(|added| added.of_packets)),
    ] {
        finding.claims.push(Claim {
            what: format!("{}: {what}, 32 workers by 8", models[0].name),
            paper: "about 1.3 x".to_owned(),
            range: [Some(1.0), Some(1.3)],
            ours,
            unit: Unit::Times,
            source: Source::Simulated,
            why: "What a worker's processor does is the same with any number of workers; what links carry is four times as much with four workers on each machine."
                .to_owned(),
        });
    }
    finding.claims.push(Claim {
        what: format!("{}: what planned scales take of a worker instead, for {updated} updates", models[0].name),
        paper: "none is negotiated".to_owned(),
        range: [None, Some(1.0)],
        ours: updated as f64 * machine.planned * 1e3,
        unit: Unit::Milliseconds,
        source: Source::Measured,
        why: "Libra's scales are planned in a profile run, before training, and tables or f32 need none: no worker waits for another. Below 1 ms is taken for none."
            .to_owned(),
    });
    finding.tables.push(Table {
        title: "Milliseconds that a negotiation adds to an iteration: passes over gradients measured here, one after the other; packets simulated".to_owned(),
        source: Source::Simulated,
        head: ["model", "parameters", "workers", "largest exponent", "slowest worker", "round trip", "one factor", "a factor for each packet", "told a packet ahead"].map(str::to_owned).into(),
        rows,
    });
    finding.charts = charts(&models[0].name, &shown);
    Ok(finding)
}

/// Of models as large as the paper's. It does not say of which one it speaks, so one of them is held to it: that of most of its experiments.
fn claim(is_first: bool, name: &str, workers: u16, added: &Added) -> Option<Claim> {
    let (paper, range) = match workers {
        8 => ("over 100 ms, of a model that it does not name", [Some(100.0), None]),
        32 => ("130 ms, of a model that it does not name", [Some(115.0), Some(145.0)]),
        _ => return None,
    };
    Some(Claim {
        what: format!("{name}: what one factor for everything adds to an iteration, {workers} workers"),
        paper: paper.to_owned(),
        range: if is_first { range } else { [None, None] },
        ours: added.of_one() * 1e3,
        unit: Unit::Milliseconds,
        source: Source::Simulated,
        why: if is_first {
            format!(
                "Of it {:.1} ms are a pass over all gradients by one core of this machine, {:.1} ms waiting for the slowest, {:.3} ms packets. A factor for each \
                 packet would add {:.1} ms. See the notes.",
                added.pass * 1e3,
                added.slowest * 1e3,
                added.round_trip * 1e3,
                added.of_packets * 1e3
            )
        } else {
            "Of the model whose traffic is the paper's example.".to_owned()
        },
    })
}

fn charts(name: &str, shown: &[(u16, Added)]) -> Vec<Chart> {
    let points = |of: fn(&Added) -> f64| {
        shown.iter().map(|(workers, added)| (f64::from(*workers), of(added) * 1e3)).collect::<Vec<_>>()
    };
    let series = |name: &str, source, points| Series { name: name.to_owned(), source, points };
    let places = |of: fn(&Added) -> f64| {
        (0u8..).map(f64::from).zip(points(of).into_iter().map(|point| point.1)).collect()
    };
    vec![
        Chart {
            title: format!("What a negotiation adds to an iteration of {name}"),
            x: Axis::linear("workers"),
            y: Axis::linear("ms"),
            kind: Kind::Lines,
            series: vec![
                series(
                    "the paper, whose model is not named",
                    Source::Paper,
                    vec![(8.0, 100.0), (32.0, 130.0)],
                ),
                series("one factor for everything", Source::Simulated, points(Added::of_one)),
                series("a factor for each packet", Source::Simulated, points(|added| added.of_packets)),
                series("told a packet ahead", Source::Simulated, points(|added| added.ahead)),
            ],
        },
        Chart {
            title: format!("What one factor for everything is made of, {name}"),
            x: Axis::of_names("", shown.iter().map(|(workers, _)| format!("{workers} workers"))),
            y: Axis::linear("ms"),
            kind: Kind::Bars,
            series: vec![
                series("largest exponent", Source::Measured, places(|added| added.pass)),
                series("slowest worker", Source::Measured, places(|added| added.slowest)),
                series("round trip", Source::Simulated, places(|added| added.round_trip)),
            ],
        },
    ]
}

/// Cost of conversion on this machine, in seconds for each value.
struct Machine {
    gradients: Vec<f32>,
    integers: Vec<i32>,
    /// To find the largest exponent, to make integers of gradients, and gradients of sums.
    exponent: f64,
    integer: f64,
    float: f64,
    /// To make an integer by a scale that was planned.
    planned: f64,
}

impl Machine {
    fn new() -> Self {
        // Most are zero in a push of a sparse model; time does not depend on it.
        let gradients: Vec<f32> =
            (0..BLOCK).map(|place| if place % 1000 == 0 { 0.01 } else { 0.0 }).collect();
        let integers = vec![0; BLOCK];
        let mut machine = Self { gradients, integers, exponent: 0.0, integer: 0.0, float: 0.0, planned: 0.0 };
        let factor = Factor::negotiated(8, exponent(&machine.gradients));
        machine.exponent = best(|| exponent(black_box(&machine.gradients)));
        machine.integer = best(|| factor.integers(black_box(&machine.gradients), &mut machine.integers));
        machine.float = best(|| factor.floats(black_box(&machine.integers), &mut machine.gradients));
        let bound = bound(DEFAULT_HEADROOM_BITS);
        let (quantizer, factor) = (Quantizer::new(bound), Scale::fit(1.0, bound).factor());
        machine.planned = best(|| {
            for (integer, gradient) in machine.integers.iter_mut().zip(black_box(&machine.gradients)) {
                *integer = quantizer.quantize(*gradient, factor, 0.0).0;
            }
        });
        machine
    }

    fn costs(&self) -> Table {
        let lines = [
            ("the exponent of the largest gradient", self.exponent),
            ("gradients to integers", self.integer),
            ("sums to gradients", self.float),
            ("gradients to integers by planned scales, with what rounding leaves", self.planned),
        ];
        let oa = 150e6;
        Table {
            title: "What conversion takes of one core of this machine".to_owned(),
            source: Source::Measured,
            head: ["what", "ns a value", "ms for 150 million"].map(str::to_owned).into(),
            rows: lines
                .map(|(what, seconds)| {
                    vec![
                        what.to_owned(),
                        format!("{:.3}", seconds * 1e9),
                        format!("{:.1}", seconds * oa * 1e3),
                    ]
                })
                .into(),
        }
    }

    /// Discusses what the paper may have measured.
    fn reading(&self, model: &ModelSize) -> String {
        let ms = |seconds: f64| format!("{:.0} ms", seconds * model.parameters as f64 * 1e3);
        format!(
            "What the paper reports, 100 ms and a third more with four times the workers, is mostly of a kind that does not grow with workers, as work of processors does \
             and packets for each chunk do not. A worker that looks for the largest exponent among all parameters of OA and then makes all of them integers, before \
             it sends the first, would take {} and {} for that here. But the paper does not define what it counts, and for models that are a tenth as large nothing \
             that we have measured takes so long.",
            ms(self.exponent),
            ms(self.integer)
        )
    }

    fn pass(&self, parameters: u64) -> Duration {
        let began = processor_time();
        let mut left = usize::try_from(parameters).unwrap_or(usize::MAX);
        let mut largest = i32::MIN;
        while left > 0 {
            let part = left.min(BLOCK);
            largest = largest.max(exponent(black_box(&self.gradients[..part])));
            left -= part;
        }
        black_box(largest);
        processor_time() - began
    }
}

/// Seconds of a processor for each value of a block, in the best of some times.
fn best<T>(mut what: impl FnMut() -> T) -> f64 {
    let times = (0..5).map(|_| {
        let began = processor_time();
        black_box(what());
        (processor_time() - began).as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min) / BLOCK as f64
}

const NOTES: [&str; 3] = [
    "The paper measured what SwitchML's negotiation adds to an iteration, and says neither of which model nor what it consists of. SwitchML sends all parameters, \
     so we take the embeddings of each task. \"One factor\" is the paper's wording: all workers agree before they send. Each goes through all its gradients for \
     the largest exponent, which one core does here; the switch sends all the largest when it has those of all; so all wait for the slowest. Workers differ by no \
     more than passes that were made here one after the other, in processor time: those of a real job, which end their batches at different times, differ by more.",
    "A factor for each packet takes one more packet, with an exponent alone, for each packet of values: links and pool are simulated, processors cost nothing. \
     SwitchML as it was published sends the exponents of a packet in the packet before, so only the first packets of an iteration are extra: that is the last \
     column, and far from what the paper reports of it.",
    "Conversion itself is not in these figures: who adds integers pays for it with any factor, and can convert a packet while another is under way.",
];
