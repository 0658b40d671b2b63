//! `libra controller`: gathers a cluster, runs one job on it, prints its report.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use clap::{Args, ValueEnum};
use libra_client::{Controller, ControllerCommand, ControllerEvent, JobSpec, Outcome, PacketTags, Sizes};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use libra_launch::arguments::positive_seconds;
use libra_launch::commits::Committer;
use libra_launch::event_log::EventLog;
use libra_launch::exit::ExitArguments;
use libra_launch::follow::Follower;
use libra_launch::gathering::Gathering;
use libra_launch::interrupt;
use libra_launch::job::{Job, JobArguments, failure};
use libra_launch::notices::news;
use libra_launch::progress::Bars;
use libra_launch::resume::Resume;
use libra_launch::security::SecurityArguments;
use libra_launch::watching::{CommandArguments, ControllerWatch, WatchArguments, report};
use libra_net::{Security, Supervisor, find_http};

/// Gathers a cluster, runs one job on it and prints its report.
///
/// Start it first; then, on any machine that reaches it, the servers, switches and workers that it waits for. Switches that
/// come beyond those are standbys. Should the controller be lost, start it again with the same options: members look for it
/// for --return-max seconds, and it goes on with the cluster that they are.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Address to listen on for the members
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// Switches to wait for; with none, every row goes to the servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=64))]
    switches: u16,
    /// Origin of the tables, the plan and the mode of the job
    #[arg(long, value_enum, default_value = "model")]
    tables: Tables,
    /// Seconds in which a server that is gone may come back, or another controller in the place of this one: members call them for as long
    #[arg(long, value_name = "S", default_value = "30", value_parser = positive_seconds)]
    return_max: Duration,
    #[command(flatten)]
    job: JobArguments,
    #[command(flatten)]
    exit: ExitArguments,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    watch: WatchArguments,
    #[command(flatten)]
    commands: CommandArguments,
    /// Tags of packets between workers and switches, which show who has sent them and what
    #[arg(long, value_enum, default_value = "auto", help_heading = "Security")]
    packet_tags: Tags,
}

/// Tags of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tags {
    /// MACs where streams are in TLS, or cookies if a switch is of hardware, which cannot compute MACs
    Auto,
    /// Always MACs; switches that cannot compute them are refused
    Mac,
    /// None
    Off,
}

impl From<Tags> for PacketTags {
    fn from(tags: Tags) -> Self {
        match tags {
            Tags::Auto => Self::Auto,
            Tags::Mac => Self::Mac,
            Tags::Off => Self::Off,
        }
    }
}

/// Origin of the description of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tables {
    /// --model and its options: the workers are `libra worker`
    Model,
    /// The workers themselves: programs in Python (LIBRA_CONTROLLER) or of libra-client, which must agree
    Workers,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.exit.begin()?;
    // One that is second at its address leaves the files of the first alone.
    let controller = bind(arguments)?;
    let mut watch = arguments.watch.controller(&arguments.commands, true, arguments.job.bars())?;
    // Before there is a job, none is told.
    watch.fail_when_interrupted();
    let ended = gather(arguments, controller, &mut watch);
    if let Err(error) = &ended {
        watch.ended(Err(format!("{error:#}")));
    }
    watch.finish();
    ended
}

fn gather(arguments: &Arguments, controller: Controller, watch: &mut ControllerWatch) -> Result<()> {
    let started = Instant::now();
    arguments.job.durability.refuse_moment_alone(false)?;
    let address = controller.address();
    let security = arguments.security.of_controller(address, arguments.job.bars())?;
    let controller = controller
        .with_security(security)
        .with_packet_tags(arguments.packet_tags.into())
        .with_supervisor(Supervisor::from_environment())
        .with_inspector(watch.inspector());
    if arguments.tables == Tables::Workers {
        let resume = arguments.job.resume()?;
        let committer = committer(arguments, watch)?;
        let spec = arguments.job.without_tables(resume.as_ref(), arguments.switches, address)?;
        let mut spec = JobSpec { return_max: arguments.return_max, ..spec };
        committer.as_ref().map_or(Ok(()), |committer| committer.claim(&mut spec.durability))?;
        let outcome = serve(arguments, controller.with_tables_of_workers(), &spec, watch, committer.as_ref());
        let uncommitted = uncommitted(committer, &outcome);
        arguments.job.report_counts(&outcome?, started, watch)?;
        return uncommitted.map_or(Ok(()), |reason| bail!(reason));
    }
    let more = json!({ "command": "controller", "switches": arguments.switches });
    let resume = arguments.job.resume()?;
    if let Some((job, outcome)) = arguments.job.done_before(resume.as_ref(), address)? {
        return arguments.job.report(&job, &outcome, &EventLog::default(), started, more, watch);
    }
    let committer = committer(arguments, watch)?;
    let ended = serve_model(arguments, controller, watch, resume.as_ref(), committer.as_ref());
    let uncommitted = uncommitted(committer, &ended);
    let (job, outcome, events) = ended?;
    arguments.job.report(&job, &outcome, &events, started, more, watch)?;
    uncommitted.map_or(Ok(()), |reason| bail!(reason))
}

