//! `libra-lab soak`: a cluster of processes that add up known numbers, and some of which are killed.
//!
//! ```text
//!  parent ──▶ libra-lab soak --role controller ──▶ notes of what happens ─────────┐
//!         ──▶ libra server, libra switch                                      ├──▶ equal to the bit? ──▶ table, JSON
//!         ──▶ libra-lab soak --role worker ──▶ records of pushes, rows at the end ┘
//! ```
//!
//! The contents of a push follow from the seed, the worker and the push alone ([`load`]), and its fate is in the records
//! of its worker ([`records`]), which outlive it. So the parent can work out what every row must hold ([`check`]).

mod check;
mod controller;
mod history;
mod load;
mod processes;
mod records;
mod report;
mod runner;
mod worker;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use libra_net::{FaultRates, NodeOptions, Security};
use libra_proto::{Durability, FLOW_PACKETS_MAX, Sizes};
use serde::{Deserialize, Serialize};

use self::load::Load;
use self::records::wall_clock;
use self::report::Report;
use self::runner::SoakRunner;
use crate::security::StreamSecurity;
use libra_launch::arguments::{FaultArguments, clear, parse_bytes, positive_seconds};
use libra_launch::fault_schedule::{Moment, Target, TargetAt};
use libra_launch::interrupt;
use libra_launch::parent_guard;
use libra_launch::plane::SwitchPlane;
use libra_launch::progress::Bars;

/// Time that the cluster has to assemble before the time of a soak begins.
const PRELUDE: Duration = Duration::from_millis(1500);

/// Runs a cluster of processes on this machine, kills some of them, and compares what the rows hold at the end with what was
/// acknowledged, to the bit.
///
/// Workers push whole numbers all the time. What was killed is started again: a switch, as a standby, and a worker after a second, a server
/// and the controller at once (--away); every other server at another address, or each with --namespaces. Exit code 1 if a single bit is wrong; but a server without a log loses what came after its last
/// checkpoint, and that is only counted. Without a kill it is also 1 if a server has lost a push, or if a standby was there and
/// something was left to replay.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32))]
    workers: u16,
    /// Servers; the rows are dealt to their shards
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32))]
    servers: u16,
    /// Shards of each server, on a thread each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32))]
    shards_per_server: u16,
    /// Switches that the regions of hot rows are dealt to
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    switches: u16,
    /// Switches beyond those, which take over from one that dies
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=32))]
    standby: u16,
    /// Data plane of switches. With xdp and p4 it makes network namespaces, and puts every switch into one: that needs root
    #[arg(long, value_name = "PLANE", value_enum, default_value_t)]
    plane: SwitchPlane,
    /// With --plane p4: the compiled program, which a bmv2 beside each switch runs
    #[arg(long, value_name = "FILE")]
    bmv2: Option<PathBuf>,
    /// Lanes of switches, as of those that wire each place of a packet to a register; a row has a value for each worker, and no more than lanes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=240))]
    lanes: u8,
    /// Seconds for which workers push
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    #[command(flatten)]
    faults: FaultArguments,
    /// Servers keep a log, and one that is killed goes on where it was
    #[arg(long)]
    log: bool,
    /// Servers write a checkpoint so often; one that is killed without a log goes on from its last one, and what came after is lost
    #[arg(long, value_name = "S", value_parser = positive_seconds)]
    checkpoint_every: Option<Duration>,
    /// Memory for the rows of each server, as in 64MiB: pushes then touch four times as many rows as fit, and the others are on disk
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Protection of the streams between members
    #[arg(long, value_enum, default_value = "off")]
    security: StreamSecurity,
    /// Largest file of a server, as on a disk that is full then
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    file_limit: Option<u64>,
    /// Processes that get SIGKILL, and when: `switch@5s,worker@8s,server@10s,controller@12s`
    #[arg(long, value_name = "WHO@TIME", value_delimiter = ',')]
    kill: Vec<TargetAt>,
    /// Processes that get SIGTERM, and when, as in --kill: they end in order, and are started again as those that are killed
    #[arg(long, value_name = "WHO@TIME", value_delimiter = ',')]
    drain: Vec<TargetAt>,
    /// Puts each process into a network namespace of its own, a server that is started again into another one; needs root
    #[arg(long)]
    namespaces: bool,
    /// Seconds for which a controller that has ended stays away: otherwise it is started again at once
    #[arg(long, value_name = "S", value_parser = positive_seconds)]
    away: Option<Duration>,
    /// Time for which the job waits for a server or the controller, in seconds, as of `libra controller`
    #[arg(long, value_name = "S", default_value = "30", value_parser = positive_seconds)]
    return_max: Duration,
    /// When everything that a switch holds moves to another: `10s`; several with commas between
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    migrate: Vec<Moment>,
    /// Seed of the pushes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Packets of a flow before it restarts, for tests: otherwise 2^30
    #[arg(long, hide = true, default_value_t = FLOW_PACKETS_MAX, value_parser = clap::value_parser!(u32).range(1..=i64::from(FLOW_PACKETS_MAX)))]
    flow_packets: u32,
    /// Writes what came of it to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Reads options from a TOML file: `loss = 0.01` stands for --loss 0.01
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Role of this process in the soak of another one
    #[arg(long, hide = true, requires = "directory")]
    role: Option<Role>,
    /// Directory for the files of that soak
    #[arg(long, hide = true)]
    directory: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Controller,
    Worker,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match (arguments.role, &arguments.directory) {
        (Some(Role::Controller), Some(directory)) => controller::run(directory),
        (Some(Role::Worker), Some(directory)) => {
            parent_guard::exit_with_parent(|_| ())?;
            worker::run(directory)
        }
        _ => soak(arguments),
    }
}

