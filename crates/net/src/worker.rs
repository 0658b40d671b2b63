//! A worker on a thread of its own, and the blocking handle that a training loop holds.

use core::ops::ControlFlow;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc as std_mpsc;
use std::thread;

use libra_proto::{
    ClientError, Cluster, Level, Parameters, PullId, Pulled, Worker, WorkerCommand, WorkerEvent,
};
use tokio::sync::mpsc;

use crate::driver::{Ports, drive};
use crate::links::Links;
use crate::node::{NodeError, NodeOptions, bind_datagrams, runtime};

/// Pushes that may be under way before the next one waits: enough to hide a round trip, few enough that values stay fresh.
const PUSHES_OPEN_MAX: usize = 2;

/// A worker of a cluster.
pub struct WorkerNode {
    number: u16,
    cluster: Box<Cluster>,
    commands: mpsc::UnboundedSender<WorkerCommand>,
    events: std_mpsc::Receiver<WorkerEvent>,
    operations: u64,
    barriers: u64,
    pulling: HashSet<PullId>,
    pulled: HashMap<PullId, Pulled>,
    pushing: HashSet<u64>,
    ended: Option<ClientError>,
}

impl WorkerNode {
    /// Joins the cluster of a controller, and waits until the cluster is complete.
    pub fn join(options: NodeOptions) -> Result<Self, NodeError> {
        let runtime = runtime()?;
        let (socket, address) = bind_datagrams(&runtime, &options, None)?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (outbox, events) = std_mpsc::channel();
        let network = move || {
            let role = Worker::new(options.controller, address);
            let ports =
                Ports { listener: None, datagrams: Some(socket), links: Links::new(options.patience) };
            let last = outbox.clone();
            let driven = runtime.block_on(drive(role, ports, inbox, |event| {
                let over = matches!(event, WorkerEvent::Finished | WorkerEvent::Ended { .. });
                // A handle that was dropped has no use for the event, and the job none for this worker.
                if outbox.send(event).is_err() || over {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            }));
            if let Err(error) = driven {
                let reason = format!("the worker's sockets failed: {error}");
                let _ = last.send(WorkerEvent::Ended { reason });
            }
        };
        let spawned = thread::Builder::new().name("worker-network".to_owned()).spawn(network);
        spawned.map_err(NodeError::io("cannot start a thread for the worker's network"))?;
        match events.recv() {
            Ok(WorkerEvent::Started { worker, cluster }) => Ok(Self {
                number: worker,
                cluster,
                commands,
                events,
                operations: 0,
                barriers: 0,
                pulling: HashSet::new(),
                pulled: HashMap::new(),
                pushing: HashSet::new(),
                ended: None,
            }),
            Ok(WorkerEvent::Ended { reason }) => Err(NodeError::Ended { reason }),
            Ok(_) | Err(_) => {
                Err(NodeError::Ended { reason: "the worker's network ended at once".to_owned() })
            }
        }
    }

    /// The number of this worker, counted from zero.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The cluster it is in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Adds gradients to rows and reads the same rows in one trip; completes like a pull.
    pub fn start_push_pull(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<PullId, ClientError> {
        let id = PullId(self.number_operation());
        self.command(WorkerCommand::PushPull { id, keys, gradients })?;
        self.pulling.insert(id);
        Ok(id)
    }

    /// Adds gradients to rows and waits until they are applied and the new values can be read.
    pub fn push_visibly(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        let number = self.number_operation();
        self.pushing.insert(number);
        self.command(WorkerCommand::Push { number, keys, gradients, level: Level::Visible })?;
        while self.pushing.contains(&number) {
            self.wait()?;
        }
        Ok(())
    }

    /// Tells the controller what came of the task, and waits until all workers have done so.
    pub fn report(mut self, text: String) -> Result<(), ClientError> {
        self.command(WorkerCommand::Report { text })?;
        loop {
            match self.events.recv() {
                Ok(WorkerEvent::Finished) => return Ok(()),
                Ok(WorkerEvent::Ended { reason }) => return Err(ClientError::Ended { reason }),
                Ok(_) => {}
                Err(_) => return Err(vanished()),
            }
        }
    }

    /// Ends the job for everybody, because this worker cannot do its part.
    pub fn abort(mut self, reason: String) {
        if self.command(WorkerCommand::Abort { reason }).is_ok() {
            // The controller ends the job, or is gone: either way the last event comes.
            while self.wait().is_ok() {}
        }
    }

    fn number_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    fn command(&mut self, command: WorkerCommand) -> Result<(), ClientError> {
        self.take_events()?;
        self.commands.send(command).map_err(|_| self.ended.clone().unwrap_or_else(vanished))
    }

    /// Takes note of everything that has happened.
    fn take_events(&mut self) -> Result<(), ClientError> {
        while let Ok(event) = self.events.try_recv() {
            self.take(event)?;
        }
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// Waits until something happens.
    fn wait(&mut self) -> Result<WorkerNote, ClientError> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        match self.events.recv() {
            Ok(event) => self.take(event),
            Err(_) => Err(vanished()),
        }
    }

    fn take(&mut self, event: WorkerEvent) -> Result<WorkerNote, ClientError> {
        match event {
            WorkerEvent::Pulled(id, pulled) => {
                self.pulled.insert(id, pulled);
            }
            WorkerEvent::Pushed { number } => {
                self.pushing.remove(&number);
            }
            WorkerEvent::Refused { number, error } => {
                self.pushing.remove(&number);
                self.pulling.remove(&PullId(number));
                return Err(error);
            }
            WorkerEvent::Flushed { number } => return Ok(WorkerNote::Flushed(number)),
            WorkerEvent::Released { number } => return Ok(WorkerNote::Released(number)),
            WorkerEvent::Ended { reason } => {
                let error = ClientError::Ended { reason };
                self.ended = Some(error.clone());
                return Err(error);
            }
            WorkerEvent::Started { .. } | WorkerEvent::Finished => {}
        }
        Ok(WorkerNote::Other)
    }
}

/// What a wait may have been for.
#[derive(Debug, PartialEq, Eq)]
enum WorkerNote {
    Flushed(u64),
    Released(u64),
    Other,
}

fn vanished() -> ClientError {
    ClientError::Ended { reason: "the worker's network is gone".to_owned() }
}

impl Parameters for WorkerNode {
    fn start_pull(&mut self, keys: Vec<u64>) -> Result<PullId, ClientError> {
        let id = PullId(self.number_operation());
        self.command(WorkerCommand::Pull { id, keys })?;
        self.pulling.insert(id);
        Ok(id)
    }

    fn finish_pull(&mut self, pull: PullId) -> Result<Pulled, ClientError> {
        if !self.pulling.contains(&pull) {
            return Err(ClientError::UnknownPull(pull));
        }
        loop {
            if let Some(pulled) = self.pulled.remove(&pull) {
                self.pulling.remove(&pull);
                return Ok(pulled);
            }
            self.wait()?;
        }
    }

    fn push(&mut self, keys: Vec<u64>, gradients: Vec<f32>) -> Result<(), ClientError> {
        let number = self.number_operation();
        self.take_events()?;
        while self.pushing.len() >= PUSHES_OPEN_MAX {
            self.wait()?;
        }
        self.command(WorkerCommand::Push { number, keys, gradients, level: Level::Accepted })?;
        self.pushing.insert(number);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        let number = self.number_operation();
        self.command(WorkerCommand::Flush { number })?;
        while self.wait()? != WorkerNote::Flushed(number) {}
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), ClientError> {
        let number = self.barriers;
        self.barriers += 1;
        self.command(WorkerCommand::Barrier { number })?;
        while self.wait()? != WorkerNote::Released(number) {}
        Ok(())
    }
}
