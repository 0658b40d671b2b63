//! The worker: it turns pushes and pulls of rows into packets for switches and messages for shards.

mod cold;
mod hot;
mod operations;
mod rows;
mod session;

use core::net::SocketAddr;
use std::collections::VecDeque;

pub use self::operations::Level;

use self::session::{PushAnswer, Session};
use crate::client::{ClientError, PullId, Pulled};
use crate::cluster::{Cluster, Peer};
use crate::membership::{Membership, MembershipEvent};
use crate::message::{Kind, Message};
use crate::role::{Action, Link, LinkEvent, Outgoing, Role};
use crate::statistics::{Statistics, WorkerStatistics};
use crate::time::Instant;

/// What a user asks of a worker. The user numbers operations, each number once.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerCommand {
    /// Read rows.
    Pull {
        /// The operation.
        id: PullId,
        /// Distinct keys.
        keys: Vec<u64>,
    },
    /// Add gradients to rows, laid out one behind the other. A key that occurs twice has its gradients summed.
    Push {
        /// The operation.
        number: u64,
        /// Keys.
        keys: Vec<u64>,
        /// Gradients of their rows.
        gradients: Vec<f32>,
        /// When it counts as done.
        level: Level,
    },
    /// Add gradients to rows and read the same rows in one trip. A hot row answers with the value it has while the
    /// gradient waits for the end of its epoch. Completes like a pull; `keys` of the answer are distinct.
    PushPull {
        /// The operation.
        id: PullId,
        /// Keys.
        keys: Vec<u64>,
        /// Gradients of their rows.
        gradients: Vec<f32>,
    },
    /// Say when every push so far is visible.
    Flush {
        /// The operation.
        number: u64,
    },
    /// Say when every worker has come to this barrier.
    Barrier {
        /// Counted from zero.
        number: u64,
    },
    /// The task is done, this is what came of it. The worker ends when the controller has heard it from all.
    Report {
        /// The account, for whoever started the controller.
        text: String,
    },
    /// End the job for everybody.
    Abort {
        /// Why.
        reason: String,
    },
}

/// What a worker tells its user.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerEvent {
    /// The cluster is complete and this worker is connected.
    Started {
        /// The number of this worker.
        worker: u16,
        /// The cluster.
        cluster: Box<Cluster>,
    },
    /// A pull, or a push with pull, is complete.
    Pulled(PullId, Pulled),
    /// A push has reached its level.
    Pushed {
        /// The operation.
        number: u64,
    },
    /// An operation cannot be carried out. Nothing of it was sent.
    Refused {
        /// The operation.
        number: u64,
        /// Why.
        error: ClientError,
    },
    /// Every push before this flush is visible.
    Flushed {
        /// The operation.
        number: u64,
    },
    /// Every worker has come to the barrier.
    Released {
        /// The barrier.
        number: u64,
    },
    /// All workers have reported: the job is done.
    Finished,
    /// The job ended before it was done.
    Ended {
        /// Who ended it and why.
        reason: String,
    },
}

/// A worker as a state machine without I/O.
#[derive(Debug)]
pub struct Worker {
    membership: Membership,
    number: u16,
    servers: Vec<Link>,
    opened: usize,
    session: Option<Session>,
    events: VecDeque<WorkerEvent>,
    actions: VecDeque<Action>,
}

