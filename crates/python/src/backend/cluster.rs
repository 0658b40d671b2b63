//! Rows in a cluster: a worker on a thread of its own, which the threads of Python wait for without the lock of the interpreter.

mod driver;
mod watch;

use core::iter;
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use libra_client::{
    AssignedRows, ClientError, Cluster as ClusterOfJob, Drain, FaultRates, JobSpec, LocalCluster,
    LocalOptions, Mode, NodeError, NodeOptions, Plan, Security, Sizes, StartError, TOKEN_VARIABLE, TableSpec,
    UpdateRule, Work, Worker,
};

use self::driver::{Driver, Request};
use self::watch::Watch;
use super::alone::lock;
use super::{Page, Part, Wanted, Whole, Written, check_signals};
use crate::failure::Failure;

const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Variable that lets a worker call another machine without a token.
const INSECURE_VARIABLE: &str = "LIBRA_INSECURE";

/// Variable that tells the job that another worker is started if this one is lost, as `libra worker --restarted`.
const RESTARTED_VARIABLE: &str = "LIBRA_RESTARTED";

/// Time for which workers look for a controller in the process of another: it does not come back, as a process of its own may.
const RETURN_MAX_OF_HOST: Duration = Duration::from_secs(5);

/// Time for the reason of a join that has failed to come, when that took all the time there was.
const REASON_TIME: Duration = Duration::from_secs(1);

/// A worker of a cluster, from the definition of its tables to the end of the job.
pub(crate) struct Cluster {
    mode: Mode,
    seed: u64,
    /// Faults of outgoing datagrams, for tests.
    faults: FaultRates,
    tables: Mutex<Vec<TableSpec>>,
    /// The samples of the job, if they are dealt in chunks.
    samples: Mutex<Option<Samples>>,
    /// Once this process has joined.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    /// The controller and the servers, in the process that has them.
    hosted: Mutex<Option<LocalCluster>>,
    /// Asks the worker to leave after its step.
    drain: Drain,
}

/// Samples that a job deals to its workers in chunks, in a number of epochs. They follow a phase of a single chunk, which sets rows.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    /// Description, the same in all workers and in a job that resumes.
    pub(crate) text: String,
    /// Epochs.
    pub(crate) epochs: u32,
    /// Chunks of an epoch.
    pub(crate) chunks: u32,
}

impl Samples {
    fn work(&self) -> Work {
        let chunks = iter::once(1).chain(iter::repeat_n(self.chunks, self.epochs as usize)).collect();
        Work { phases: 1 + u64::from(self.epochs), chunks, ..Work::default() }
    }
}

/// Protection of streams with the controller at this address, as the environment says. Without any, no other machine is called, as by
/// `libra worker`.
fn security(controller: SocketAddr) -> Result<Security, Failure> {
    if is_set(INSECURE_VARIABLE)? {
        return Ok(Security::NONE);
    }
    let security = Security::from_environment();
    let security = security.map_err(|error| Failure::Value(format!("{TOKEN_VARIABLE}: {error}")))?;
    if security == Security::NONE && !controller.ip().to_canonical().is_loopback() {
        return Err(Failure::Value(format!(
            "the controller at {controller} is reached over a network: give the token that it has printed in {TOKEN_VARIABLE} (or \
             {INSECURE_VARIABLE}=true, if it was started with --insecure)"
        )));
    }
    Ok(security)
}

/// Reads a variable that is true or false.
fn is_set(variable: &str) -> Result<bool, Failure> {
    match std::env::var(variable).unwrap_or_default().as_str() {
        "true" | "1" => Ok(true),
        "" | "false" | "0" => Ok(false),
        text => Err(Failure::Value(format!("{variable} = {text:?} must be true or false"))),
    }
}

/// Names the variable of the token in the words of a handshake that has failed for want of the right one.
fn with_variable(error: NodeError) -> Failure {
    match error {
        NodeError::Ended { reason, cause: _ }
            if reason.contains("token") && !reason.contains("certificate") =>
        {
            Failure::ended(format!(
                "{reason}; {TOKEN_VARIABLE} must have the token of the cluster, and no other"
            ))
        }
        error => error.into(),
    }
}

