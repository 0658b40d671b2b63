//! The part that a process has in the job: controller, server or worker.

use core::time::Duration;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use crate::mesh::{Mailbox, Node, NodeRole};
use libra_client::{
    Controller, ControllerEvent, ControllerThread, FaultRates, Init, JobSpec, NodeError, NodeOptions,
    Optimizer, Outcome, Peer, Plan, Security, ServerEvent, Sizes, TableSpec,
};
use libra_net::ServerNode;
use libra_proto::{EndCause, MemberEvent, Statistics, SwitchStatistics, WorkerStatistics};

use super::requests::HotRequests;
use crate::environment::SwitchSettings;
use crate::error::CallError;
use crate::exchange::Exchange;

/// A push waits until it can be read. A round that not all workers push to closes by its time, so that should not be long.
const ROUND_TIME_MAX: Duration = Duration::from_millis(5);
/// After so long a person is told that a switch is missing.
const SWITCH_LATE: Duration = Duration::from_secs(3);
/// Time that a process that is done waits for the others, or until they have its last message.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two checks if a process of the mesh has died.
const LOOK: Duration = Duration::from_millis(100);

fn switching(error: impl ToString) -> CallError {
    CallError::Switching { reason: error.to_string() }
}

/// The part of the scheduler before other processes have come.
pub(crate) struct Preparation {
    controller: Controller,
    plan: Plan,
}

impl Preparation {
    /// Reads the plan, and listens for switches and all others.
    pub(crate) fn new(settings: &SwitchSettings, security: &Security) -> Result<Self, CallError> {
        let plan = read_plan(&settings.plan)
            .map_err(|problem| CallError::Environment { name: "LIBRA_PLAN", problem })?;
        let controller = Controller::bind(settings.switch).map_err(|error| CallError::Environment {
            name: "LIBRA_SWITCH",
            problem: format!("is {}, and {error}", settings.switch),
        })?;
        Ok(Self { controller: controller.with_security(security.clone()), plan })
    }

    /// Returns the address at which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.controller.address()
    }
}

fn read_plan(path: &Path) -> Result<Plan, String> {
    let file = path.display();
    let text =
        fs::read_to_string(path).map_err(|error| format!("is {file}, which cannot be read: {error}"))?;
    let plan = Plan::from_toml(&text).map_err(|error| format!("is {file}, which is no plan: {error}"))?;
    if plan.rows.is_empty() {
        return Err(format!("is {file}, which has no hot key, so that a switch has nothing to do"));
    }
    match plan.tables.iter().find(|table| table.width != 1) {
        Some(table) => Err(format!(
            "is {file}, whose table {:?} has {} values a key, and the default handler has one: LIBRA_PROFILE makes plans for it",
            table.name, table.width
        )),
        None => Ok(plan),
    }
}

/// The part of this process in a job, if there is one.
pub(crate) struct Job {
    settings: JobSettings,
    part: Mutex<Option<Part>>,
}

enum Part {
    Prepared(Box<Preparation>),
    Controller(ControllerThread),
    Server(Receiver<MemberEvent>),
    Worker(Arc<HotRequests>),
}

impl Job {
    /// The part of a process: that of the scheduler, if it has a plan, is prepared.
    pub(crate) fn new(settings: JobSettings, preparation: Option<Preparation>) -> Self {
        Self { settings, part: Mutex::new(preparation.map(|prepared| Part::Prepared(Box::new(prepared)))) }
    }

    /// Takes part, once the mesh is complete, and waits until all do and a switch is there. Does nothing the second time, and if the
    /// scheduler has no plan.
    pub(crate) fn begin(&self, node: &Node, exchange: &Arc<Exchange>) -> Result<(), CallError> {
        let settings = &self.settings;
        let mut part = self.part.lock();
        match part.take() {
            Some(Part::Prepared(preparation)) => {
                *part = Some(Part::Controller(run_controller(*preparation, node, settings, exchange)?));
            }
            Some(running) => *part = Some(running),
            None if node.notice().is_empty() => {
                if settings.expects_plan {
                    let problem =
                        "is set here, and not for the scheduler, which alone reads the plan".to_owned();
                    return Err(CallError::Environment { name: "LIBRA_PLAN", problem });
                }
            }
            None => {
                let options = settings.options(controller_address(node)?);
                if node.role() == NodeRole::Server {
                    *part = Some(Part::Server(run_server(node, options)?));
                } else {
                    let requests = HotRequests::start(node, options)?;
                    requests.wait_for_start()?;
                    exchange.set_hot(Arc::clone(&requests));
                    requests.ask_servers()?;
                    *part = Some(Part::Worker(requests));
                }
            }
        }
        Ok(())
    }