impl Worker {
    /// A worker that will join the cluster of a controller, and that sends datagrams from `datagrams`.
    pub fn new(controller: SocketAddr, datagrams: SocketAddr) -> Self {
        Self {
            membership: Membership::new(controller, Kind::Worker, None, Some(datagrams), 0),
            number: 0,
            servers: Vec::new(),
            opened: 0,
            session: None,
            events: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn handle_membership(&mut self, event: MembershipEvent) {
        match event {
            MembershipEvent::Started { you: Peer::Worker(number), cluster } if self.session.is_none() => {
                self.servers =
                    cluster.servers.iter().map(|address| self.membership.connect(*address)).collect();
                self.number = number;
                match Session::new(cluster, number, &self.servers) {
                    Ok(session) => self.session = Some(session),
                    Err(error) => self.abort(&format!("the plan cannot be placed: {error}")),
                }
            }
            MembershipEvent::Started { .. } => {}
            MembershipEvent::Released { number } => self.events.push_back(WorkerEvent::Released { number }),
            MembershipEvent::Finish => {
                self.end();
                self.events.push_back(WorkerEvent::Finished);
            }
            MembershipEvent::Ended { reason } => {
                self.end();
                self.events.push_back(WorkerEvent::Ended { reason });
            }
        }
    }

    fn end(&mut self) {
        self.session = None;
        let links = self.servers.drain(..);
        self.actions.extend(links.map(|link| Action::Close { link }));
    }

    fn abort(&mut self, reason: &str) {
        self.membership.abort(&format!("{}: {reason}", Peer::Worker(self.number)));
    }

    fn statistics(&self) -> WorkerStatistics {
        self.session.as_ref().map(Session::statistics).unwrap_or_default()
    }
}

impl Role for Worker {
    type Command = WorkerCommand;
    type Event = WorkerEvent;

    fn handle_start(&mut self, _now: Instant) {
        self.membership.handle_start();
    }

    fn handle_datagrams(&mut self, now: Instant, from: SocketAddr, datagrams: &mut [u8], stride: usize) {
        if let Some(session) = &mut self.session {
            session.handle_datagrams(now, from, datagrams, stride);
        }
    }

    fn handle_link(&mut self, now: Instant, link: Link, event: LinkEvent) {
        if Membership::is_controller(link) {
            if let Some(event) = self.membership.handle_link(now, event) {
                self.handle_membership(event);
            }
            return;
        }
        let Some(server) = self.servers.iter().position(|open| *open == link) else { return };
        let Some(session) = &self.session else { return };
        match event {
            LinkEvent::Opened { .. } => {
                let hello = Message::Hello { job: session.cluster.job, from: Peer::Worker(self.number) };
                self.actions.push_back(Action::Send { link, message: hello });
                self.opened += 1;
                if self.opened == self.servers.len() {
                    let cluster = session.cluster.clone();
                    self.events.push_back(WorkerEvent::Started { worker: self.number, cluster });
                }
            }
            LinkEvent::Closed { reason } => {
                let address = session.cluster.servers[server];
                self.abort(&format!("no connection to server {server} at {address}: {reason}"));
            }
        }
    }

    fn handle_message(&mut self, _now: Instant, link: Link, message: Message) {
        if Membership::is_controller(link) {
            if let Some(event) = self.membership.handle_message(message) {
                self.handle_membership(event);
            }
        } else if let Some(session) = &mut self.session
            && let Err(reason) = session.handle_message(link, message)
        {
            self.abort(&reason);
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, reason: &str) {
        self.abort(reason);
    }

    fn handle_command(&mut self, _now: Instant, command: WorkerCommand) {
        match command {
            WorkerCommand::Barrier { number } => return self.membership.send(Message::Barrier { number }),
            WorkerCommand::Report { text } => {
                let statistics = Statistics::Worker(self.statistics());
                return self.membership.send(Message::Report { text, statistics });
            }
            WorkerCommand::Abort { reason } => return self.abort(&reason),
            _ => {}
        }
        // Before the job and after it there is nobody to ask; the user learns of the end by its own event.
        let Some(session) = &mut self.session else { return };
        match command {
            WorkerCommand::Pull { id, keys } => session.pull(id, keys),
            WorkerCommand::Push { number, keys, gradients, level } => {
                session.push(number, keys, gradients, PushAnswer::Level(level));
            }
            WorkerCommand::PushPull { id, keys, gradients } => {
                session.push(id.0, keys, gradients, PushAnswer::Values);
            }
            WorkerCommand::Flush { number } => session.flush(number),
            WorkerCommand::Barrier { .. } | WorkerCommand::Report { .. } | WorkerCommand::Abort { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.handle_timeout(now);
        }
        if self.membership.is_heartbeat_due(now) {
            self.membership.heartbeat(now, Statistics::Worker(self.statistics()));
        }
    }

    fn poll_transmit(&mut self, now: Instant, outgoing: &mut Outgoing) {
        if let Some(session) = &mut self.session {
            session.poll_transmit(now, outgoing);
        }
    }

    fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.membership.poll_action().or_else(|| self.actions.pop_front()) {
            return Some(action);
        }
        let (link, message) = self.session.as_mut()?.messages.pop_front()?;
        Some(Action::Send { link, message })
    }

    fn poll_event(&mut self) -> Option<WorkerEvent> {
        let session = self.session.as_mut().and_then(|session| session.events.pop_front());
        session.or_else(|| self.events.pop_front())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let session = self.session.as_ref().and_then(Session::poll_timeout);
        [session, self.membership.poll_timeout()].into_iter().flatten().min()
    }
}
