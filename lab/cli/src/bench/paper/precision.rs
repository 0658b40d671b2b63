//! Precision of a sample in finding the hot parameters.

use anyhow::Result;
use libra_paper::{Growth, Identified};

use super::finding::{Axis, Chart, Claim, Finding, Kind, Series, Source, Unit};
use super::tasks::{Counts, Tasks};
use libra_launch::progress::Bars;

/// The rates of the paper's figure, in percent.
const RATES: [u32; 5] = [1, 2, 4, 8, 16];

/// Pushes that are counted in a quick run.
const PUSHES_QUICK: u64 = 400;

/// The paper's claims for all its models: the rate in percent, and the precision that is exceeded.
const CLAIMS: [(u32, f64); 2] = [(4, 0.8), (8, 0.9)];

pub(super) fn find(tasks: &Tasks, bars: Bars) -> Result<Finding> {
    let mut finding = Finding {
        title: "Precision of identifying hot parameters in a sample".to_owned(),
        section: "\"Precision of Hot Parameter Identification\"".to_owned(),
        notes: vec![
            "As the paper has it: lists grow by 1,000 parameters until a step brings less than 1% of all updates, from the whole data and from a \
             sample of its records; precision is the share of the first list that is in the second. A parameter is a row here."
                .to_owned(),
            "Which rows a push updates does not depend on the values of parameters, so batches are dealt and counted, as in a profile run, and not \
             trained."
                .to_owned(),
        ],
        ..Finding::default()
    };
    let mut series = Vec::new();
    for task in tasks.all()? {
        let pushes_max = if tasks.quick { PUSHES_QUICK } else { u64::MAX };
        // A quick run takes a part of the data for the whole.
        let pushes = task.workload.samples_per_epoch().div_ceil(task.config.batch as u64);
        let part = (pushes_max as f64 / pushes as f64).min(1.0);
        let whole = hot_list(&task.counts(part, u64::MAX, bars)?);
        let mut points = Vec::new();
        for rate in RATES {
            let sample = hot_list(&task.counts(part * f64::from(rate) / 100.0, u64::MAX, bars)?);
            let identified = Identified::of(&whole, &sample);
            points.push((f64::from(rate), identified.precision));
            if let Some((_, least)) = CLAIMS.iter().find(|claim| claim.0 == rate) {
                finding.claims.push(Claim {
                    what: format!("{}: precision with {rate}% of the data", task.label()),
                    paper: format!("above {:.0}%", 100.0 * least),
                    range: [Some(*least), None],
                    ours: identified.precision,
                    unit: Unit::Share,
                    source: Source::Measured,
                    why: format!(
                        "{} hot rows by the whole data, {} by the sample, {} by both.",
                        identified.whole, identified.sample, identified.both
                    ),
                });
            }
        }
        series.push(Series { name: task.label(), source: Source::Measured, points });
    }
    series.push(Series {
        name: "what all models of the paper exceed".to_owned(),
        source: Source::Paper,
        points: CLAIMS.iter().map(|&(rate, least)| (f64::from(rate), least)).collect(),
    });
    finding.charts.push(Chart {
        title: "Hot parameters that a sample finds".to_owned(),
        x: Axis::linear("share of the data in the sample, %"),
        y: Axis::linear("precision"),
        kind: Kind::Lines,
        series,
    });
    Ok(finding)
}

fn hot_list(counts: &Counts) -> Vec<u64> {
    Growth::default().hot_list(counts.rows.iter().map(|(&key, &count)| (key, count)), counts.updates)
}