    /// Ends the part of this process. A worker waits for a while until its requests are answered, and for the others; the scheduler and
    /// servers wait for all workers, which need them until then.
    pub(crate) fn end(&self, node: &Node, timeout: Duration, exchange: &Exchange) {
        let part = self.part.lock().take();
        match part {
            None | Some(Part::Prepared(_)) => {}
            Some(Part::Controller(controller)) => end_controller(&controller, node, exchange),
            Some(Part::Server(events)) => {
                let is_running = || matches!(events.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout));
                while node.failure().is_none() && is_running() {}
            }
            Some(Part::Worker(requests)) => requests.end(timeout, DRAIN_TIMEOUT),
        }
    }
}

/// Settings of a process for a job.
#[derive(Debug, Clone)]
pub(crate) struct JobSettings {
    /// True if LIBRA_PLAN is set here.
    pub(crate) expects_plan: bool,
    /// Percentage of the datagrams of a worker that are lost.
    pub(crate) drop_percent: u8,
    pub(crate) drop_seed: u64,
    /// Time to wait for a switch, and to try to reach a process.
    pub(crate) connect_timeout: Duration,
    /// Protection of the streams of the job, those of switches among them.
    pub(crate) security: Security,
}

impl JobSettings {
    fn options(&self, controller: SocketAddr) -> NodeOptions {
        let faults = FaultRates::new(f64::from(self.drop_percent) / 100.0, 0.0, 0.0);
        NodeOptions {
            connect_timeout: self.connect_timeout,
            faults: faults.expect("it is a percentage"),
            fault_seed: self.drop_seed,
            security: self.security.clone(),
            ..NodeOptions::new(controller)
        }
    }
}

/// Returns the address of the controller that the scheduler has sent.
fn controller_address(node: &Node) -> Result<SocketAddr, CallError> {
    let notice = node.notice();
    let address: SocketAddr =
        notice.parse().map_err(|_| switching(format!("the scheduler named {notice:?} as address")))?;
    let everywhere = address.ip().is_unspecified();
    let ip: Option<IpAddr> = if everywhere { node.scheduler_ip() } else { Some(address.ip()) };
    let ip = ip.ok_or_else(|| switching("there is no stream to the scheduler"))?;
    Ok(SocketAddr::new(ip, address.port()))
}

/// The job of a plan: each key has the sum of its pushes.
fn job_of(plan: Plan, sizes: Sizes) -> JobSpec {
    let sums = plan.tables.iter().map(|table| TableSpec {
        name: table.name.clone(),
        keys: table.keys.clone(),
        width: 1,
        rule: Optimizer::Sgd { rate: 1.0 }.into(),
        init: Init::Zero,
    });
    let mut job = JobSpec::new(sizes, sums.collect());
    job.hot_path.round_time_max = ROUND_TIME_MAX;
    JobSpec { plan: Some(plan), ..job }
}

