//! `cargo xtask flood`: the cost of strangers for a job. A soak of separate processes on loopback, three times: alone, beside a flood that goes
//! to sockets outside the job, and in the midst of one.
//!
//! The flood beside the job costs what it costs to make it, on the same processors. The difference between the last two is
//! the cost of being its target.

mod members;
mod strangers;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use self::members::{Member, Members};
use self::strangers::{Flood, Rates, Targets};
use crate::process::{self, Running};
use crate::{Outcome, shell};

/// Time that a soak may take to start and to end, beside its own time.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between the start of all members and the flood.
const QUIET_BEFORE: Duration = Duration::from_millis(1500);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct Options {
    /// Streams, over the whole flood: silent ones, slow ones, garbage, and promises of long messages
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    streams: u32,
    /// Datagrams, over the whole flood: garbage, and packets of no worker
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    datagrams: u32,
    /// Seconds of each soak; the flood lasts as long, but for the begin and the end
    #[arg(long, value_name = "S", default_value_t = 30)]
    seconds: u64,
    /// Soaks of each kind, in turns
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Share of the job's speed that must be left in the midst of a flood, relative to one beside the job
    #[arg(long, value_name = "F", default_value_t = 0.95)]
    speed_min: f64,
    /// Growth of the memory of a member that is allowed, in MiB
    #[arg(long, value_name = "N", default_value_t = 64.0)]
    growth_max: f64,
    /// Time that a new member may take to join, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    join_max: f64,
}

impl Options {
    /// Options of CI: short, and on a machine that does other things, so a speed is no figure there.
    pub(crate) fn for_ci() -> Self {
        Self {
            streams: 2000,
            datagrams: 100_000,
            seconds: 6,
            rounds: 1,
            // The flood has the same cores, and so may others: what it costs is measured where they are quiet.
            speed_min: 0.2,
            growth_max: 64.0,
            join_max: 1.0,
        }
    }
}

/// Target of a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Nowhere,
    Outside,
    Members,
}

impl fmt::Display for Aim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nowhere => "no flood",
            Self::Outside => "flood beside the job",
            Self::Members => "flood at members",
        })
    }
}

/// Result of a soak.
struct Run {
    aim: Aim,
    /// Pushes a second that were acknowledged.
    speed: f64,
    /// From the start of its process to its place in the cluster.
    joined: Option<Duration>,
    /// The members, with what their memory has grown by and the processor time that they took.
    members: Vec<Member>,
    /// Streams opened, and datagrams sent.
    sent: (u32, u32),
    /// Processor time of this process.
    flood_cpu: Duration,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    process::catch_interrupts()?;
    let descriptors = strangers::raise_limit(u64::from(options.streams) + 200);
    if let Err(error) = descriptors {
        return Ok(Outcome::Skipped(format!("{error:#}")));
    }
    let programs = shell::programs(&["libra", "libra-lab"])?;
    let folder = shell::target_directory()?.join("flood");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let testbed = Testbed { programs, folder, options };
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        let mut aims = [Aim::Nowhere, Aim::Outside, Aim::Members];
        if round % 2 == 1 {
            aims.reverse();
        }
        for aim in aims {
            let run = testbed.run(aim).with_context(|| format!("the soak with {aim}"))?;
            run.print();
            runs.push(run);
        }
    }
    judge(options, &runs)?;
    Ok(Outcome::Passed)
}

struct Testbed<'a> {
    programs: PathBuf,
    folder: PathBuf,
    options: &'a Options,
}

