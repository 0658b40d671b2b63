//! Skew of updates.

use anyhow::Result;
use libra_client::Widths;

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Unit};
use super::tasks::{Counts, Task, Tasks};
use libra_launch::progress::Bars;

/// The paper's figure ends here.
const PARAMETERS_SHOWN: u64 = 100_000;

/// Parameters that the paper calls hot.
const HOT: u64 = 30_000;

/// Pushes that are counted in a quick run.
const PUSHES_QUICK: u64 = 200;

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let pushes_max = if tasks.quick { PUSHES_QUICK } else { u64::MAX };
    let mut finding = Finding {
        title: "Hot and cold parameters".to_owned(),
        section: "Figure \"Cumulative distribution of the parameter update frequency\"".to_owned(),
        ..Finding::default()
    };
    let mut series = Vec::new();
    for task in tasks.all()? {
        let counts = task.counts(1.0, pushes_max, bars)?;
        let curve = cumulative(&task, &counts);
        let hot = curve.iter().find(|point| point.0 >= HOT as f64).or_else(|| curve.last());
        let share = hot.map_or(0.0, |point| point.1);
        let (paper, range, why) = match task.name {
            "OA" => ("over half", [Some(0.5), Some(0.56)], MADE_UP),
            "SE" => ("about 70%", [Some(0.68), Some(0.74)], MADE_UP),
            _ => (
                "not reported",
                [None, None],
                "A parameter is one value of a row; all values of a row are updated together.",
            ),
        };
        finding.claims.push(Claim {
            what: format!("{}: share of updates that the top {HOT} parameters take", task.label()),
            paper: paper.to_owned(),
            range,
            ours: share,
            unit: Unit::Share,
            source: Source::Measured,
            why: why.to_owned(),
        });
        finding.notes.push(format!(
            "{}: {} pushes of {} samples updated {} distinct rows {} times.",
            task.label(),
            counts.pushes,
            task.config.batch,
            counts.rows.len(),
            counts.updates
        ));
        series.push(Series { name: task.label(), source: Source::Measured, points: curve });
    }
    finding.charts.push(Chart {
        title: "Share of all updates that the hottest parameters take".to_owned(),
        x: Axis::logarithmic("hottest parameters"),
        y: Axis::linear("share of updates"),
        kind: Kind::Lines,
        series,
    });
    Ok(finding)
}

const MADE_UP: &str = "The paper's traces are not public: the generator was made to have this skew, so this shows that it has, and nothing more. A push counts a row once.";

/// The share of updates of the hottest parameters, at numbers of parameters that grow by a tenth.
fn cumulative(task: &Task, counts: &Counts) -> Vec<(f64, f64)> {
    let widths = Widths::new(&task.workload.tables());
    let rows: Vec<(u64, u64)> =
        counts.ranked().into_iter().map(|(key, count)| (widths.of(key) as u64, count)).collect();
    let total: u64 = rows.iter().map(|(width, count)| width * count).sum();
    let (mut parameters, mut updates, mut next) = (0, 0, 1);
    let mut curve = Vec::new();
    for (width, count) in rows {
        // All values of a row have the count of the row.
        while next <= parameters + width && next <= PARAMETERS_SHOWN {
            let so_far = updates + (next - parameters) * count;
            curve.push((next as f64, so_far as f64 / total.max(1) as f64));
            next = if next == HOT { next + 1 } else { (next + next / 10 + 1).min(following(next)) };
        }
        parameters += width;
        updates += width * count;
    }
    curve
}

/// The next place that must not be stepped over.
fn following(place: u64) -> u64 {
    [HOT, PARAMETERS_SHOWN].into_iter().find(|&stop| stop > place).unwrap_or(u64::MAX)
}