/// Time for an answer of what has the address.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time in which a controller that has the address may end.
const SUCCESSION_MAX: Duration = Duration::from_secs(3);
const SUCCESSION_INTERVAL: Duration = Duration::from_millis(100);

/// Takes the address. Another controller that has it and does not end was started for the same job, and the engine that started this one
/// would only repeat that.
fn bind(arguments: &Arguments) -> Result<Controller> {
    let started = Instant::now();
    loop {
        let error = match Controller::bind(arguments.listen) {
            Err(error) if error.is_transient() => error,
            bound => return Ok(bound?),
        };
        let security = arguments.security.if_given(arguments.job.bars()).unwrap_or(Security::NONE);
        let is_late = started.elapsed() > SUCCESSION_MAX;
        match find_http(arguments.listen, &security, ANSWER_MAX) {
            Ok(http) if is_late => {
                let watched =
                    http.map_or(String::new(), |http| format!(" (`libra top --http {http}` shows it)"));
                bail!(
                    "another controller is at {}, and goes on with its job{watched}: end that one first, or choose another --listen",
                    arguments.listen
                );
            }
            Err(asked) if is_late || !has_ended(&asked) => return Err(error.into()),
            _ => {}
        }
        thread::sleep(SUCCESSION_INTERVAL);
    }
}

/// Returns true if what had the address closed it, or the stream to it, instead of an answer.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
    )
}

fn committer(arguments: &Arguments, watch: &ControllerWatch) -> Result<Option<Committer>> {
    Committer::start(&arguments.job.durability, arguments.job.bars(), watch.events())
}

/// Waits for the last checkpoint at a URL, if the job is done. Returns why it does not count there.
fn uncommitted<T>(committer: Option<Committer>, ended: &Result<T>) -> Option<String> {
    committer.and_then(|committer| committer.finish(ended.is_ok(), false))
}

/// Members of a cluster whose controller is gone call at the address of it ten times a second. Those that come later, since their machines
/// are slower, are answered, too, but the data is read for nothing then.
const CALLS_WITHIN: Duration = Duration::from_millis(500);

