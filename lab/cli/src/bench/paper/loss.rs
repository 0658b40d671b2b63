//! Cost of lost packets.

use anyhow::{Context, Result};
use libra_perfsim::System;

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Table, Unit};
use super::jobs::Jobs;
use super::tasks::{Task, Tasks};
use super::throughput::WORKERS;
use libra_launch::progress::Bars;

/// Shares of packets that are lost: the least and the most of the paper, and ten times as many.
const RATES: [f64; 3] = [0.0001, PAPERS, 0.01];
/// The most of the paper.
const PAPERS: f64 = 0.001;
/// The paper's upper bound of the cost.
const COST_MAX: f64 = 0.03;

/// Pushes of each worker, whose time is taken: many times what is under way at once, as the last ones do not wait.
const PUSHES_QUICK: usize = 12;
const PUSHES: usize = 96;

/// Workers of a job on this machine, and how often each job is repeated.
const WORKERS_HERE: &str = "2";
const TIMES_QUICK: usize = 1;
const TIMES: usize = 5;

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let [task, _] = tasks.industrial()?;
    let mut finding = Finding {
        title: "Packet loss".to_owned(),
        section: "Figure \"Performance loss under different packet loss rates\"".to_owned(),
        notes: NOTES.map(str::to_owned).into(),
        ..Finding::default()
    };
    let rates = if tasks.quick { &RATES[1..] } else { &RATES };
    let mut series = simulate(tasks, &task, rates, &mut finding, bars)?;
    series.push(measure(tasks, &task, &mut finding, bars)?);
    finding.charts.push(Chart {
        title: format!("What loss adds to the time of training, {}", task.label()),
        x: Axis::logarithmic("share of packets lost"),
        y: Axis::linear("share of time added"),
        kind: Kind::Lines,
        series,
    });
    Ok(finding)
}

/// On the testbed, for each number of workers.
fn simulate(
    tasks: &Tasks,
    task: &Task,
    rates: &[f64],
    finding: &mut Finding,
    bars: Bars,
) -> Result<Vec<Series>> {
    let testbed = tasks.testbed(task, bars)?;
    let (pushes, seeds) = if tasks.quick { (PUSHES_QUICK, 1) } else { (PUSHES, 3) };
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    for workers in WORKERS {
        // The others take their time.
        if tasks.quick && workers > WORKERS[0] {
            continue;
        }
        bars.line(&format!("  {}: {workers} workers", testbed.name));
        let run =
            |loss, seed| testbed.run_through(System::Libra, workers, task.hot_parameters, pushes, loss, seed);
        let whole = run(0.0, 1)?.seconds;
        let mut points = Vec::new();
        for &loss in rates {
            let (mut costs, mut lost) = (Vec::new(), 0);
            for seed in 1..=seeds {
                let report = run(loss, seed)?;
                costs.push(report.seconds / whole - 1.0);
                lost += report.up.packets_lost + report.down.packets_lost;
            }
            costs.sort_by(f64::total_cmp);
            let cost = costs[costs.len() / 2];
            points.push((loss, cost));
            rows.push(vec![
                workers.to_string(),
                Unit::Share.text(loss),
                lost.to_string(),
                Unit::Share.text(cost),
                format!("{} to {}", Unit::Share.text(costs[0]), Unit::Share.text(costs[costs.len() - 1])),
            ]);
            if loss >= PAPERS {
                let what = format!("{}, {workers} workers", testbed.name);
                finding.claims.push(claim(&what, loss, cost, Source::Simulated));
            }
        }
        all.push(Series {
            name: format!("{workers} workers on the testbed"),
            source: Source::Simulated,
            points,
        });
    }
    finding.tables.push(Table {
        title: format!("{}: what loss adds to the time of {pushes} pushes of each worker", testbed.name),
        source: Source::Simulated,
        head: ["workers", "lost on each link", "packets lost", "time added", "least and most"]
            .map(str::to_owned)
            .into(),
        rows,
    });
    Ok(all)
}