impl Testbed<'_> {
    fn run(&self, aim: Aim) -> Result<Run> {
        let json = self.folder.join("soak.json");
        drop(std::fs::remove_file(&json));
        let seconds = format!("--seconds={}", self.options.seconds);
        let mut soak =
            shell::program(self.programs.join("libra-lab"), &["soak", "--standby=0", &seconds, "--json"]);
        soak.arg(&json);
        let mut soak = Running::start("soak", soak, self.folder.join("soak.log"))?;
        // Controller, two servers, a switch, two workers.
        let mut members = Members::find(&mut soak, 6)?;
        pause(&mut soak, QUIET_BEFORE)?;
        members.begin()?;
        let targets = match aim {
            Aim::Nowhere => None,
            Aim::Outside => Some(Targets::outside_of_job()?),
            Aim::Members => Some(Targets { streams: members.streams(), datagrams: members.datagrams() }),
        };
        let length = Duration::from_secs(self.options.seconds.saturating_sub(3).max(1));
        let rates = Rates { streams: self.options.streams, datagrams: self.options.datagrams, length };
        let before = members::own_cpu()?;
        let flood = targets.map(|targets| Flood::begin(targets, rates));
        // Half of it is there when a new member joins.
        watch(&mut soak, &mut members, length / 2)?;
        let (joined, switch) = self.join(&members, &mut soak)?;
        watch(&mut soak, &mut members, length / 2)?;
        let sent = flood.map(Flood::end).transpose()?.unwrap_or_default();
        let flood_cpu = members::own_cpu()?.saturating_sub(before);
        soak.finish(LIMIT)?;
        switch.finish(LIMIT).context("the switch that has joined does not end with the job")?;
        let speed = speed(&json, self.options.seconds)?;
        Ok(Run { aim, speed, joined: Some(joined), members: members.all, sent, flood_cpu })
    }

    /// A switch comes, and is a member when it has received its place.
    fn join(&self, members: &Members, soak: &mut Running) -> Result<(Duration, Running)> {
        let log = self.folder.join("switch.log");
        let controller = members.controller().to_string();
        let arguments = ["switch", "--controller", &controller];
        let start = Instant::now();
        let mut switch =
            Running::start("switch", shell::program(self.programs.join("libra"), &arguments), log)?;
        while !switch.has_printed("the cluster is complete") {
            process::check_interrupt()?;
            if switch.status()?.is_some() || soak.status()?.is_some() || start.elapsed() > LIMIT {
                bail!("the switch was not taken in\n{}\n{}", switch.tail(), soak.tail());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok((start.elapsed(), switch))
    }
}

/// Pushes a second that were acknowledged; all sums must be right, too.
fn speed(json: &Path, seconds: u64) -> Result<f64> {
    let text = std::fs::read_to_string(json).context("the soak left no report")?;
    let report: Value = serde_json::from_str(&text).context("the soak's report is not JSON")?;
    if report["equal"] != Value::Bool(true) {
        bail!("the sums are not equal to the bit: {text}");
    }
    let pushes = report["pushes"]["acknowledged"].as_f64().context("the report has no number of pushes")?;
    #[expect(clippy::cast_precision_loss, reason = "it is a number of seconds")]
    Ok(pushes / seconds as f64)
}

fn pause(soak: &mut Running, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        process::check_interrupt()?;
        if let Some(status) = soak.status()? {
            bail!("the soak ended before its time ({status})\n{}", soak.tail());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Looks at the memory of the members for so long.
fn watch(soak: &mut Running, members: &mut Members, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        pause(soak, LOOK_EVERY)?;
        members.look()?;
    }
    Ok(())
}

impl Run {
    fn growth(&self) -> f64 {
        self.members.iter().map(Member::growth).fold(0.0, f64::max)
    }

    /// Pushes by processor time of all members: what other processes of the machine take does not change it.
    fn efficiency(&self) -> f64 {
        self.speed / self.members.iter().map(|member| member.cpu().as_secs_f64()).sum::<f64>()
    }

    fn print(&self) {
        let joined =
            self.joined.map_or_else(String::new, |time| format!("{:.0} ms", 1e3 * time.as_secs_f64()));
        println!(
            "{:<17} {:>9.0} pushes/s, a switch joined in {joined}, {} streams and {} datagrams in {:.1} s of a processor",
            self.aim.to_string(),
            self.speed,
            self.sent.0,
            self.sent.1,
            self.flood_cpu.as_secs_f64(),
        );
        for member in &self.members {
            println!("    {member}");
        }
    }
}

/// Compares what was with what may be.
fn judge(options: &Options, runs: &[Run]) -> Result<()> {
    let mean = |aim, figure: fn(&Run) -> f64| {
        let speeds: Vec<f64> = runs.iter().filter(|run| run.aim == aim).map(figure).collect();
        #[expect(clippy::cast_precision_loss, reason = "there are a few")]
        let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
        mean
    };
    let of = |aim| mean(aim, |run| run.speed);
    let (alone, beside, amid) = (of(Aim::Nowhere), of(Aim::Outside), of(Aim::Members));
    let efficiency = mean(Aim::Members, Run::efficiency) / mean(Aim::Outside, Run::efficiency);
    let amid_runs = || runs.iter().filter(|run| run.aim == Aim::Members);
    let growth = amid_runs().map(Run::growth).fold(0.0, f64::max);
    let joined = amid_runs().filter_map(|run| run.joined).max().unwrap_or_default().as_secs_f64();
    let rows = [
        (
            "speed, of a flood beside the job",
            amid / beside,
            amid / beside >= options.speed_min,
            options.speed_min,
        ),
        ("speed, of no flood (not judged)", amid / alone, true, 0.0),
        ("pushes by processor time (not judged)", efficiency, true, 0.0),
        ("memory of a member, MiB more", growth, growth <= options.growth_max, options.growth_max),
        ("a new member is in, s", joined, joined <= options.join_max, options.join_max),
    ];
    for (what, is, holds, bound) in rows {
        println!("{what:<38} {is:>8.3} {:>8.3}  {}", bound, if holds { "ok" } else { "BREACH" });
    }
    match rows.iter().find(|(_, _, holds, _)| !holds) {
        Some((what, is, _, bound)) => bail!("{what}: {is:.3}, where {bound:.3} is the bound"),
        None => Ok(()),
    }
}