impl Cluster {
    pub(crate) fn new(mode: Mode, seed: u64, faults: FaultRates) -> Self {
        Self {
            mode,
            seed,
            faults,
            tables: Mutex::default(),
            samples: Mutex::default(),
            requests: Mutex::default(),
            hosted: Mutex::default(),
            drain: Drain::new(),
        }
    }

    pub(crate) fn add_table(&self, spec: TableSpec) -> Result<(), Failure> {
        self.check_not_begun(&spec.name)?;
        lock(&self.tables).push(spec);
        Ok(())
    }

    pub(crate) fn deal_samples(&self, samples: Samples) -> Result<(), Failure> {
        if lock(&self.requests).is_some() {
            let text = "the cluster has begun without samples that are dealt in chunks: define them before the first look-up";
            return Err(Failure::Libra("Error", text.to_owned()));
        }
        *lock(&self.samples) = Some(samples);
        Ok(())
    }

    pub(crate) fn set_rule(&self, table: usize, rule: UpdateRule) -> Result<(), Failure> {
        let spec = &mut lock(&self.tables)[table];
        if spec.rule == rule {
            return Ok(());
        }
        self.check_not_begun(&spec.name)?;
        spec.rule = rule;
        Ok(())
    }

    fn check_not_begun(&self, table: &str) -> Result<(), Failure> {
        if lock(&self.requests).is_none() {
            return Ok(());
        }
        let text = format!(
            "table \"{table}\": the cluster has begun with other tables or rates. Wrap the optimizer before the first \
             look-up; a rate that changes is a schedule= of the rule in tables="
        );
        Err(Failure::Libra("Error", text))
    }