fn soak(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let mut directory =
        tempfile::Builder::new().prefix("libra-soak-").tempdir().context("cannot make a directory")?;
    // It is kept if the soak fails.
    directory.disable_cleanup(true);
    let settings = arguments.settings()?;
    settings.write(directory.path())?;
    let runner = SoakRunner { arguments, settings: &settings, directory: directory.path() };
    let verdict = runner.run().and_then(|history| {
        let verdict = check::check(&settings.task.load, directory.path(), &history.deaths())?;
        let report = Report::new(arguments, &history, &verdict);
        if !arguments.quiet {
            report.print();
        }
        if let Some(path) = &arguments.json {
            report.write_json(path)?;
        }
        if arguments.may_lose() {
            return Ok(());
        }
        verdict.result()?;
        // On a full disk a server that is asked to end cannot save.
        if arguments.file_limit.is_none() { history.check_order(arguments.standby > 0) } else { Ok(()) }
    });
    directory.disable_cleanup(verdict.is_err() && !interrupt::happened());
    let place = directory.path().display();
    verdict.map_err(|error| anyhow!("{error:#} (what the processes wrote is in {place})"))
}

impl Arguments {
    /// Refuses what cannot work.
    fn check(&self) -> Result<()> {
        self.faults.rates()?;
        let end = Duration::from_secs(self.seconds);
        if let Some(kill) = self.kill.iter().find(|kill| kill.at >= end) {
            bail!("--kill {kill}: the soak lasts {} s", self.seconds);
        }
        if let Some(drain) = self.drain.iter().find(|drain| drain.at >= end) {
            bail!("--drain {drain}: the soak lasts {} s", self.seconds);
        }
        if let Some(Moment(at)) = self.migrate.iter().find(|moment| moment.0 >= end) {
            bail!("--migrate {}s: the soak lasts {} s", at.as_secs_f64(), self.seconds);
        }
        if self.kills(Target::Server) > 0 && !self.log && self.checkpoint_every.is_none() {
            bail!("--kill server: a server that keeps nothing ends the job; add --log or --checkpoint-every");
        }
        if self.drains(Target::Server) > 0 && !self.log && self.checkpoint_every.is_none() {
            bail!(
                "--drain server: a server that keeps nothing ends the job; add --log or --checkpoint-every"
            );
        }
        let values = usize::from(self.load()?.lanes);
        if self.lanes > 1 && usize::from(self.lanes) < values {
            bail!(
                "--lanes {}: rows have {values} values, one for each worker and those that come for killed ones, and 16 at least with --memory-limit: take as many lanes or more",
                self.lanes
            );
        }
        self.plane.check_lanes(self.lanes)?;
        if self.namespaces && self.plane != SwitchPlane::Udp {
            bail!("--namespaces: --plane xdp and p4 make a network of their own");
        }
        if (self.plane == SwitchPlane::P4) != self.bmv2.is_some() {
            bail!("--plane p4 and --bmv2 go together: the program, compiled, that its switches run");
        }
        if self.memory_limit.is_some() && self.kills(Target::Worker) > 0 {
            bail!(
                "--kill worker and --memory-limit: what is under way may count or not, and no sum shows it"
            );
        }
        if self.workers < 2 && self.kills(Target::Worker) > 0 {
            bail!("--kill worker: a job ends with its last worker; take at least two");
        }
        Ok(())
    }

    fn kills(&self, target: Target) -> usize {
        self.kill.iter().filter(|kill| kill.target == target).count()
    }

    fn drains(&self, target: Target) -> usize {
        self.drain.iter().filter(|drain| drain.target == target).count()
    }

    /// True if processes are in network namespaces.
    fn has_network(&self) -> bool {
        self.namespaces || self.plane != SwitchPlane::Udp
    }

