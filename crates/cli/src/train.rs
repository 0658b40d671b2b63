//! `libra train`: a whole cluster on this machine, each member on a thread of its own, over real sockets.

mod local;
mod recorders;
mod strikes;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use libra_net::ControllerNode;
use serde_json::json;

use self::local::Local;
use self::recorders::Recorders;
use self::strikes::Strike;
use libra_launch::arguments::FaultArguments;
use libra_launch::job::{Job, JobArguments};
use libra_launch::strike::{Kill, Moment, Victim};

/// What aggregates the hot rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SwitchKind {
    /// A software switch on a UDP socket
    Udp,
    /// None: every row goes to the servers
    None,
}

/// How often rows are checkpointed if there is a place for it and nobody says how often.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(300);

/// Starts a whole cluster on this machine and trains a model on it.
///
/// Without options: NeuMF on built-in data, 2 workers, 2 servers and a software switch, in well under a minute.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// Where servers keep a log (--log) and checkpoints; without --checkpoint-every one every 300 s, and one at the end
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// What aggregates the hot rows
    #[arg(long, value_enum, default_value = "udp")]
    switch: SwitchKind,
    /// Switches that the regions of hot rows are dealt to
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    switches: u16,
    /// Keeps every push of every worker, rows and gradients, in files of this directory: for `libra-lab bench simulate --recording`
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    #[command(flatten)]
    trouble: Trouble,
    #[command(flatten)]
    faults: FaultArguments,
}

/// What is to befall the cluster.
#[derive(Args, Debug)]
struct Trouble {
    /// Switches beyond those, which take over from one that dies
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    standby: u16,
    /// Kills a switch, that long after training began: `switch@10s`; several with commas between
    #[arg(long, value_name = "SWITCH@TIME", value_delimiter = ',')]
    kill: Vec<Kill>,
    /// Moves what a switch holds to another, that long after training began: `10s`; several with commas between
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    migrate: Vec<Moment>,
}

impl Trouble {
    /// What befalls the switches, in its order.
    fn strikes(&self) -> Result<Vec<Strike>> {
        if let Some(kill) = self.kill.iter().find(|kill| kill.victim != Victim::Switch) {
            bail!(
                "--kill {kill}: here all members are threads of one process, and only a switch can be killed; \
                 `libra-lab soak --kill {kill}` kills processes"
            );
        }
        let kills = self.kill.iter().map(|kill| Strike::kill(kill.at));
        let mut strikes: Vec<Strike> =
            kills.chain(self.migrate.iter().map(|moment| Strike::migrate(moment.0))).collect();
        strikes.sort_by_key(|strike| strike.at);
        Ok(strikes)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let FaultArguments { loss, duplicate, reorder } = arguments.faults;
    let rates = arguments.faults.rates()?;
    let strikes = arguments.trouble.strikes()?;
    let (switches, kind) = match arguments.switch {
        SwitchKind::Udp => (arguments.switches, "udp"),
        SwitchKind::None => (0, "none"),
    };
    let standbys = arguments.trouble.standby;
    if switches == 0 && (standbys > 0 || !strikes.is_empty()) {
        bail!("with --switch none there is no switch to kill, to relieve or to stand by for");
    }
    if arguments.state.is_none() && arguments.job.durability.needs_disk() {
        bail!("--log, --checkpoint-every and --load need --state DIR, where servers keep what they have");
    }
    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let mut job = Job::prepare(&arguments.job, switches, controller.address())?;
    if arguments.state.is_some() {
        job.cluster.durability.checkpoint_every.get_or_insert(CHECKPOINT_EVERY);
    }
    let state = arguments.state.clone();
    let recorders = arguments.record.as_ref().map(|path| Recorders::create(path, &job)).transpose()?;
    let local = Local {
        rates,
        job: &job,
        bars: arguments.job.bars(),
        standbys,
        strikes,
        state,
        recorders: recorders.clone(),
    };
    let (outcome, chronicle, unkept) = local.run(controller)?;
    let more = json!({
        "command": "train",
        "switch": kind,
        "switches": switches,
        "standby": standbys,
        "loss": loss,
        "duplicate": duplicate,
        "reorder": reorder,
        "record": arguments.record,
    });
    arguments.job.report(&job, &outcome, &chronicle, started, more)?;
    let unkept = unkept.or_else(|| recorders.and_then(|recorders| recorders.failure()));
    unkept.map_or(Ok(()), |reason| bail!(reason))
}