    /// Starts the controller, the servers and the switches in this process; returns the address of the controller. `plan` is the text
    /// of a plan of hot rows.
    pub(crate) fn host(&self, sizes: Sizes, plan: Option<&str>) -> Result<SocketAddr, Failure> {
        let spec = JobSpec { return_max: RETURN_MAX_OF_HOST, ..self.spec(sizes, plan)? };
        // It listens on loopback.
        let security = security(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let cluster = LocalCluster::start(
            &spec,
            LocalOptions { faults: self.faults, security, ..LocalOptions::default() },
            |_event| (),
        )?;
        let address = cluster.address();
        *lock(&self.hosted) = Some(cluster);
        Ok(address)
    }

    /// The job as this process defines it.
    fn spec(&self, sizes: Sizes, plan: Option<&str>) -> Result<JobSpec, Failure> {
        let mut spec = JobSpec::new(sizes, lock(&self.tables).clone()).with_mode(self.mode);
        spec.seed = self.seed;
        if let Some(samples) = &*lock(&self.samples) {
            spec.work = Some(samples.work());
            spec.front_end.clone_from(&samples.text);
        }
        let of_plan =
            |error: &dyn std::error::Error| Failure::Value(format!("the plan cannot be used: {error}"));
        spec.plan = plan.map(Plan::from_toml).transpose().map_err(|error| of_plan(&error))?;
        spec.check()
            .map_err(|error| if plan.is_some() { of_plan(&error) } else { StartError::from(error).into() })?;
        Ok(spec)
    }

    /// Joins a cluster that other processes have started. Its controller may take the job from its workers.
    pub(crate) fn join_with_job(
        &self,
        controller: SocketAddr,
        timeout: Duration,
        workers: u16,
        plan: Option<&str>,
    ) -> Result<u64, Failure> {
        let job = self.spec(Sizes { servers: 1, switches: 0, workers }, plan)?.cluster();
        self.join_by(controller, timeout, move |options| Worker::join_with_job(options, job))
    }

    /// Joins a cluster, and waits until it is complete. Returns the number of the next barrier: above 0 for a worker that comes late.
    pub(crate) fn join(&self, controller: SocketAddr, timeout: Duration) -> Result<u64, Failure> {
        self.join_by(controller, timeout, Worker::join)
    }

    fn join_by(
        &self,
        controller: SocketAddr,
        timeout: Duration,
        join: impl FnOnce(NodeOptions) -> Result<Worker, NodeError> + Send + 'static,
    ) -> Result<u64, Failure> {
        let (requests, to_do) = mpsc::channel();
        let (begun, has_begun) = mpsc::channel();
        let (tables, mode, samples) = (lock(&self.tables).clone(), self.mode, lock(&self.samples).clone());
        // Workers lose other datagrams.
        let fault_seed = self.seed ^ u64::from(std::process::id());
        let (security, drain) = (security(controller)?, self.drain.clone());
        let is_restarted = is_set(RESTARTED_VARIABLE)?;
        let watch = Watch::from_environment()?;
        let inspector = watch.inspector();
        let options = NodeOptions::new(controller);
        let connect_timeout = options.connect_timeout.min(timeout);
        // A controller that is not there is the reason then, and not that others are late.
        let patience = if connect_timeout == timeout { timeout + REASON_TIME } else { timeout };
        let options = NodeOptions {
            connect_timeout,
            faults: self.faults,
            fault_seed,
            security,
            drain,
            is_restarted,
            inspector,
            ..options
        };
        let run = move || match join(options) {
            Ok(worker) => {
                let difference = difference(&tables, mode, &worker)
                    .or_else(|| difference_of_work(samples.as_ref(), worker.cluster()));
                if let Some(difference) = difference {
                    worker.abort(format!("a worker has another job: {difference}"));
                    // The caller may have been interrupted.
                    let _ = begun.send(Err(Failure::Libra("Mismatch", difference)));
                    return;
                }
                let names: Vec<String> = tables.into_iter().map(|table| table.name).collect();
                watch.began();
                let next = if samples.is_some() { worker.phase() } else { worker.next_barrier() };
                if begun.send(Ok(next)).is_ok() {
                    Driver::new(worker, &names).run(&to_do, watch);
                }
            }
            Err(error) => drop(begun.send(Err(with_variable(error)))),
        };
        let spawned = thread::Builder::new().name("libra worker".to_owned()).spawn(run);
        spawned.map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))?;
        let barrier = match wait(&has_begun, Some(patience))? {
            Some(outcome) => outcome?,
            None => {
                let seconds = timeout.as_secs_f64();
                let text = format!(
                    "the cluster at {controller} was not complete after {seconds} s: fewer workers have come than \
                     WORLD_SIZE says, or some have not reached their first look-up"
                );
                return Err(Failure::Libra("TimeoutError", text));
            }
        };
        *lock(&self.requests) = Some(requests);
        Ok(barrier)
    }

    /// Asks this worker to leave after its step: its operations fail from then on.
    pub(crate) fn drain(&self) {
        self.drain.begin();
    }

    fn send(&self, request: Request) -> Result<(), Failure> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let not_begun = || Failure::Libra("Error", "the cluster has not begun".to_owned());
        requests.as_ref().ok_or_else(not_begun)?.send(request).map_err(|_| gone())
    }

    fn ask<T>(
        &self,
        request: impl FnOnce(mpsc::Sender<Result<T, ClientError>>) -> Request,
        timeout: Option<Duration>,
    ) -> Result<Option<T>, Failure> {
        let (reply, answer) = mpsc::channel();
        self.send(request(reply))?;
        Ok(wait(&answer, timeout)?.transpose()?)
    }

    pub(crate) fn load(&self, wanted: Vec<Wanted<'_>>, is_step: bool) -> Result<(), Failure> {
        if is_step {
            return self.pull(wanted, Vec::new(), is_step);
        }
        // Sets of one table may miss the same rows, and keys of a pull are distinct.
        wanted.into_iter().try_for_each(|wanted| self.pull(vec![wanted], Vec::new(), is_step))
    }

    /// Reads what sets miss and the first rows of tables, in one round trip.
    pub(crate) fn pull(
        &self,
        wanted: Vec<Wanted<'_>>,
        whole: Vec<Whole<'_>>,
        is_step: bool,
    ) -> Result<(), Failure> {
        let keys_of = |wanted: &Wanted<'_>| {
            wanted.set.missing().iter().map(|id| wanted.first_key + id).collect::<Vec<_>>()
        };
        let mut keys: Vec<u64> = wanted.iter().flat_map(keys_of).collect();
        whole.iter().for_each(|whole| keys.extend(whole.keys()));
        let values = self.ask(|reply| Request::Pull { keys, is_step, reply }, None)?;
        let values = values.expect("without a timeout there is an answer");
        let mut rest = &values[..];
        for Wanted { set, .. } in wanted {
            set.load(|_, place| {
                let (rows, others) = rest.split_at(place.len());
                place.copy_from_slice(rows);
                rest = others;
                Ok::<(), Failure>(())
            })?;
        }
        for Whole { values: place, .. } in whole {
            let (rows, others) = rest.split_at(place.len());
            place.copy_from_slice(rows);
            rest = others;
        }
        Ok(())
    }

    pub(crate) fn write(&self, rows: Written) -> Result<(), Failure> {
        let Written { table, keys, values, states } = rows;
        let table =
            u16::try_from(table).map_err(|_| Failure::Value("a job has at most 65,536 tables".into()))?;
        let rows = AssignedRows { table, keys, values, states };
        self.ask(|reply| Request::Assign { rows, reply }, None).map(drop)
    }

    pub(crate) fn reset(&self, table: usize, steps: u64) -> Result<(), Failure> {
        self.ask(|reply| Request::Reset { table, steps, reply }, None).map(drop)
    }

    pub(crate) fn scan(&self, table: usize, shard: u16, after: Option<u64>) -> Result<Page, Failure> {
        let page = self.ask(|reply| Request::Scan { shard, table, after, reply }, None)?;
        let (page, shards) = page.expect("without a timeout there is an answer");
        Ok(Page {
            keys: page.keys.to_vec(),
            values: page.values.0,
            states: page.states.0,
            steps: page.steps,
            next: page.next,
            shards,
        })
    }

    pub(crate) fn push(&self, parts: Vec<Part>) -> Result<(), Failure> {
        let mut parts = parts.into_iter();
        let Some(Part { mut keys, mut gradients, .. }) = parts.next() else { return Ok(()) };
        for part in parts {
            keys.extend(part.keys);
            gradients.extend(part.gradients);
        }
        self.send(Request::Push { keys, gradients })
    }

    pub(crate) fn tick(&self) -> Result<(), Failure> {
        self.send(Request::Tick)
    }

    pub(crate) fn note_trained(&self, samples: u64, loss: f64) -> Result<(), Failure> {
        self.send(Request::Trained { samples, loss })
    }

    pub(crate) fn note_planned(&self, samples: u64) -> Result<(), Failure> {
        self.send(Request::Plans { samples })
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        self.ask(|reply| Request::Flush { reply }, None).map(drop)
    }

    pub(crate) fn barrier(&self) -> Result<(), Failure> {
        self.ask(|reply| Request::Barrier { reply }, None).map(drop)
    }

    /// Returns the next chunk, once there is one, and the phase of this worker. No chunk: none is at hand and one is to be finished, or this
    /// phase has just begun.
    pub(crate) fn next_chunk(&self) -> Result<(u64, Option<u32>), Failure> {
        let next = self.ask(|reply| Request::NextChunk { reply }, None)?;
        Ok(next.expect("without a timeout there is an answer"))
    }

    /// All that this worker pushes for a chunk was pushed.
    pub(crate) fn finish_chunk(&self, chunk: u32, account: String) -> Result<(), Failure> {
        self.send(Request::FinishChunk { chunk, account })
    }

    /// Ends the part of this worker. A worker that is done waits for the others, and the process with the servers for all; one that is not
    /// has so much time to leave. Returns the packets that switches have added, in the process that has them.
    pub(crate) fn finish(&self, is_done: bool, timeout: Duration) -> Result<u64, Failure> {
        if lock(&self.requests).is_none() {
            return Ok(0);
        }
        let hosts = lock(&self.hosted).take();
        // The servers are in this process: without them, the others cannot go on. Leases of chunks go back to them.
        let is_done = is_done || (hosts.is_some() && lock(&self.samples).is_none());
        let time = (!is_done).then_some(timeout);
        let finished = self.ask(|reply| Request::Finish { is_done, reply }, time);
        *lock(&self.requests) = None;
        let finished = finished?;
        let packets =
            hosts.map_or(Ok(0), |cluster| cluster.finish().map(|done| done.outcome.packets_aggregated()));
        let late = || {
            let seconds = timeout.as_secs_f64();
            Failure::Lost(format!(
                "this worker has not left the cluster after {seconds} s: its last pushes may be lost"
            ))
        };
        let packets = packets?;
        finished.map(|()| packets).ok_or_else(late)
    }
}