    /// True if servers may lose updates, which they report.
    fn may_lose(&self) -> bool {
        self.kills(Target::Server) > 0 && !self.log
    }

    fn load(&self) -> Result<Load> {
        let lanes = usize::from(self.workers) + self.kills(Target::Worker) + self.drains(Target::Worker);
        let lanes = u16::try_from(lanes).context("--kill and --drain: that many workers are no soak")?;
        let memory = self.memory_limit.map(|bytes| bytes.saturating_mul(self.servers.into()));
        Ok(Load::new(self.seed, lanes, memory))
    }

    fn settings(&self) -> Result<Settings> {
        let lasts = PRELUDE + Duration::from_secs(self.seconds);
        let end = wall_clock() + u64::try_from(lasts.as_micros())?;
        let FaultArguments { loss, duplicate, reorder } = self.faults;
        Ok(Settings {
            controller: if self.has_network() {
                // Without other processes.
                SocketAddr::from((libra_launch::network::HOSTS, 15_000))
            } else {
                free_address()?
            },
            plane: self.plane,
            has_network: self.has_network(),
            bmv2: self.bmv2.as_deref().map(Path::canonicalize).transpose().context("--bmv2")?,
            lanes: self.lanes,
            flow_packets: self.flow_packets,
            sizes: Numbers { servers: self.servers, switches: self.switches, workers: self.workers },
            shards_per_server: self.shards_per_server,
            faults: [loss, duplicate, reorder],
            log: self.log,
            checkpoint_every: self.checkpoint_every,
            memory_limit: self.memory_limit,
            security: self.security,
            file_limit: self.file_limit,
            return_max: self.return_max,
            task: Task { load: self.load()?, end },
        })
    }

    fn bars(&self) -> Bars {
        Bars::new(self.quiet)
    }
}

/// Returns an address for the controller that is still free when it starts again: its port is below those that the system
/// assigns.
fn free_address() -> Result<SocketAddr> {
    const PORTS: core::ops::Range<u16> = 15_000..30_000;
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(7_919);
    let port = |step: u32| PORTS.start + u16::try_from(first.wrapping_add(step) % count).unwrap_or(0);
    let mut addresses = (0..count).map(|step| SocketAddr::from((Ipv4Addr::LOCALHOST, port(step))));
    addresses.find(|address| TcpListener::bind(address).is_ok()).context("no port is free for the controller")
}

/// Settings of the processes of a soak, in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Settings {
    controller: SocketAddr,
    plane: SwitchPlane,
    has_network: bool,
    bmv2: Option<PathBuf>,
    lanes: u8,
    flow_packets: u32,
    sizes: Numbers,
    shards_per_server: u16,
    /// Probabilities of loss, duplication and reordering.
    faults: [f64; 3],
    log: bool,
    checkpoint_every: Option<Duration>,
    security: StreamSecurity,
    memory_limit: Option<u64>,
    file_limit: Option<u64>,
    return_max: Duration,
    task: Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Numbers {
    servers: u16,
    switches: u16,
    workers: u16,
}

impl From<Numbers> for Sizes {
    fn from(numbers: Numbers) -> Self {
        let Numbers { servers, switches, workers } = numbers;
        Self { servers, switches, workers }
    }
}

/// Task that the controller sends the workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Task {
    load: Load,
    /// When to push no more: microseconds since 1970.
    end: u64,
}

impl Task {
    fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).context("the task cannot be written down")
    }

    fn from_text(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("the controller's task is not that of a soak")
    }
}

impl Settings {
    fn path(directory: &Path) -> PathBuf {
        directory.join("settings.json")
    }

    fn write(&self, directory: &Path) -> Result<()> {
        let path = Self::path(directory);
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn read(directory: &Path) -> Result<Self> {
        let path = Self::path(directory);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not from a soak", path.display()))
    }

    /// Returns the state that servers keep.
    fn durability(&self) -> Durability {
        let keep = if self.memory_limit.is_some() { 1 } else { Durability::NONE.keep };
        Durability { log: self.log, checkpoint_every: self.checkpoint_every, keep, ..Durability::NONE }
    }

    fn needs_disk(&self) -> bool {
        self.durability().needs_disk() || self.memory_limit.is_some()
    }

    /// Returns the options with which a worker joins the cluster.
    fn options(&self) -> Result<NodeOptions> {
        let [loss, duplicate, reorder] = self.faults;
        let faults = FaultRates::new(loss, duplicate, reorder)?;
        // Each process of a cluster draws its own faults.
        let fault_seed = u64::from(std::process::id());
        let security = Security::from_environment()?;
        Ok(NodeOptions { faults, fault_seed, security, ..NodeOptions::new(self.controller) })
    }
}
