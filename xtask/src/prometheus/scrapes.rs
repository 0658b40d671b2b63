//! Checks of what a Prometheus has of a job that runs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::api::{OPEN_METRICS, Prometheus, TEXT};
use super::expressions::{self, Expression};
use super::job::{Job, MEMBERS};
use super::{Directory, LOOK_EVERY, START_MAX, fed, files};
use crate::findings::Finding;
use crate::http;

const BODY_BYTES_MAX: usize = 64 << 10;
/// Scrapes that a percentile is of.
const SCRAPES_MIN: usize = 100;
/// Between two looks at expressions that have no series yet.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The metrics of a member.
pub(super) struct Body {
    pub(super) member: String,
    pub(super) role: String,
    pub(super) text: String,
    open_metrics: String,
}

/// Waits until one URL has found all members, and all answer.
pub(super) fn members_are_found(prometheus: Prometheus, job: &mut Job) -> Result<Finding> {
    let deadline = Instant::now() + START_MAX;
    loop {
        job.check()?;
        let up = prometheus.members_up()?;
        if up.len() == MEMBERS {
            let label = |name: &str| {
                up.iter().filter_map(|(labels, _)| labels[name].as_str()).collect::<BTreeSet<_>>()
            };
            let (roles, members) = (label("role"), label("member"));
            ensure!(roles.len() == 4 && members.len() == MEMBERS, "the labels are of {roles:?}, {members:?}");
            let members: Vec<_> = members.into_iter().collect();
            return Ok(Finding::Passed(format!("{MEMBERS} by one URL: {}", members.join(", "))));
        }
        ensure!(Instant::now() < deadline, "{} of {MEMBERS} are found: {up:?}", up.len());
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Checks the alerts that are loaded: their evaluation, their links, and that what they look at is there.
pub(super) fn alerts(
    directory: &Directory,
    prometheus: Prometheus,
    has_exporter: bool,
    job: &mut Job,
) -> Result<Finding> {
    let data = prometheus.api("rules?type=alert")?;
    let groups = data["groups"].as_array().cloned().unwrap_or_default();
    let rules: Vec<_> = groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
    ensure!(!rules.is_empty(), "no alerts are loaded");
    let mut selectors = Vec::new();
    for rule in &rules {
        let name = rule["name"].as_str().unwrap_or_default();
        ensure!(rule["health"] != "err", "{name}: {}", rule["lastError"]);
        let link =
            rule["annotations"]["runbook_url"].as_str().with_context(|| format!("{name} has no link"))?;
        files::heading(link)?;
        selectors.extend(expressions::selectors(name, rule["query"].as_str().unwrap_or_default()));
    }
    let found = all_have_series(prometheus, selectors, has_exporter, job)?;
    let folder = directory.sources.join("prometheus");
    ensure!(folder.is_dir(), "there is no {}", folder.display());
    Ok(found.finding(&format!("{} alerts", rules.len())))
}

pub(super) fn dashboards(
    directory: &Directory,
    prometheus: Prometheus,
    has_exporter: bool,
    job: &mut Job,
) -> Result<Finding> {
    let all = expressions::of_dashboards(directory, &job.number()?)?;
    let found = all_have_series(prometheus, all, has_exporter, job)?;
    Ok(found.finding(&format!("{} dashboards", expressions::DASHBOARDS.len())))
}

/// Expressions that have a series, and those that were left out.
struct Found {
    count: usize,
    left_out: usize,
}

impl Found {
    fn finding(&self, of: &str) -> Finding {
        let Self { count, left_out } = self;
        match left_out {
            0 => Finding::Passed(format!("{of}: all {count} expressions have series")),
            _ => Finding::Skipped(format!(
                "{of}: {count} expressions have series, {left_out} need prometheus-node-exporter"
            )),
        }
    }
}

/// Asks until each expression has had a series. The job must not end before.
fn all_have_series(
    prometheus: Prometheus,
    expressions: Vec<Expression>,
    has_exporter: bool,
    job: &mut Job,
) -> Result<Found> {
    let (mut waiting, left_out): (Vec<_>, Vec<_>) =
        expressions.into_iter().partition(|expression| has_exporter || !expression.needs_node_exporter());
    let count = waiting.len();
    loop {
        let is_last = job.is_done();
        job.check()?;
        let mut without = Vec::new();
        for expression in waiting {
            let series = prometheus.query(&expression.text).with_context(|| expression.of.clone())?;
            if series.is_empty() {
                without.push(expression);
            }
        }
        waiting = without;
        if waiting.is_empty() {
            return Ok(Found { count, left_out: left_out.len() });
        }
        if is_last {
            let named: Vec<_> =
                waiting.iter().map(|Expression { of, text }| format!("{of}: {text}")).collect();
            bail!("{} of {count} have no series during the job:\n{}", named.len(), named.join("\n"));
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Scrapes all members, as Prometheus does and as others may.
pub(super) fn bodies(prometheus: Prometheus) -> Result<Vec<Body>> {
    let body = |(labels, address): (serde_json::Value, SocketAddr)| {
        let label = |name: &str| labels[name].as_str().unwrap_or_default().to_owned();
        let get = |accept| http::get(address, "/metrics", accept);
        let (text, open_metrics) = (get(TEXT)?, get(OPEN_METRICS)?);
        Ok(Body { member: label("member"), role: label("role"), text, open_metrics })
    };
    let bodies = prometheus.members_up()?.into_iter().map(body).collect::<Result<Vec<_>>>()?;
    ensure!(bodies.len() == MEMBERS, "{} of {MEMBERS} members answer", bodies.len());
    Ok(bodies)
}

pub(super) fn text_is_sound(bodies: &[Body]) -> Result<Finding> {
    for body in bodies {
        fed("promtool", &["check", "metrics"], &body.text, None).with_context(|| body.member.clone())?;
    }
    Ok(Finding::Passed(format!("{} bodies without complaint", bodies.len())))
}

/// Parses each body with the client of Prometheus for Python, which is strict.
pub(super) fn open_metrics_are_sound(directory: &Directory, bodies: &[Body]) -> Result<Finding> {
    const PARSE: &str = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                         print(len(list(parse(sys.stdin.read()))))";
    let packages = directory.packages();
    if fed("python3", &["-c", "import prometheus_client"], "", Some(&packages)).is_err() {
        let what = format!("prometheus_client is not in {}", packages.display());
        return Ok(Finding::Skipped(format!("{what}: .ci/run installs it")));
    }
    let mut families = 0;
    for body in bodies {
        let printed = fed("python3", &["-c", PARSE], &body.open_metrics, Some(&packages))
            .with_context(|| body.member.clone())?;
        families += printed.trim().parse::<usize>().context("the parser has printed no number")?;
    }
    Ok(Finding::Passed(format!("{} bodies, {families} families", bodies.len())))
}

pub(super) fn are_small(bodies: &[Body]) -> Result<Finding> {
    let largest = bodies.iter().max_by_key(|body| body.open_metrics.len()).context("there is no body")?;
    let bytes = largest.open_metrics.len();
    ensure!(bytes <= BODY_BYTES_MAX, "{} has {bytes} bytes, at most {BODY_BYTES_MAX}", largest.member);
    Ok(Finding::Passed(format!("{bytes} at most, of {}; the limit is {BODY_BYTES_MAX}", largest.member)))
}

/// Checks the 99th percentile of the durations that Prometheus has measured since then, of all members. The first scrapes of a member,
/// while all start, are slower; the last are as fast as any, so a job that ends soon on a fast machine is watched some seconds longer.
pub(super) fn are_fast(prometheus: Prometheus, since: Instant, limit_ms: f64) -> Result<Finding> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut durations = loop {
        let seconds = since.elapsed().as_secs().max(1);
        let durations =
            prometheus.samples(&format!("scrape_duration_seconds{{job=\"libra\"}}[{seconds}s]"))?;
        if durations.len() >= SCRAPES_MIN {
            break durations;
        }
        ensure!(Instant::now() < deadline, "only {} scrapes", durations.len());
        std::thread::sleep(ASK_EVERY);
    };
    durations.sort_by(f64::total_cmp);
    let ms = |percent: usize| 1e3 * durations[percent * (durations.len() - 1) / 100];
    let (median, most) = (ms(50), ms(99));
    let found = format!(
        "median {median:.1} ms, p99 {most:.1} ms of {} scrapes; the limit is {limit_ms} ms",
        durations.len()
    );
    ensure!(most <= limit_ms, "{found}");
    Ok(Finding::Passed(found))
}