/// Waits for an answer, and looks at signals. None after the timeout.
fn wait<T>(answer: &mpsc::Receiver<T>, timeout: Option<Duration>) -> Result<Option<T>, Failure> {
    let begin = Instant::now();
    loop {
        match answer.recv_timeout(SIGNALS_EVERY) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                check_signals()?;
                if timeout.is_some_and(|timeout| begin.elapsed() >= timeout) {
                    return Ok(None);
                }
            }
        }
    }
}

/// Returns the difference between the work of this process and that of the cluster.
fn difference_of_work(samples: Option<&Samples>, cluster: &ClusterOfJob) -> Option<String> {
    match (samples, &cluster.work) {
        (None, None) => None,
        (None, Some(_)) => Some(format!(
            "the job deals samples in chunks ({}), and here are none (libra_ps.data.Chunks)",
            cluster.task
        )),
        (Some(_), None) => Some("here samples are dealt in chunks, and the job does not deal any".to_owned()),
        (Some(samples), Some(_)) if samples.text != cluster.task => {
            Some(format!("here are {}, the job has {}", samples.text, cluster.task))
        }
        // A job that resumes may have more phases behind it than it is to have.
        (Some(samples), Some(work)) => {
            let here = samples.work();
            let is_same = here.chunks == work.chunks && here.phases.max(work.done.phase) == work.phases;
            (!is_same).then(|| format!("here are {} epochs, the job has {}", samples.epochs, work.phases - 1))
        }
    }
}

