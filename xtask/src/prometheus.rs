//! `cargo xtask prometheus`: the files of `deploy/` with a real Prometheus, during a real job of seven processes.
//!
//! One URL of the controller must find all members, each expression of each dashboard and alert must have a series, and the last scrape, the
//! last event and the report must tell the same counts.

mod agreement;
mod api;
mod events;
mod expressions;
mod files;
mod job;
mod scrapes;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::findings::{self, Findings};
use crate::process::{self, Running, free_address};
use crate::shell::starts;
use crate::{Outcome, shell};
pub(crate) use agreement::sum;
use api::Prometheus;
use job::Job;

/// Time for a process to start, and for Prometheus to find what has started.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    step: findings::StepOptions,
    /// Epochs of the job: some 20 s of training are needed
    #[arg(long, value_name = "N", default_value_t = 30)]
    epochs: u32,
    /// Time that 99 of 100 scrapes may take, in ms
    #[arg(long, value_name = "MS", default_value_t = 20.0)]
    scrape_max: f64,
    /// Kills the switch of another such job, and draws the dashboard of that job
    #[arg(long, value_name = "SVG")]
    picture: Option<PathBuf>,
}

impl Options {
    /// Options of CI, whose cores others may have: a time is no figure there.
    pub(crate) fn for_ci() -> Self {
        Self { step: findings::StepOptions::default(), epochs: 30, scrape_max: 500.0, picture: None }
    }
}

/// Folders of this step.
struct Directory {
    /// The files under test.
    sources: PathBuf,
    /// Directory that processes write to.
    made: PathBuf,
    /// Packages of npm and Python that `.ci/run` has installed.
    tools: PathBuf,
}

impl Directory {
    fn new() -> Result<Self> {
        let target = shell::target_directory()?;
        let made = target.join("prometheus");
        shell::remove_directory(&made)?;
        std::fs::create_dir_all(&made).with_context(|| format!("cannot make {}", made.display()))?;
        Ok(Self { sources: shell::root().join("deploy"), made, tools: target.join("tools") })
    }
}

impl Directory {
    /// Packages of Python.
    fn packages(&self) -> PathBuf {
        self.tools.join("python")
    }
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let missing: Vec<_> = ["prometheus", "promtool"].into_iter().filter(|program| !starts(program)).collect();
    if !missing.is_empty() {
        let reason = format!("there is no {} (apt-get install prometheus)", missing.join(", "));
        return options.step.skip(reason);
    }
    process::catch_interrupts()?;
    let libra = options.step.binary()?;
    let directory = Directory::new()?;
    if let Some(picture) = &options.picture {
        return draw(&libra, &directory, options.epochs, picture);
    }
    let mut findings = Findings::default();
    findings.note("configuration", files::configuration(&directory));
    findings.note("rules and their tests", files::rules(&directory));
    findings.note("dashboards are made", files::dashboards_are_made(&directory));
    findings.note("types of dashboards", files::types(&directory));
    watch_job(&libra, &directory, options, &mut findings)?;
    findings.outcome(options.step.required)
}