/// Runs the job of a model to its end. The controller answers members at once: should they have a job already, it goes on, and its data is
/// read for the report alone.
fn serve_model(
    arguments: &Arguments,
    controller: Controller,
    watch: &mut ControllerWatch,
    resume: Option<&Resume>,
    committer: Option<&Committer>,
) -> Result<(Job, Outcome, EventLog)> {
    arguments.job.begin()?;
    let commits = Committer::commits(committer);
    let (bars, address, switches) = (arguments.job.bars(), controller.address(), arguments.switches);
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    let asked = ask.clone();
    watch.serve(move |command| asked.send(command).is_ok())?;
    let written = watch.events();
    let abort = ask.clone();
    let gathering = Gathering::start(bars).context("cannot start a thread")?;
    let noted = gathering.clone();
    let (follower_events, follower) = Follower::new();
    let (takes_over, taken_over) = std::sync::mpsc::channel();
    let serving = thread::Builder::new().name("controller".to_owned()).spawn(move || {
        let mut events = EventLog::default();
        let outcome = controller.run_awaiting_job(commands, |event| {
            events.note(event);
            noted.note(event);
            report(written.as_ref(), event);
            commits.note(event);
            follower_events.note(event);
            tell(bars, event);
            if *event == ControllerEvent::TakesOver {
                abort_when_interrupted(abort.clone());
                // The receiver does not wait for ever.
                let _ = takes_over.send(());
            }
        });
        (outcome, events)
    });
    let serving = serving.context("cannot start a thread for the controller")?;
    let prepared = match taken_over.recv_timeout(CALLS_WITHIN) {
        Err(RecvTimeoutError::Timeout) => {
            let prepared = Job::prepare(&arguments.job, resume, switches, address);
            // A job that runs does not need it, and has its URL already.
            let begins = taken_over.try_recv().is_err();
            begins.then(|| prepared.and_then(|job| claim(job, committer)))
        }
        Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
    };
    let prepared = match prepared.transpose() {
        Ok(Some(mut job)) => {
            job.spec.return_max = arguments.return_max;
            // Until here an interrupt ends the process at once, with the work on the data.
            abort_when_interrupted(ask.clone());
            tell_sizes(bars, address, job.spec.sizes);
            gathering.begin(job.spec.sizes);
            let cluster = Box::new(job.spec.cluster());
            // A controller that has ended is asked for its reason below.
            let _ = ask.send(ControllerCommand::Describe { sizes: job.spec.sizes, cluster });
            Some(job)
        }
        Ok(None) => None,
        Err(error) => return Err(end_for_all(error, &ask, serving)),
    };
    if arguments.job.follows() {
        let asked = ask.clone();
        let follow = |job: &Job| {
            arguments.job.follow(follower, job, move |command| {
                // A controller that has ended takes none.
                let _ = asked.send(command);
            })
        };
        let followed = match &prepared {
            Some(job) => follow(job),
            None => {
                Job::of_running(&arguments.job, resume, switches, address, None).and_then(|job| follow(&job))
            }
        };
        if let Err(error) = followed {
            if prepared.is_none() {
                // Only members that have called already hear of it.
                thread::sleep(CALLS_WITHIN);
            }
            return Err(end_for_all(error, &ask, serving));
        }
    }
    let (outcome, events) = serving.join().expect("the thread of the controller does not panic");
    let outcome = outcome.map_err(failure)?;
    let job = match prepared {
        Some(job) => job,
        None => Job::of_running(&arguments.job, resume, switches, address, outcome.plan.as_deref().cloned())?,
    };
    Ok((job, outcome, events))
}

/// Ends the job for the members that have come, with the reason, and waits until they were told.
fn end_for_all<T>(error: Error, ask: &UnboundedSender<ControllerCommand>, serving: JoinHandle<T>) -> Error {
    let _ = ask.send(ControllerCommand::Abort { reason: format!("{error:#}") });
    let _ = serving.join();
    error
}

/// Makes the URL of checkpoints that of the job.
fn claim(mut job: Job, committer: Option<&Committer>) -> Result<Job> {
    committer.map_or(Ok(()), |committer| committer.claim(&mut job.spec.durability))?;
    Ok(job)
}

/// Members would look for a controller that is only gone; one that ends the job notifies them.
fn abort_when_interrupted(ask: UnboundedSender<ControllerCommand>) {
    interrupt::on_first(move || {
        let _ = ask.send(ControllerCommand::Abort { reason: "the controller was interrupted".to_owned() });
    });
}

fn tell(bars: Bars, event: &ControllerEvent) {
    if let Some(news) = news(event) {
        bars.line(&format!("controller: {news}"));
    }
}

fn tell_sizes(bars: Bars, address: SocketAddr, sizes: Sizes) {
    let Sizes { servers, switches, workers } = sizes;
    bars.line(&format!(
        "controller: at {address}, waiting for {servers} servers, {switches} switches, {workers} workers"
    ));
}

/// Runs a job to its end.
fn serve(
    arguments: &Arguments,
    controller: Controller,
    spec: &JobSpec,
    watch: &mut ControllerWatch,
    committer: Option<&Committer>,
) -> Result<Outcome> {
    let commits = Committer::commits(committer);
    let (bars, sizes, address) = (arguments.job.bars(), spec.sizes, controller.address());
    tell_sizes(bars, address, sizes);
    let gathering = Gathering::start(bars).context("cannot start a thread")?;
    gathering.begin(sizes);
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    let asked = ask.clone();
    watch.serve(move |command| asked.send(command).is_ok())?;
    let written = watch.events();
    abort_when_interrupted(ask);
    let outcome = controller.run(sizes, spec.cluster(), commands, |event| {
        gathering.note(event);
        report(written.as_ref(), event);
        commits.note(event);
        tell(bars, event);
    });
    outcome.map_err(failure)
}
