//! `libra server`, `libra switch` and `libra worker`: one member of a cluster each.

use core::num::NonZero;
use core::str::FromStr;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use libra_doctor::Needs;
use libra_models::Workload;
use libra_monitor::Kind;
use libra_net::{
    Drain, Endpoint, EndpointError, FaultRates, NodeError, NodeOptions, ServerNode, Supervisor, SwitchNode,
    WorkerNode,
};
use libra_proto::{MemberEvent, PROCESS_SHARDS_MAX, Peer, Restoring, ServerEvent, Statistics};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::arguments::{FaultArguments, parse_bytes};
use crate::examination;
use crate::exit::{self, ExitArguments, Unreachable};
use crate::interrupt;
use crate::notices::{path_changed, restoring, turned_away};
use crate::p4::P4Switch;
use crate::parent_guard;
use crate::plane::PlaneArguments;
use crate::privileges;
use crate::progress::{Bars, EpochPlan};
use crate::report::{quality_line, rows_on_disk};
use crate::security::SecurityArguments;
use crate::state_directory::{self, TemporaryDirectory};
use crate::task::Task;
use crate::training::{Step, work};
use crate::watching::{
    MemberWatch, WatchArguments, report_done, report_end, report_member, report_path_change, report_quality,
    report_server,
};

/// Last line of a member, also of one that comes when the job is done.
const JOB_IS_DONE: &str = "the job is done";

/// Options of every member.
#[derive(Args, Debug)]
struct MemberArguments {
    /// Place of the controller. A name is looked up for each call, and every address of it is called
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700")]
    controller: Endpoint,
    /// Seconds to try to reach the controller at first, or `forever`
    #[arg(long, alias = "connect-timeout", value_name = "S", default_value = "10", value_parser = parse_patience)]
    patience: Duration,
    /// Address by which other members reach this one, if that is none of its own, as behind NAT. Without a port, its own port; a
    /// name is looked up once
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Option<Advertised>,
    /// Seconds that it has to end in order once it gets SIGTERM: a worker ends its step, a switch brings its sums to the servers, a
    /// server saves what it has answered. Then it ends anyway
    #[arg(long, value_name = "S", default_value_t = 25)]
    grace: u64,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Reads options from a TOML file: `controller = "10.0.0.1:7700"` stands for --controller 10.0.0.1:7700
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ends with its standard input: for processes that another one has started
    #[arg(long, hide = true, alias = "leashed")]
    exit_with_parent: bool,
    #[command(flatten)]
    exit: ExitArguments,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    watch: WatchArguments,
}

impl MemberArguments {
    fn begin(&self) -> Result<Bars> {
        self.exit.begin()?;
        if self.exit_with_parent {
            parent_guard::exit_with_parent(|_| ())?;
        }
        Ok(Bars::new(self.quiet))
    }

    /// Runs a member of this kind, watched as it was asked for.
    fn run(
        &self,
        kind: Kind,
        needs: &Needs,
        run: impl FnOnce(Bars, &MemberWatch) -> Result<()>,
    ) -> Result<()> {
        let bars = self.begin()?;
        let watch = self.watch.member(kind, bars)?;
        examination::examine(kind, needs, bars, watch.events().as_ref());
        let ended = run(bars, &watch);
        watch.finish();
        ended
    }

    fn options(&self, bars: Bars, watch: &MemberWatch) -> Result<NodeOptions> {
        let options = self.security.of_member(&self.controller, self.patience, bars)?;
        let advertise = self.advertise.as_ref().map(|advertised| advertised.address(self.patience));
        let advertise = advertise.transpose()?;
        let (inspector, supervisor) = (watch.inspector(), Supervisor::from_environment());
        Ok(NodeOptions { advertise, supervisor, inspector, ..options })
    }