fn gone() -> Failure {
    Failure::ended("the cluster has ended")
}

/// Returns the first difference between the tables of this process and those of the cluster.
fn difference(tables: &[TableSpec], mode: Mode, worker: &Worker) -> Option<String> {
    let cluster = worker.cluster();
    if cluster.mode != mode {
        return Some(format!("the mode of the job is {}, here it is {mode}", cluster.mode));
    }
    for table in tables {
        let Some(other) = cluster.tables.iter().find(|other| other.name == table.name) else {
            return Some(format!("the job has no table \"{}\"", table.name));
        };
        if other != table {
            let shown = |table: &TableSpec| {
                (table.keys.end - table.keys.start, table.width, table.rule.optimizer, table.init)
            };
            if shown(table) == shown(other) {
                let (here, there) = (&table.rule, &other.rule);
                return Some(format!(
                    "table \"{}\" has the rule {here:?} here, and {there:?} in the job",
                    table.name
                ));
            }
            return Some(format!(
                "table \"{}\" is {} rows of width {}, {:?}, {:?} here, and {} rows of width {}, {:?}, {:?} in the job",
                table.name,
                table.keys.end - table.keys.start,
                table.width,
                table.rule.optimizer,
                table.init,
                other.keys.end - other.keys.start,
                other.width,
                other.rule.optimizer,
                other.init,
            ));
        }
    }
    (tables.len() != cluster.tables.len())
        .then(|| format!("{} tables are defined here, the job has {}", tables.len(), cluster.tables.len()))
}
