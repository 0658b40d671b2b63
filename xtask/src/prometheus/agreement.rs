//! The counts of a job in the last scrape of its members, in that of its controller, in its last event and in its report.

use std::iter::Sum;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::job::Job;
use super::scrapes::Body;
use crate::findings::Finding;

/// A count by its names: a sample of members and one of the controller, a path in the totals of the last event, and a path in the report.
struct Count {
    of_members: &'static str,
    of_job: &'static str,
    in_event: &'static str,
    in_report: &'static str,
}

const fn count(
    of_members: &'static str,
    of_job: &'static str,
    in_event: &'static str,
    in_report: &'static str,
) -> Count {
    Count { of_members, of_job, in_event, in_report }
}

/// A sample without labels is the sum over all of them.
const COUNTS: &[Count] = &[
    count("libra_worker_pushes_total", "libra_job_pushes_total", "worker/pushes", "pushes/count"),
    count(
        "libra_worker_rows_pushed_total{path=\"hot\"}",
        "libra_job_rows_pushed_total{path=\"hot\"}",
        "worker/rows_hot",
        "pushes/rows_hot",
    ),
    count(
        "libra_worker_rows_pushed_total{path=\"cold\"}",
        "libra_job_rows_pushed_total{path=\"cold\"}",
        "worker/rows_cold",
        "pushes/rows_cold",
    ),
    count(
        "libra_worker_rows_pulled_total",
        "libra_job_rows_pulled_total",
        "worker/rows_pulled",
        "pulls/rows",
    ),
    count(
        "libra_worker_rows_pulled_total{path=\"hot\"}",
        "libra_job_rows_pulled_total{path=\"hot\"}",
        "worker/rows_pulled_hot",
        "pulls/rows_hot",
    ),
    count(
        "libra_worker_hot_packets_total",
        "libra_job_hot_packets_total",
        "worker/packets",
        "transport/packets",
    ),
    count(
        "libra_worker_hot_packets_total{kind=\"retransmit\"}",
        "libra_job_hot_packets_total{kind=\"retransmit\"}",
        "worker/retransmits",
        "transport/retransmits",
    ),
    count("libra_server_rounds_total", "libra_job_rounds_total", "server/rounds", "server/rounds"),
    count("libra_switch_rounds_total", "libra_job_switch_rounds_total", "switch/rounds", "switch/rounds"),
    count(
        "libra_switch_packets_total{outcome=\"added\"}",
        "libra_job_packets_added_total",
        "switch/pushes",
        "switch/pushes",
    ),
    count(
        "libra_server_row_updates_total",
        "libra_job_row_updates_total",
        "server/row_updates",
        "server/row_updates",
    ),
    count(
        "libra_server_row_updates_total{source=\"hot\"}",
        "libra_job_row_updates_total{source=\"hot\"}",
        "server/row_updates_hot",
        "server/row_updates_hot",
    ),
];

/// Compares all counts, to the last one.
pub(super) fn check(bodies: &[Body], job: &Job) -> Result<Finding> {
    let (event, report) = (job.done()?, job.report()?);
    let mut apart = Vec::new();
    for count in COUNTS {
        let members: u64 = bodies.iter().map(|body| sum::<u64>(&body.text, count.of_members)).sum();
        let controller: u64 = bodies
            .iter()
            .filter(|body| body.role == "controller")
            .map(|body| sum::<u64>(&body.text, count.of_job))
            .sum();
        let [event, report] = [(&event["totals"], count.in_event), (&report, count.in_report)]
            .map(|(document, path)| number(document, path));
        let (event, report) = (event?, report?);
        if [members, controller, event] != [report; 3] {
            apart.push(format!(
                "{}: {members} of members, {controller} of the controller, {event} in the last event, {report} in the report",
                count.in_report
            ));
        }
    }
    ensure!(apart.is_empty(), "{}", apart.join("\n"));
    let pushes = number(&report, "pushes/count")?;
    ensure!(pushes > 0, "there is no push");
    Ok(Finding::Passed(format!("{} counts in four places, of {pushes} pushes", COUNTS.len())))
}

fn number(document: &Value, path: &str) -> Result<u64> {
    let found = document.pointer(&format!("/{path}")).and_then(Value::as_u64);
    found.with_context(|| format!("there is no number {path}"))
}

/// The sum of the samples of this name, and with this label where one is named.
pub(crate) fn sum<N: FromStr + Sum>(text: &str, sample: &str) -> N {
    let (name, label) = sample.split_once('{').unwrap_or((sample, "}"));
    let label = label.trim_end_matches('}');
    let samples = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (of, labels) = series.split_once('{').unwrap_or((series, ""));
        (of == name && labels.contains(label)).then(|| value.parse().ok())?
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let text = "# TYPE a_total counter\na_total{m=\"x y\",k=\"hot\"} 3\na_total{m=\"z\",k=\"cold\"} 4\na_total_b 9\nb 5\n";
        assert_eq!((sum(text, "a_total"), sum(text, "a_total{k=\"hot\"}"), sum(text, "b")), (7, 3, 5));
        assert_eq!(sum::<u64>(text, "c"), 0);
    }
}