/// A job on this machine, whose members drop datagrams. Each job a few times, all kinds in turn, and the best of each counts.
fn measure(tasks: &Tasks, task: &Task, finding: &mut Finding, bars: Bars) -> Result<Series> {
    bars.line("  jobs on this machine");
    let jobs = Jobs::of(task, task.epochs_quick, task.config.batch)?;
    let rates = &[0.0, PAPERS, 0.01][..if tasks.quick { 2 } else { 3 }];
    // Seconds of the fastest job of each kind, and the packets that it sent again.
    let mut best = vec![(f64::INFINITY, 0); rates.len()];
    for _ in 0..if tasks.quick { TIMES_QUICK } else { TIMES } {
        for (rate, best) in rates.iter().zip(&mut best) {
            let report = jobs.with_switch(WORKERS_HERE, &["--loss", &rate.to_string()])?;
            let seconds = report["seconds"]["train"].as_f64().context("a job has not reported its time")?;
            if seconds < best.0 {
                *best = (seconds, report["transport"]["retransmits"].as_u64().unwrap_or(0));
            }
        }
    }
    let without = best[0].0;
    let mut points = Vec::new();
    let mut rows = Vec::new();
    for (&rate, (seconds, again)) in rates.iter().zip(best) {
        let cost = seconds / without - 1.0;
        rows.push(vec![
            Unit::Share.text(rate),
            format!("{seconds:.3} s"),
            Unit::Share.text(cost),
            again.to_string(),
        ]);
        if rate > 0.0 {
            points.push((rate, cost));
            let what = format!("{}, {WORKERS_HERE} workers on this machine", task.label());
            finding.claims.push(claim(&what, rate, cost, Source::Measured));
        }
    }
    finding.tables.push(Table {
        title: format!(
            "{}: {WORKERS_HERE} workers, 2 servers and a switch in software on this machine",
            task.label()
        ),
        source: Source::Measured,
        head: ["datagrams dropped", "training, the best", "time added", "packets sent again"]
            .map(str::to_owned)
            .into(),
        rows,
    });
    Ok(Series { name: format!("{WORKERS_HERE} workers on this machine"), source: Source::Measured, points })
}

fn claim(what: &str, loss: f64, ours: f64, source: Source) -> Claim {
    let is_papers = loss <= PAPERS;
    Claim {
        what: format!("{what}: time that {} of loss adds", Unit::Share.text(loss)),
        paper: if is_papers { "under 3%" } else { "not reported" }.to_owned(),
        range: if is_papers { [None, Some(COST_MAX)] } else { [None, None] },
        ours,
        unit: Unit::Share,
        source,
        why: match source {
            Source::Measured => "All members share the cores of this machine, and training is most of the time; runs differ by as much as loss costs.",
            _ if is_papers => "Where the server is the limit, what is lost is sent again while it works for others; the rest is what the last pushes wait for.",
            _ => "Ten times what the paper tries.",
        }
        .to_owned(),
    }
}

const NOTES: [&str; 3] = [
    "The paper loses 0.01% to 0.1% of the packets and reports the increase of training time, of OA; it says neither of how many workers, nor where packets are lost. On \
     the testbed each link loses each packet with that probability, so a datagram with its acknowledgement has two chances, and a message from a worker to a server as well.",
    "A datagram of the hot path that is lost is gone, and the transport that ships sends it again. TCP is not modelled but for its delay: a message that lost packets \
     comes a millisecond later, as does all behind it on its stream, and later again if what was sent again is lost. A real stream also halves its \
     window, and waits for 200 ms where even the end of its last message is lost twice.",
    "The jobs on this machine drop datagrams at both ends of the hot path; their streams run over loopback, which loses nothing. Time is from the first \
     batch to the last push being visible, with all that computing takes.",
];
