//! A job of seven processes that answer over HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::LOOK_EVERY;
use crate::findings::Finding;
use crate::process::{self, Running, free_address};
use crate::{http, shell};

/// All processes: controller, two servers, a switch and its standby, two workers.
pub(super) const MEMBERS: usize = 7;
/// Time for which each answers after its end.
const LINGER: Duration = Duration::from_secs(15);
const TIME_MAX: Duration = Duration::from_secs(300);

pub(super) struct Job {
    /// The controller is the first.
    processes: Vec<Running>,
    http: SocketAddr,
    events: PathBuf,
    report: PathBuf,
    begun: Instant,
}

impl Job {
    /// Starts it; the controller answers at `http`, the others at any port.
    pub(super) fn start(libra: &Path, folder: &Path, http: SocketAddr, epochs: u32) -> Result<Self> {
        let listen = free_address()?.to_string();
        let (events, report) = (events_of(folder, "controller"), folder.join("report.json"));
        let linger = format!("--http-linger={}", LINGER.as_secs());
        let start = |name: &str, arguments: &[&str]| {
            let mut command = shell::program(libra, arguments);
            command.arg(&linger).arg(format!("--events={}", events_of(folder, name).display()));
            Running::start(name, command, folder.join(format!("{name}.log")))
        };
        let (at, epochs) = (format!("--http={http}"), format!("--epochs={epochs}"));
        let json = format!("--json={}", report.display());
        let controller = ["controller", "--listen", &listen, "--workers=2", "--servers=2", "--switches=1"];
        let options = ["--mode=ssp", "--log", "--checkpoint-every=3", &at, &epochs, &json];
        let mut processes = vec![start("controller", &[&controller[..], &options].concat())?];
        let any = "--http=127.0.0.1:0";
        for name in ["server0", "server1", "switch0", "switch1", "worker0", "worker1"] {
            let role = name.trim_end_matches(|last: char| last.is_ascii_digit());
            let state = format!("--state-dir={}", folder.join(format!("state-{name}")).display());
            let mut arguments = vec![role, "--controller", &listen, any];
            if role == "server" {
                arguments.push(&state);
            }
            processes.push(start(name, &arguments)?);
        }
        Ok(Self { processes, http, events, report, begun: Instant::now() })
    }

    /// An error if a process has failed, or takes too long.
    pub(super) fn check(&mut self) -> Result<()> {
        process::check_interrupt()?;
        for process in &mut self.processes {
            if let Some(status) = process.status()?
                && !status.success()
            {
                bail!("{} failed ({status})\n{}", process.name, process.tail());
            }
        }
        if self.begun.elapsed() > TIME_MAX {
            bail!("the job takes more than {} s\n{}", TIME_MAX.as_secs(), self.processes[0].tail());
        }
        Ok(())
    }

    /// The last event of the controller so far, of this kind.
    fn last_event(&self, kind: &str) -> Option<Value> {
        let text = fs::read_to_string(&self.events).unwrap_or_default();
        let events = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.into_iter().find(|event| event["event"] == kind)
    }

    pub(super) fn is_done(&self) -> bool {
        self.last_event("job_done").is_some()
    }

    /// Waits for the last event of the controller.
    pub(super) fn wait_until_done(&mut self) -> Result<()> {
        while !self.is_done() {
            self.check()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The last line of the events, which must be that of the end.
    pub(super) fn done(&self) -> Result<Value> {
        let text = fs::read_to_string(&self.events).context("cannot read the events")?;
        let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
        match last["event"].as_str() {
            Some("job_done") => Ok(last),
            other => bail!("the last event is {other:?}"),
        }
    }

    pub(super) fn report(&self) -> Result<Value> {
        let text = fs::read_to_string(&self.report).context("the job has left no report")?;
        serde_json::from_str(&text).context("the report is no JSON")
    }

    /// The number of the job, as a label.
    pub(super) fn number(&self) -> Result<String> {
        let text = http::get(self.http, "/sd", "application/json")?;
        let groups: Value = serde_json::from_str(&text).context("/sd is no JSON")?;
        groups[0]["labels"]["libra_job"].as_str().map(str::to_owned).context("/sd has no label libra_job")
    }

    /// Kills the switch that has regions when half of the samples are trained on.
    pub(super) fn kill_a_switch_at_half(&mut self) -> Result<()> {
        let half = |counts: Value| counts["progress"]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.5);
        while !self.last_event("job_counts").is_some_and(half) {
            self.check()?;
            std::thread::sleep(LOOK_EVERY);
        }
        let text = http::get(self.http, "/status", "application/json")?;
        let status: Value = serde_json::from_str(&text).context("/status is no JSON")?;
        let members = status["members"].as_array().context("/status has no members")?;
        let owner = members.iter().find(|member| member["kind"] == "switch" && member["regions"] != 0);
        let owner = owner.and_then(|member| member["member"].as_str()).context("no switch has a region")?;
        // They have joined in the order in which they came, not in that of their names.
        let names = ["switch0", "switch1"];
        let is_owner =
            |process: &Running| names.contains(&process.name.as_str()) && process.tail().contains(owner);
        let place = self.processes.iter().position(is_owner).with_context(|| format!("none is {owner}"))?;
        drop(self.processes.remove(place));
        Ok(())
    }

    /// Waits until all have ended.
    pub(super) fn finish(mut self) -> Result<Finding> {
        process::wait(&mut self.processes, Instant::now() + LINGER + Duration::from_secs(20))?;
        Ok(Finding::Passed(format!("{} processes", self.processes.len())))
    }
}

/// The file of the events of a process.
fn events_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}