    /// A SIGTERM asks this member to end in order from now on, as its controller may.
    fn drain_when_terminated(&self, drain: &Drain, bars: Bars) {
        let grace = self.grace;
        drain.on_begin(move || {
            bars.line("asked to end: it ends when nothing is lost by that");
            thread::spawn(move || {
                thread::sleep(Duration::from_secs(grace));
                exit::report(
                    "libra",
                    &format!(
                        "asked to end, and not done within --grace {grace}: the others go on from what they have"
                    ),
                );
                exit::at_once(exit::AGAIN);
            });
        });
        let drain = drain.clone();
        interrupt::on_terminate(move || drain.begin());
    }

    fn options_with_faults(
        &self,
        faults: FaultRates,
        bars: Bars,
        watch: &MemberWatch,
    ) -> Result<NodeOptions> {
        // Each process of a cluster draws its own faults.
        Ok(NodeOptions { faults, fault_seed: u64::from(std::process::id()), ..self.options(bars, watch)? })
    }
}

/// Seconds, or `forever`.
fn parse_patience(text: &str) -> Result<Duration, String> {
    if text == "forever" {
        return Ok(Duration::MAX);
    }
    let seconds = text.parse::<u64>().map_err(|_| "expected seconds, a whole number as in 30, or forever")?;
    Ok(Duration::from_secs(seconds))
}

/// A place at which others find a member.
#[derive(Debug, Clone)]
struct Advertised {
    /// As it was typed.
    text: String,
    endpoint: Endpoint,
    has_port: bool,
}

impl FromStr for Advertised {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        // The port is not used.
        let with_a_port = |ip: IpAddr| Endpoint::from(SocketAddr::new(ip, 1));
        let without_port = match bare.parse() {
            Ok(ip) => Ok(with_a_port(ip)),
            Err(_) if !text.contains(':') => format!("{text}:1").parse(),
            Err(_) => return Ok(Self { text: text.to_owned(), endpoint: text.parse()?, has_port: true }),
        };
        Ok(Self { text: text.to_owned(), endpoint: without_port?, has_port: false })
    }
}

impl Advertised {
    /// Returns its address, with port 0 if none was given.
    fn address(&self, patience: Duration) -> Result<SocketAddr> {
        let addresses = self.endpoint.resolve_within(patience).map_err(|error| self.unknown(error))?;
        // As members take any port of IPv4 when there is a choice.
        let ipv4 = addresses.iter().find(|address| address.is_ipv4());
        let address = *ipv4.or_else(|| addresses.first()).expect("a place that was found has an address");
        Ok(SocketAddr::new(address.ip(), if self.has_port { address.port() } else { 0 }))
    }

    /// The error in words of this option: that of an endpoint names the controller.
    fn unknown(&self, error: NodeError) -> Error {
        match error {
            NodeError::Unknown { tried, source, .. } => {
                let (text, seconds) = (&self.text, tried.as_secs_f64());
                let reason = format!("--advertise {text}: no such host (tried for {seconds:.1} s): {source}");
                Unreachable(reason).into()
            }
            other => Error::new(other).context("--advertise"),
        }
    }
}