/// Runs a job beside a Prometheus, and checks what that has of it.
fn watch_job(libra: &Path, directory: &Directory, options: &Options, findings: &mut Findings) -> Result<()> {
    let [http, exporter] = [free_address()?, free_address()?];
    let watch = Watch::start(directory, http, exporter)?;
    let mut job = Job::start(libra, &directory.made, http, options.epochs)?;
    let found = scrapes::members_are_found(watch.prometheus, &mut job);
    let found_all = found.is_ok();
    findings.note("members are found", found);
    let is_warm = Instant::now();
    if found_all {
        let has_exporter = watch.exporter.is_some();
        findings.note("alerts", scrapes::alerts(directory, watch.prometheus, has_exporter, &mut job));
        findings.note("dashboards", scrapes::dashboards(directory, watch.prometheus, has_exporter, &mut job));
        let bodies = scrapes::bodies(watch.prometheus);
        match bodies {
            Ok(bodies) => {
                findings.note("promtool check metrics", scrapes::text_is_sound(&bodies));
                findings.note("parser of OpenMetrics", scrapes::open_metrics_are_sound(directory, &bodies));
                findings.note("bytes of a scrape", scrapes::are_small(&bodies));
            }
            Err(error) => findings.note("bodies", Err(error)),
        }
    }
    let ended = job.wait_until_done().and_then(|()| scrapes::bodies(watch.prometheus));
    findings.note("time of a scrape", scrapes::are_fast(watch.prometheus, is_warm, options.scrape_max));
    findings.note("counts agree", ended.and_then(|bodies| agreement::check(&bodies, &job)));
    findings.note("members end well", job.finish());
    findings.note("events", events::follow_schema(directory));
    Ok(())
}

/// Kills the switch of a job in the midst of it, and draws the dashboard of the job.
fn draw(libra: &Path, directory: &Directory, epochs: u32, picture: &Path) -> Result<Outcome> {
    let http = free_address()?;
    let watch = Watch::start(directory, http, free_address()?)?;
    let mut job = Job::start(libra, &directory.made, http, epochs)?;
    scrapes::members_are_found(watch.prometheus, &mut job)?;
    job.kill_a_switch_at_half()?;
    job.wait_until_done()?;
    let picture = std::path::absolute(picture).context("cannot make the path of the picture absolute")?;
    let mut render = shell::program("python3", &["deploy/grafana/render.py"]);
    render.arg("--prometheus").arg(format!("http://{}", watch.prometheus.0)).arg("--job").arg(job.number()?);
    render.arg("deploy/grafana/job.json").arg(&picture);
    shell::run(render)?;
    println!("{} is drawn", picture.display());
    Ok(Outcome::Passed)
}

/// A Prometheus, and the exporter of this machine if it is installed.
struct Watch {
    prometheus: Prometheus,
    exporter: Option<Running>,
    _running: Running,
}

impl Watch {
    /// Starts it with the configuration under test, once a second.
    fn start(directory: &Directory, controller: SocketAddr, exporter: SocketAddr) -> Result<Self> {
        let configuration = files::configuration_of_job(directory, controller, exporter)?;
        let prometheus = Prometheus(free_address()?);
        let mut command =
            shell::program("prometheus", &["--log.level=warn", "--storage.tsdb.retention.time=1d"]);
        command.arg(format!("--config.file={}", configuration.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.made.join("data").display()));
        command.arg(format!("--web.listen-address={}", prometheus.0));
        let mut running = Running::start("prometheus", command, directory.made.join("prometheus.log"))?;
        let exporter = match starts("prometheus-node-exporter") {
            true => {
                let mut command = shell::program("prometheus-node-exporter", &["--log.level=error"]);
                command.arg(format!("--web.listen-address={exporter}"));
                Some(Running::start("exporter", command, directory.made.join("exporter.log"))?)
            }
            false => None,
        };
        let deadline = Instant::now() + START_MAX;
        while !prometheus.is_ready() {
            process::check_interrupt()?;
            if running.status()?.is_some() || Instant::now() > deadline {
                bail!("Prometheus is not ready\n{}", running.tail());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Self { prometheus, exporter, _running: running })
    }
}

/// Runs a program on a text. What it prints to stderr is a complaint.
fn fed(program: &str, arguments: &[&str], text: &str, packages: Option<&Path>) -> Result<String> {
    let mut command = shell::program(program, arguments);
    if let Some(packages) = packages {
        command.env("PYTHONPATH", packages);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut input = child.stdin.take().context("it has no standard input")?;
    input.write_all(text.as_bytes()).with_context(|| format!("{program} does not read"))?;
    drop(input);
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && complaint.is_empty(), "{program}: {}", complaint.trim());
    Ok(String::from_utf8(output.stdout)?)
}
