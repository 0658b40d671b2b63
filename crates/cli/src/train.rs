//! `libra train`: a whole cluster on this machine, each member on a thread of its own, over real sockets.

mod faults;
mod local;
mod recorders;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use libra_client::{LocalOptions, Security};
use serde_json::json;

use self::faults::ScheduledFault;
use self::local::Local;
use self::recorders::Recorders;
use libra_launch::arguments::{CHECKPOINT_EVERY, FaultArguments, parse_bytes};
use libra_launch::commits::Committer;
use libra_launch::event_log::{EventLog, FaultKind};
use libra_launch::fault_schedule::{Moment, Target, TargetAt};
use libra_launch::job::{Job, JobArguments};
use libra_launch::state_directory::StateDirectory;
use libra_launch::watching::{CommandArguments, ControllerWatch, WatchArguments};

/// Kind of switch that aggregates the hot rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SwitchKind {
    /// A software switch on a UDP socket
    Udp,
    /// None: every row goes to the servers
    None,
}

/// Starts a whole cluster on this machine and trains a model on it.
///
/// Without options: NeuMF on built-in data, 2 workers, 2 servers and a software switch, in well under a minute.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// Directory of the servers' logs (--log) and checkpoints; without --checkpoint-every one every 300 s, and one at the end. With `none`, or
    /// without it, checkpoints of a job without log are at the URL of --checkpoints alone
    #[arg(long, alias = "state", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Memory for the rows of each server, as in 512MiB or 2GiB; those that were not used for long are in a file in the state directory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "state_dir")]
    memory_limit: Option<u64>,
    /// Kind of switch that aggregates the hot rows
    #[arg(long, value_enum, default_value = "udp")]
    switch: SwitchKind,
    /// Switches that the regions of hot rows are dealt to
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    switches: u16,
    /// Keeps every push of every worker, rows and gradients, in files of this directory: for `libra-lab bench simulate --recording`
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Shards of each server, on a thread each. Workers need cores, too, and all are in this process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards_per_server: u16,
    #[command(flatten)]
    schedule: FaultSchedule,
    #[command(flatten)]
    faults: FaultArguments,
    #[command(flatten)]
    watch: WatchArguments,
    #[command(flatten)]
    commands: CommandArguments,
}

/// Faults of the switches at set times.
#[derive(Args, Debug)]
struct FaultSchedule {
    /// Switches beyond those, which take over from one that dies
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    standby: u16,
    /// Kills a switch, that long after training began: `switch@10s`; several with commas between
    #[arg(long, value_name = "SWITCH@TIME", value_delimiter = ',')]
    kill: Vec<TargetAt>,
    /// Moves what a switch holds to another, that long after training began: `10s`; several with commas between
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    migrate: Vec<Moment>,
}

impl FaultSchedule {
    /// Returns the faults in the order of their times.
    fn faults(&self) -> Result<Vec<ScheduledFault>> {
        if let Some(kill) = self.kill.iter().find(|kill| kill.target != Target::Switch) {
            bail!(
                "--kill {kill}: here all members are threads of one process, and only a switch can be killed; \
                 `libra-lab soak --kill {kill}` kills processes"
            );
        }
        let kills = self.kill.iter().map(|kill| ScheduledFault { kind: FaultKind::Killed, at: kill.at });
        let migrations = self.migrate.iter().map(|at| ScheduledFault { kind: FaultKind::Migrated, at: at.0 });
        let mut faults: Vec<ScheduledFault> = kills.chain(migrations).collect();
        faults.sort_by_key(|fault| fault.at);
        Ok(faults)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut watch = arguments.watch.controller(&arguments.commands, false, arguments.job.bars())?;
    watch.fail_when_interrupted();
    watch.fail_when_terminated();
    let ended = train(arguments, &mut watch);
    if let Err(error) = &ended {
        watch.ended(Err(format!("{error:#}")));
    }
    watch.finish();
    ended
}

fn train(arguments: &Arguments, watch: &mut ControllerWatch) -> Result<()> {
    let started = Instant::now();
    let FaultArguments { loss, duplicate, reorder } = arguments.faults;
    let rates = arguments.faults.rates()?;
    let faults = arguments.schedule.faults()?;
    let (switches, kind) = match arguments.switch {
        SwitchKind::Udp => (arguments.switches, "udp"),
        SwitchKind::None => (0, "none"),
    };
    let standbys = arguments.schedule.standby;
    if switches == 0 && (standbys > 0 || !faults.is_empty()) {
        bail!("with --switch none there is no switch to kill, to relieve or to stand by for");
    }
    let durability = &arguments.job.durability;
    let is_limited = arguments.memory_limit.is_some();
    // It lasts until all has been uploaded.
    let state = StateDirectory::of_job(arguments.state_dir.as_deref(), is_limited, durability)?;
    durability.refuse_moment_alone(state.is_some())?;
    arguments.job.refuse_elastic()?;
    arguments.job.begin()?;
    let controller = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let more = json!({
        "command": "train",
        "switch": kind,
        "switches": switches,
        "standby": standbys,
        "memory_limit": arguments.memory_limit,
        "loss": loss,
        "duplicate": duplicate,
        "reorder": reorder,
        "record": arguments.record,
    });
    let resume = arguments.job.resume()?;
    if let Some((job, outcome)) = arguments.job.done_before(resume.as_ref(), controller)? {
        return arguments.job.report(&job, &outcome, &EventLog::default(), started, more, watch);
    }
    let committer = Committer::start(&arguments.job.durability, arguments.job.bars(), watch.events())?;
    let mut job = Job::prepare(&arguments.job, resume.as_ref(), switches, controller)?;
    committer.as_ref().map_or(Ok(()), |committer| committer.claim(&mut job.spec.durability))?;
    if state.is_some() {
        job.spec.durability.checkpoint_every.get_or_insert(CHECKPOINT_EVERY);
    }
    let recorders = arguments.record.as_ref().map(|path| Recorders::create(path, &job)).transpose()?;
    let local = Local {
        job: &job,
        options: LocalOptions {
            faults: rates,
            state_dir: state.as_ref().map(|state| state.path().to_owned()),
            memory_limit: arguments.memory_limit,
            standbys,
            shards_per_server: arguments.shards_per_server,
            // All members are in this process.
            security: Security::NONE,
            inspector: watch.inspector(),
            members: watch.members(),
        },
        faults,
        recorders: recorders.clone(),
        bars: arguments.job.bars(),
        commits: Committer::commits(committer.as_ref()),
        arguments: &arguments.job,
    };
    let (outcome, events, unwritten) = local.run(watch)?;
    let uncommitted = committer.and_then(|committer| committer.finish(unwritten.is_none(), true));
    arguments.job.report(&job, &outcome, &events, started, more, watch)?;
    let failure = unwritten.or(uncommitted).or_else(|| recorders.and_then(|recorders| recorders.failure()));
    failure.map_or(Ok(()), |reason| bail!(reason))
}