/// Use of processors by a member whose datagrams matter.
#[derive(Args, Debug)]
struct ProcessorArguments {
    /// Looks for packets for so many microseconds before it sleeps: answers come sooner, and a core is busy meanwhile. For machines
    /// with a core for each member
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    busy_poll: u64,
    /// Stays on this core
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

impl ProcessorArguments {
    /// Moves the process to its core, before it has other threads; and returns the options with the rest.
    fn apply(&self, options: NodeOptions) -> Result<NodeOptions> {
        if let Some(cpu) = self.cpu {
            if cpu >= CpuSet::MAX_CPU {
                bail!("--cpu {cpu}: cores are numbered below {}", CpuSet::MAX_CPU);
            }
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            sched_setaffinity(None, &cpus).with_context(|| format!("--cpu {cpu}: no such core"))?;
        }
        Ok(NodeOptions { busy_poll: Duration::from_micros(self.busy_poll), ..options })
    }
}

/// Owns shards of the rows: applies the pushes of workers and switches, and answers reads.
#[derive(Args, Debug)]
pub struct ServerArguments {
    #[command(flatten)]
    member: MemberArguments,
    /// Address at which to listen for workers and switches; by default any free port, or the one that a server before this one had
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Directory for the log and the checkpoints that the job asks for. A server that was killed goes on when it is
    /// started again with the same directory. With `none`, or without it, checkpoints of a job without log are at the URL of its
    /// --checkpoints alone, and the job ends with its server
    #[arg(long, alias = "state", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Memory for the rows of this server, as in 512MiB or 2GiB; those that were not used for long are in a file in the state directory, and come
    /// back when they are used. Messages, the log and a checkpoint that is written take memory besides
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "state_dir")]
    memory_limit: Option<u64>,
    /// Shards of this server, each a member with a thread of its own [default: one for each core]. With a state directory of a server
    /// that was killed they are as many as it had
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(PROCESS_SHARDS_MAX)))]
    shards_per_server: Option<u16>,
}

/// Adds up the gradients of hot rows, and brings the sums to the servers once a round.
#[derive(Args, Debug)]
pub struct SwitchArguments {
    #[command(flatten)]
    member: MemberArguments,
    /// Address at which to take datagrams; by default any free port
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    plane: PlaneArguments,
    #[command(flatten)]
    processor: ProcessorArguments,
    #[command(flatten)]
    faults: FaultArguments,
}

/// Trains on its share of the data. The controller sends the task.
#[derive(Args, Debug)]
pub struct WorkerArguments {
    #[command(flatten)]
    member: MemberArguments,
    /// Directory of the data at this worker; by default the one of the controller
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Tells the job that another worker is started if this one is lost, as engines do. A job that has lost all of its workers waits
    /// --return-max of its controller for one; otherwise it fails
    #[arg(long)]
    restarted: bool,
    #[command(flatten)]
    processor: ProcessorArguments,
    #[command(flatten)]
    faults: FaultArguments,
}

/// Runs a server until its job ends.
pub fn run_server(arguments: &ServerArguments) -> Result<()> {
    let state = state_directory::given(arguments.state_dir.as_deref(), arguments.memory_limit.is_some())?;
    let needs = examination::needs(state, arguments.memory_limit);
    arguments.member.run(Kind::Server, &needs, |bars, watch| serve(arguments, state, bars, watch))
}

