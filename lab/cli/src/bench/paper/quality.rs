//! Quality of models with a switch and without.

use anyhow::{Context, Result};
use libra_client::Mode;
use libra_proto::ArithmeticMode;
use serde_json::Value;

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};
use super::jobs::Jobs;
use super::tasks::{Task, Tasks};
use libra_launch::progress::Bars;

/// Arithmetics of a switch that are tried.
const ARITHMETICS: [ArithmeticMode; 3] = [ArithmeticMode::Fixed, ArithmeticMode::Table, ArithmeticMode::F32];

/// Workers of a run with a switch.
const WORKERS: usize = 2;

/// Quality metric of a task, and its tolerance.
#[derive(Clone, Copy)]
struct Judged {
    /// In the report of a job.
    key: &'static str,
    name: &'static str,
    /// Absolute, or a share of the value.
    tolerance: f64,
    is_relative: bool,
}

const JUDGED: [Judged; 3] = [
    Judged { key: "auc", name: "AUC", tolerance: 0.003, is_relative: false },
    Judged { key: "perplexity", name: "perplexity", tolerance: 0.01, is_relative: true },
    Judged { key: "hr10", name: "HR@10", tolerance: 0.01, is_relative: false },
];

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "Quality with a switch and without".to_owned(),
        section: "the paper trains its models, and reports no quality; that aggregation in the network costs none is what it takes for granted".to_owned(),
        notes: vec![format!(
            "Each task is trained by one worker without a switch, and by {WORKERS} workers through a switch, with each arithmetic of its slots. Where workers do \
             not wait for each other (async), the last digits differ from run to run; where they do (sync), they share the batch of one worker."
        )],
        ..Finding::default()
    };
    let mut rows = Vec::new();
    let mut series: Vec<Series> = Vec::new();
    for (place, task) in tasks.all()?.iter().enumerate() {
        bars.line(&format!("  {}: profile", task.label()));
        let epochs = if tasks.quick { task.epochs_quick } else { task.config.epochs };
        // Workers that wait for each other train as one with all their batches as one: together they have that of one worker.
        let share = if task.mode == Mode::Sync { WORKERS } else { 1 };
        let jobs = Jobs::of(task, epochs, task.config.batch / share)?;
        bars.line(&format!("  {}: one worker, no switch", task.label()));
        let alone = jobs.without_switch("1")?;
        let judged = judged(&alone)?;
        let expected = value(&alone, judged)?;
        let mode = task.mode.to_string();
        let mut row = vec![task.label(), judged.name.to_owned(), mode.clone(), format!("{expected:.4}")];
        let mut points = vec![(0.0, expected)];
        for (way, arithmetic) in (1u8..).zip(ARITHMETICS) {
            // A quick run tries one of them on each task, in turn.
            if tasks.quick && arithmetic != ARITHMETICS[place % ARITHMETICS.len()] {
                row.push("-".to_owned());
                continue;
            }
            let name = arithmetic.to_string();
            bars.line(&format!("  {}: {WORKERS} workers, a switch that adds by {name}", task.label()));
            let found = value(
                &jobs.with_switch(&WORKERS.to_string(), &["--mode", &mode, "--arithmetic", &name])?,
                judged,
            )?;
            row.push(format!("{found:.4}"));
            points.push((f64::from(way), found));
            finding.claims.push(claim(task, &name, judged, expected, found));
        }
        rows.push(row);
        // Perplexities would hide all others.
        if !judged.is_relative {
            series.push(Series { name: task.label(), source: Source::Measured, points });
        }
    }
    let ways = ["1 worker, no switch".to_owned()];
    let names: Vec<String> =
        ways.into_iter().chain(ARITHMETICS.map(|arithmetic| format!("switch, {arithmetic}"))).collect();
    finding.tables.push(Table {
        title: "Quality after the last epoch".to_owned(),
        source: Source::Measured,
        head: ["task", "measure", "mode"]
            .map(str::to_owned)
            .into_iter()
            .chain(names.iter().cloned())
            .collect(),
        rows,
    });
    finding.charts.push(Chart {
        title: "AUC, or HR@10".to_owned(),
        x: Axis::of_names("", names),
        y: Axis::linear("quality"),
        kind: Kind::Bars,
        series,
    });
    Ok(finding)
}

fn claim(task: &Task, arithmetic: &str, judged: Judged, expected: f64, found: f64) -> Claim {
    let off = if judged.is_relative { judged.tolerance * expected } else { judged.tolerance };
    // A low perplexity is a good one, and a better model is never wrong.
    let range = if judged.is_relative { [None, Some(expected + off)] } else { [Some(expected - off), None] };
    Claim {
        what: format!("{}: {} with a switch that adds by {arithmetic}", task.label(), judged.name),
        paper: format!("as without: {expected:.4}"),
        range,
        ours: found,
        unit: Unit::Number,
        source: Source::Measured,
        why: format!("Worse by no more than {off:.4} is as without."),
    }
}

/// Finds the quality metric in the report of a job.
fn judged(report: &Value) -> Result<Judged> {
    let found = JUDGED.into_iter().find(|judged| report["quality"][judged.key].is_number());
    found.context("the report of a job has no known quality metric")
}

fn value(report: &Value, judged: Judged) -> Result<f64> {
    report["quality"][judged.key].as_f64().with_context(|| format!("a job has not measured {}", judged.name))
}