fn run_controller(
    Preparation { controller, plan }: Preparation,
    node: &Node,
    settings: &JobSettings,
    exchange: &Arc<Exchange>,
) -> Result<ControllerThread, CallError> {
    let count = |role| u16::try_from(node.processes(role)).expect("the scheduler counts nodes by u16");
    let sizes = Sizes { servers: count(NodeRole::Server), switches: 1, workers: count(NodeRole::Worker) };
    let address = controller.address();
    let cluster = job_of(plan, sizes).cluster();
    let (started, has_started) = mpsc::channel();
    let of_events = Arc::clone(exchange);
    let controller = controller.start(sizes, cluster, move |event| match event {
        ControllerEvent::Started => drop(started.send(Ok(()))),
        ControllerEvent::Failed { reason } => drop(started.send(Err(reason.clone()))),
        ControllerEvent::Joined { peer, remote, .. } => {
            of_events.note(1, &format_args!("{peer} of the job is at {remote}"))
        }
        ControllerEvent::Lost { peer: peer @ Peer::Switch(_), reason } => {
            let how = format_args!("{peer} of the job {reason}; nothing is lost, and the others go on");
            of_events.note(0, &how);
        }
        ControllerEvent::Settled { moved, took, .. } if *moved > 0 => {
            of_events.note(1, &format_args!("{moved} regions of hot keys have moved in {took:?}"));
        }
        _ => {}
    });
    let controller = controller.map_err(switching)?;
    let begun = Instant::now();
    let mut was_told = false;
    loop {
        match has_started.recv_timeout(LOOK) {
            Ok(Ok(())) => return Ok(controller),
            Ok(Err(reason)) => return Err(switching(reason)),
            Err(RecvTimeoutError::Disconnected) => return Err(switching("the controller's thread is gone")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(failure) = node.failure() {
            controller.abort(failure.to_string());
            return Err(failure.into());
        }
        let advice = format!("start `libra switch --controller {address}`");
        if begun.elapsed() >= settings.connect_timeout {
            let reason =
                format!("no switch has come to {address} in {:?}: {advice}", settings.connect_timeout);
            controller.abort(reason.clone());
            // All are told before this process ends.
            controller.wait(DRAIN_TIMEOUT);
            return Err(switching(reason));
        }
        if begun.elapsed() >= SWITCH_LATE && !was_told {
            was_told = true;
            exchange.note(0, &format_args!("waiting for a switch at {address}: {advice}"));
        }
    }
}

fn run_server(node: &Node, options: NodeOptions) -> Result<Receiver<MemberEvent>, CallError> {
    let server = ServerNode::bind(options.clone(), None).map_err(switching)?;
    let (sender, events) = mpsc::channel();
    let last = sender.clone();
    let run = move || {
        let ended = server.run(move |event| {
            if let ServerEvent::Member(event) = event {
                // The receiver is gone while the program runs.
                let _ = sender.send(event.clone());
            }
        });
        if let Err(error @ (NodeError::Io { .. } | NodeError::Bind { .. })) = ended {
            let _ = last.send(MemberEvent::Ended { reason: error.to_string(), cause: EndCause::Failed });
        }
    };
    let spawned = thread::Builder::new().name("server-of-job".to_owned()).spawn(run);
    spawned.map_err(|error| CallError::Thread { os_error: error.to_string() })?;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(MemberEvent::Started { .. }) => return Ok(events),
            Ok(MemberEvent::Ended { reason, .. }) => return Err(switching(reason)),
            // It is never asked to end.
            Ok(MemberEvent::Finished(_) | MemberEvent::Drained { .. })
            | Err(RecvTimeoutError::Disconnected) => {
                return Err(switching("the job was over before it began"));
            }
            Ok(MemberEvent::DrainAsked) | Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(failure) = node.failure() {
            return Err(failure.into());
        }
    }
}

fn end_controller(controller: &ControllerThread, node: &Node, exchange: &Exchange) {
    loop {
        if let Some(failure) = node.failure() {
            controller.abort(failure.to_string());
            controller.wait(DRAIN_TIMEOUT);
            return;
        }
        match controller.wait(LOOK) {
            Some(Ok(outcome)) => return exchange.note(1, &summary(&outcome)),
            Some(Err(error)) => {
                return exchange.note(0, &format_args!("the job of hot keys failed: {error}"));
            }
            None => {}
        }
    }
}

/// Counters of the traffic through switches, as text.
fn summary(outcome: &Outcome) -> String {
    let (mut switches, mut workers) = (SwitchStatistics::default(), WorkerStatistics::default());
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Switch(counted) => switches += *counted,
            Statistics::Worker(counted) => workers += *counted,
            Statistics::Server(_) => {}
        }
    }
    format!(
        "switches added {} packets in {} rounds and answered {} pulls; of hot keys {} pushed and {} pulled went through them, {} and {} \
         past them",
        switches.pushes,
        switches.rounds,
        switches.pulls,
        workers.rows_hot,
        workers.rows_pulled_hot,
        workers.rows_cold,
        workers.rows_pulled - workers.rows_pulled_hot
    )
}