fn serve(arguments: &ServerArguments, state: Option<&Path>, bars: Bars, watch: &MemberWatch) -> Result<()> {
    let options = arguments.member.options(bars, watch)?;
    let drain = options.drain.clone();
    // Nothing is there unless the job has checkpoints at a URL.
    let temporary = TemporaryDirectory::new()?;
    let node = match state {
        Some(state) => {
            let limit = arguments.memory_limit;
            let tell = move |progress: &Restoring| bars.line(&format!("server: {}", restoring(progress)));
            ServerNode::bind_with_data(options, arguments.listen, state.to_owned(), limit, tell)?
        }
        None => {
            let node = ServerNode::bind(options, arguments.listen)?;
            node.with_temporary_data(temporary.path().to_owned())
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let usual = u16::try_from(cores).unwrap_or(u16::MAX).min(PROCESS_SHARDS_MAX);
    let node = node.with_shards(arguments.shards_per_server.unwrap_or(usual));
    if let Some(lacks) = node.lacks() {
        bars.line(&format!("server: {lacks}"));
    }
    if let (Some(given), found @ 1..) = (arguments.shards_per_server, node.goes_on_from().count())
        && usize::from(given) != found
    {
        bars.line(&format!(
            "server: note: --shards-per-server {given} is ignored, as its state directory has {found}"
        ));
    }
    for found in node.goes_on_from() {
        bars.line(&format!("server: {found}"));
    }
    bars.line(&format!(
        "server: at {}, shards: {}, waiting for the cluster at {}",
        node.address(),
        node.shards(),
        arguments.member.controller
    ));
    // Until here it has answered nothing, and ends at once.
    arguments.member.drain_when_terminated(&drain, bars);
    let events = watch.events();
    let on_event = move |event: &ServerEvent| {
        report_server(events.as_ref(), event);
        tell_of_server(bars, event);
    };
    let statistics = node.run(on_event)?;
    if let Statistics::Server(statistics) = statistics
        && let Some((value, note)) = rows_on_disk(&statistics)
    {
        bars.line(&format!("server: {value} on disk, {note}"));
    }
    bars.line(JOB_IS_DONE);
    Ok(())
}

fn tell_of_server(bars: Bars, event: &ServerEvent) {
    match event {
        // Each shard has finished, or the process ends with the reason; it says so once.
        ServerEvent::Member(MemberEvent::Finished(_))
        | ServerEvent::Storage(_)
        | ServerEvent::StoreFailed { .. } => {}
        ServerEvent::Member(event) => tell(bars, event),
        ServerEvent::LogSuspended { reason } => bars.line(&format!(
            "server: the log cannot be written, and training goes on without: a crash would lose all later updates. {reason}"
        )),
        ServerEvent::MemoryLimitExceeded => bars.line(
            "server: the disk has no room for rows: they stay in memory above --memory-limit until there is room",
        ),
        ServerEvent::MemoryLimitKept => bars.line("server: the disk has room for rows again"),
        ServerEvent::SaveFailed { reason } => bars.line(&format!(
            "server: what it has answered cannot be saved, and it tries again until --grace is over: {reason}"
        )),
        ServerEvent::LogResumed => bars.line("server: the log is written again, and has everything"),
        ServerEvent::Strangers(strangers) => bars.line(&format!("server: {}", turned_away(strangers))),
    }
}

/// Runs a switch until its job ends. It watches for interrupts by itself, once it has given up its privileges: the thread that does
/// would keep them.
pub fn run_switch(arguments: &SwitchArguments) -> Result<()> {
    arguments
        .member
        .run(Kind::Switch, &examination::needs(None, None), |bars, watch| aggregate(arguments, bars, watch))
}

fn aggregate(arguments: &SwitchArguments, bars: Bars, watch: &MemberWatch) -> Result<()> {
    let events = watch.events();
    let on_event = |event: &MemberEvent| {
        report_member(events.as_ref(), event);
        tell(bars, event);
    };
    let options = arguments.member.options_with_faults(arguments.faults.rates()?, bars, watch)?;
    let options = arguments.processor.apply(options)?;
    if let Some(P4Switch { plane, address, wakes, bmv2 }) = arguments.plane.p4(arguments.listen)? {
        interrupt::watch();
        if options.faults != FaultRates::default() {
            bail!("datagrams of a P4 switch do not pass its agent: lose them at the workers");
        }
        let controller = &arguments.member.controller;
        bars.line(&format!("switch: a P4 switch at {address}, waiting for the cluster at {controller}"));
        arguments.member.drain_when_terminated(&options.drain, bars);
        let node = SwitchNode::bind(options, None)?.with_plane(plane, wakes).at(address.into());
        let ended = node.run(on_event);
        drop(bmv2);
        ended?;
        return Ok(());
    }
    let listen = match arguments.listen {
        Some(address) => Some(address),
        None => arguments.plane.listen(&options)?,
    };
    arguments.member.drain_when_terminated(&options.drain, bars);
    let node = SwitchNode::bind(options.clone(), listen)?;
    let (controller, address) = (&arguments.member.controller, node.address());
    let attached = arguments.plane.attach(&options, address)?;
    bars.line(&format!("switch: at {address}, waiting for the cluster at {controller}"));
    if let Some(lacks) = node.lacks() {
        bars.line(&format!("switch: {lacks}"));
    }
    let Some((plane, mode)) = attached else {
        interrupt::watch();
        node.run(on_event)?;
        return Ok(());
    };
    bars.line(&format!("switch: the data plane is in the kernel, {mode}"));
    let wakes = plane.wakes().context("cannot watch the data plane")?;
    privileges::keep_bpf_alone().context("cannot give up the privileges that attached the data plane")?;
    interrupt::watch();
    node.with_plane(plane, wakes).run(on_event)?;
    Ok(())
}

fn tell(bars: Bars, event: &MemberEvent) {
    match event {
        MemberEvent::Started { you } => bars.line(&format!("{you}: the cluster is complete")),
        MemberEvent::Finished(_) => bars.line(JOB_IS_DONE),
        MemberEvent::DrainAsked | MemberEvent::Drained { .. } | MemberEvent::Ended { .. } => {}
    }
}

/// Runs a worker until its job ends.
pub fn run_worker(arguments: &WorkerArguments) -> Result<()> {
    arguments
        .member
        .run(Kind::Worker, &examination::needs(None, None), |bars, watch| train(arguments, bars, watch))
}

fn train(arguments: &WorkerArguments, bars: Bars, watch: &MemberWatch) -> Result<()> {
    let options = arguments.member.options_with_faults(arguments.faults.rates()?, bars, watch)?;
    let options = NodeOptions { is_restarted: arguments.restarted, ..arguments.processor.apply(options)? };
    bars.line(&format!("worker: waiting for the cluster at {}", arguments.member.controller));
    let drain = options.drain.clone();
    let events = watch.events();
    let mut worker = match WorkerNode::join(options) {
        Err(NodeError::Done) => {
            report_done(events.as_ref());
            bars.line(JOB_IS_DONE);
            return Ok(());
        }
        joined => joined?,
    };
    let peer = Peer::Worker(worker.number());
    bars.line(&format!("{peer}: the cluster is complete"));
    report_member(events.as_ref(), &MemberEvent::Started { you: peer });
    let told = events.clone();
    worker.on_path_change(move |change| {
        report_path_change(told.as_ref(), peer, &change);
        bars.line(&format!("{peer}: {}", path_changed(&change)));
    });
    let (task, workload) = match prepare(arguments, &worker) {
        Ok(prepared) => prepared,
        Err(error) => {
            worker.abort(format!("{error:#}"));
            return Err(error);
        }
    };
    // Until here it has pushed nothing, and ends at once.
    arguments.member.drain_when_terminated(&drain, bars);
    let bar = bars.bar("train");
    let mut plan = EpochPlan::new(&task.config);
    let shares = u64::from(worker.cluster().shares.max(1));
    let trained = work(worker, &task, workload, None, &mut |step| match step {
        Step::Trained(progress) => {
            // About: a worker trains what it gets.
            let samples = progress.samples_total.div_ceil(shares);
            bar.set_length(plan.samples(progress.epoch, samples));
            bar.set_position(plan.samples_before(progress.epoch, samples) + progress.samples);
            bar.set_message(format!("loss {:.4} {}", progress.loss, plan.epoch(progress.epoch)));
        }
        Step::Evaluated { epoch, quality } => {
            bar.println(quality_line(epoch, &quality));
            report_quality(events.as_ref(), peer, epoch, &quality);
        }
    });
    report_end(events.as_ref(), peer, &trained);
    trained?;
    bar.finish_and_clear();
    bars.line(JOB_IS_DONE);
    Ok(())
}

fn prepare(arguments: &WorkerArguments, worker: &WorkerNode) -> Result<(Task, Arc<dyn Workload>)> {
    let task = Task::from_text(&worker.cluster().task)?;
    let data = arguments.data.as_ref().unwrap_or(&task.data);
    let workload = libra_models::open(&task.config, data)?;
    task.check(data, &*workload)?;
    Ok((task, workload))
}
