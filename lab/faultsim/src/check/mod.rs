//! The checkers. They see the wire and the events of users, and nothing of the state of the roles.
//!
//! | checker | what it checks |
//! |---|---|
//! | `packets` | a sequence number names the same entries for the life of its flow; a flow restarts only when all of it is applied; a packet that is sent again is marked; the window bounds what is under way |
//! | `rounds` | the sums of a round are those of exactly the packets in its contents (added by tables: within the error of tables); acked sets only grow; each packet is applied once; only the present owner of a region commits |
//! | `frontiers` | what a switch calls durable is committed, and never moves back; what it acknowledged in a round is in that round's contents; who answers holds the region; what a worker forgets is committed |
//! | `authentic` | where packets have MACs, a switch answers nothing that it cannot have checked |
//! | `cold` | a push by the cold path has the same content whenever it is sent, and is answered only after it arrived |
//! | `reads` | a pull reads at least what its worker made visible before, and at most what anyone pushed |
//! | `set_rows` | rows that are set are set once, in the order in which it arrived; what a shard has answered survives its crash; a scan has each row once, as it is |
//! | `proposals` | a job that workers describe begins as each of them has described it |
//! | `final_state` | in the end every row is minus the sum of what was applied, and all that live workers pushed is applied |
//! | `liveness` | after the faults everything completes in time, and the members agree on the view |
//! | `panic` | no role panics |

mod cold;
mod final_state;
mod frontiers;
mod overheard;
mod packets;
mod proposals;
mod roster;
mod rounds;
mod set_rows;
mod slots;

use core::fmt;
use core::net::SocketAddr;
use std::collections::VecDeque;

use libra_dataplane::{Flags, Header, Kind, NackReason, Packet};
use libra_plan::Placement;
use libra_proto::{Cluster, Instant, Message, Peer, TagKind, View};

pub use self::final_state::FinalState;
pub(crate) use self::overheard::Overheard;
pub use self::roster::Roster;

use self::cold::ColdPushes;
use self::frontiers::Frontiers;
use self::overheard::Eavesdropper;
use self::packets::Packets;
use self::proposals::Proposals;
use self::rounds::Rounds;
use self::set_rows::SetRows;
use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, AnyRole};
use crate::rows::Rows;

/// Something that must never happen has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The checker that reports it.
    pub checker: &'static str,
    /// Description.
    pub text: String,
    /// When.
    pub at: Instant,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}: {}", self.checker, self.at, self.text)
    }
}

/// Result of a check of one thing that happened.
pub(crate) type Verdict = Result<(), String>;

/// All checkers of the wire, as one observer.
#[derive(Debug)]
pub struct Checkers {
    /// Identities of the processes.
    pub roster: Roster,
    job: u16,
    packets: Packets,
    rounds: Rounds,
    frontiers: Frontiers,
    cold: ColdPushes,
    set_rows: Option<SetRows>,
    proposals: Proposals,
    pushes: u64,
    retransmits: u64,
    /// Some packets as they were sent, by whom and to whom, for strangers that replay them.
    captured: VecDeque<(Host, Host, Vec<u8>)>,
    /// The newest answers of switches that have arrived, by whom and at whom.
    answers: VecDeque<(SocketAddr, Host, Header)>,
    tags: TagKind,
    /// Packets and answers as they were sent, for an adversary.
    eavesdropper: Eavesdropper,
    violation: Option<Violation>,
    /// True if violations are no longer noted, as values and sums mean nothing any more.
    is_stopped: bool,
}

/// Number of packets that are captured for replays by strangers, and the interval of the capture.
const CAPTURED_MAX: usize = 64;
const CAPTURED_EVERY: u64 = 13;

impl Checkers {
    /// Checkers of a job with these rows over so many shards.
    ///
    /// # Panics
    /// If the plan of the rows cannot be placed.
    pub fn new(rows: &Rows, cluster: &Cluster, shards: u16) -> Self {
        let plan = cluster.plan.as_ref();
        let placement = plan.map(|plan| Placement::new(plan, shards, cluster.hot_path.region_slots()));
        let placement = placement.transpose().expect("a plan of few rows");
        Self {
            roster: Roster::default(),
            job: cluster.job,
            packets: Packets::new(cluster.hot_path.undurable_max()),
            rounds: Rounds::new(rows, placement.as_ref(), &cluster.hot_path),
            frontiers: Frontiers::default(),
            cold: ColdPushes::default(),
            set_rows: SetRows::new(rows),
            proposals: Proposals::default(),
            pushes: 0,
            retransmits: 0,
            captured: VecDeque::new(),
            answers: VecDeque::new(),
            tags: cluster.hot_path.tags,
            eavesdropper: Eavesdropper::default(),
            violation: None,
            is_stopped: false,
        }
    }

    /// From here on nothing is a violation but a panic: what was sent is not what arrives.
    pub fn stop_reporting(&mut self) {
        self.is_stopped = true;
    }

    /// Number of packets that were sent again.
    pub fn retransmits(&self) -> u64 {
        self.retransmits
    }

    /// Some of the packets that were sent, old ones and new ones.
    pub(crate) fn captured(&self) -> &VecDeque<(Host, Host, Vec<u8>)> {
        &self.captured
    }

    /// The newest answers of switches, as far as they reached their workers.
    pub(crate) fn answers(&self) -> &VecDeque<(SocketAddr, Host, Header)> {
        &self.answers
    }

    /// Some of the datagrams that were sent, old ones and new ones.
    pub(crate) fn overheard(&self) -> &VecDeque<Overheard> {
        self.eavesdropper.seen()
    }

    /// Returns the first violation, if there is one.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Notes a violation that another part has found.
    pub fn report(&mut self, checker: &'static str, at: Instant, text: String) {
        if self.violation.is_none() && !self.is_stopped {
            self.violation = Some(Violation { checker, text, at });
        }
    }

    /// Number of rounds that were committed, those of replays included.
    pub fn rounds(&self) -> u64 {
        self.rounds.committed()
    }

    fn judge(&mut self, checker: &'static str, at: Instant, verdict: Verdict) {
        if let Err(text) = verdict {
            self.report(checker, at, text);
        }
    }

    fn worker_sends(&mut self, at: Instant, worker: u16, packet: &Packet<'_>, datagram: &[u8]) {
        let header = packet.header;
        if header.job != self.job || header.worker != worker {
            let text = format!("worker {worker} sends as worker {} of job {}", header.worker, header.job);
            return self.report("packets", at, text);
        }
        let verdict = self.rounds.entries_sent(packet);
        self.judge("packets", at, verdict);
        if header.kind == Kind::Push {
            let verdict = self.packets.sent(packet, datagram);
            self.judge("packets", at, verdict);
            let verdict = self.packets.forgotten(packet);
            self.judge("frontiers", at, verdict);
        }
    }

    fn capture(&mut self, from: Host, to: Option<Host>, packet: &Packet<'_>, datagram: &[u8]) {
        if packet.header.kind != Kind::Push {
            return;
        }
        self.retransmits += u64::from(packet.header.flags.contains(Flags::RETRANSMIT));
        self.pushes += 1;
        if let Some(to) = to.filter(|_| self.pushes.is_multiple_of(CAPTURED_EVERY)) {
            // The first ones are kept to the end, and the last ones for a while.
            if self.captured.len() == CAPTURED_MAX {
                self.captured.remove(CAPTURED_MAX / 2);
            }
            self.captured.push_back((from, to, datagram.to_vec()));
        }
    }

    fn switch_answers(&mut self, at: Instant, from: Actor, switch: u16, packet: &Packet<'_>) {
        let reason = packet.header.nack_reason();
        let is_stale =
            matches!(reason, Some(NackReason::StalePlan | NackReason::StaleView | NackReason::UnknownFlow));
        if is_stale && self.tags == TagKind::Mac {
            let text = format!("switch {switch} answers a packet that it cannot have checked: {reason:?}");
            return self.report("authentic", at, text);
        }
        // A switch has no state of a region that it does not hold.
        if packet.header.nack_reason() == Some(NackReason::UnknownFlow) {
            return;
        }
        let ownership = self.roster.ownership_on_wire(packet.header.region, packet.header.view);
        // The data plane of a switch that was given another number may not have received it yet.
        let earlier = ownership.and_then(|ownership| ownership.owner);
        let earlier = earlier.filter(|owner| self.roster.was(from, Peer::Switch(*owner)));
        let switch = earlier.unwrap_or(switch);
        let committed = self.rounds.round(packet.header.region);
        let verdict = self.frontiers.answer(switch, ownership, packet, committed, &mut self.packets);
        self.judge("frontiers", at, verdict);
    }

    fn server_sends(&mut self, at: Instant, server: u16, to: Option<Actor>, message: &Message) {
        if let (Some(set_rows), Some(Peer::Worker(worker))) =
            (&mut self.set_rows, to.and_then(|to| self.roster.peer(to)))
        {
            let verdict = set_rows.answers(server, worker, message);
            self.judge("set_rows", at, verdict);
        }
        let rounds = &mut self.rounds;
        match message {
            Message::Committed(committed) => {
                let verdict = rounds.committed_sent(committed, &mut self.packets);
                self.judge("rounds", at, verdict);
                let round = self.rounds.round(committed.region);
                let verdict =
                    self.frontiers.committed(committed.region, committed.view_id, round, &self.packets);
                self.judge("frontiers", at, verdict);
            }
            Message::Adopted(adopted) => {
                let verdict = rounds.adopted_sent(adopted, &mut self.packets);
                self.judge("rounds", at, verdict);
            }
            Message::Replayed { region, view_id, below } => {
                let worker = to.and_then(|to| self.roster.peer(to));
                let verdict = rounds.replayed_sent((*region, *view_id), *below, worker, &mut self.packets);
                self.judge("rounds", at, verdict);
            }
            Message::Viewed { number } => {
                if let Some(view) = self.roster.view(*number) {
                    let verdict = self.rounds.fenced(server, &view.ownerships, &self.packets);
                    self.judge("rounds", at, verdict);
                }
            }
            Message::Pushed { number, .. } => {
                if let Some(Peer::Worker(worker)) = to.and_then(|to| self.roster.peer(to)) {
                    let verdict = self.cold.answered(worker, server, *number);
                    self.judge("cold", at, verdict);
                }
            }
            _ => {}
        }
    }
}

impl Checkers {
    /// A view reaches a shard, with the views in which flows restarted.
    fn flows_begin(&mut self, at: Instant, server: u16, view: &View) {
        for (&(region, worker), &view_id) in &view.flows {
            if self.rounds.shard_of(region) != Some(server) {
                continue;
            }
            match self.packets.restart_flow(worker, region, view_id) {
                Ok(true) => self.rounds.restart_flow(region, worker, view_id),
                Ok(false) => {}
                Err(text) => self.report("packets", at, text),
            }
        }
    }

    /// A process is this member.
    fn member_is(&mut self, actor: Actor, you: Peer) {
        self.roster.started(actor, you);
        if let (Some(set_rows), Peer::Server(server)) = (&mut self.set_rows, you) {
            set_rows.server_is(server, actor);
        }
    }

    /// A server is asked to end.
    pub(crate) fn server_drains(&mut self, actor: Actor) {
        if let Some(set_rows) = &mut self.set_rows {
            set_rows.drains(actor);
        }
    }

    /// Something reaches a shard that it may answer.
    fn request_arrives(&mut self, from: Actor, to: Actor, message: &Message) {
        let (Some(Peer::Worker(worker)), Some(Peer::Server(shard))) =
            (self.roster.peer(from), self.roster.peer(to))
        else {
            return;
        };
        let number = match message {
            Message::Push(push) => Some(push.number),
            Message::Assign(assign) => Some(assign.number),
            Message::Reset(reset) => Some(reset.number),
            _ => None,
        };
        if let Some(number) = number {
            self.cold.arrives(worker, shard, number);
        }
        if let Some(set_rows) = &mut self.set_rows {
            set_rows.arrives(worker, shard, message);
        }
    }

    /// Number of restarts of flows.
    pub fn renewals(&self) -> u64 {
        self.packets.renewals()
    }
}

impl Observer for Checkers {
    fn datagram_sent(&mut self, at: Instant, from: Actor, to: Option<Host>, datagram: &[u8]) {
        let Ok(packet) = Packet::parse(datagram) else {
            return self.report("packets", at, format!("{from:?} sends what is no packet"));
        };
        if let Some(to) = to.filter(|_| self.tags != TagKind::Off) {
            self.eavesdropper.listen(from.host, to, datagram);
        }
        match self.roster.peer(from) {
            Some(Peer::Worker(worker)) => {
                self.worker_sends(at, worker, &packet, datagram);
                self.capture(from.host, to, &packet, datagram);
            }
            Some(Peer::Switch(switch)) => self.switch_answers(at, from, switch, &packet),
            other => self.report("packets", at, format!("{other:?} at {from:?} sends datagrams")),
        }
    }

    fn datagram_arrives(&mut self, _at: Instant, from: SocketAddr, to: Actor, datagram: &[u8]) {
        let Some(Peer::Worker(worker)) = self.roster.peer(to) else { return };
        if let Some(header) = Header::parse(datagram).ok().filter(|header| header.worker == worker) {
            if self.answers.len() == CAPTURED_MAX {
                self.answers.pop_front();
            }
            self.answers.push_back((from, to.host, header));
        }
    }

    fn message_sent(&mut self, at: Instant, from: Actor, to: Option<Actor>, message: &Message) {
        if let (None, Message::Rejoin(rejoin)) = (self.roster.peer(from), message) {
            self.member_is(from, rejoin.you);
        }
        if matches!(message, Message::Start(_)) {
            self.proposals.begins();
        }
        match (self.roster.peer(from), message) {
            (Some(Peer::Server(server)), message) => self.server_sends(at, server, to, message),
            (Some(Peer::Worker(worker)), Message::Push(push)) => {
                if let Some(Peer::Server(shard)) = to.and_then(|to| self.roster.peer(to)) {
                    let verdict = self.cold.sent(worker, shard, push);
                    self.judge("cold", at, verdict);
                }
            }
            (Some(Peer::Worker(_)), Message::Replay(replay)) => {
                for packet in &replay.packets {
                    let parsed = match Packet::parse(&packet.0) {
                        Ok(parsed) => parsed,
                        Err(malformed) => {
                            let text = format!("a replay with what is no packet: {malformed}");
                            self.report("packets", at, text);
                            continue;
                        }
                    };
                    let verdict = self.packets.replayed(&parsed, &packet.0);
                    self.judge("packets", at, verdict);
                    let verdict = self.packets.forgotten(&parsed);
                    self.judge("frontiers", at, verdict);
                }
            }
            _ => {}
        }
    }

    fn message_arrives(&mut self, at: Instant, from: Actor, to: Actor, message: &Message) {
        match message {
            Message::Start(start) => {
                self.member_is(to, start.you);
                let verdict = self.proposals.check_start(to, &start.cluster);
                self.judge("proposals", at, verdict);
                let verdict = self.roster.view_arrives(to, &start.cluster.view);
                self.judge("roster", at, verdict);
            }
            Message::View(view) => {
                let verdict = self.roster.view_arrives(to, view);
                self.judge("roster", at, verdict);
                if let Some(Peer::Server(server)) = self.roster.peer(to) {
                    self.flows_begin(at, server, view);
                }
            }
            Message::Drained(drained) => {
                let verdict = self.rounds.drained_arrives(drained, &self.packets);
                self.judge("rounds", at, verdict);
            }
            Message::Replay(replay) => {
                if let Some(Peer::Worker(worker)) = self.roster.peer(from) {
                    self.rounds.replay_arrives(worker, replay);
                }
            }
            Message::Propose(job) => self.proposals.arrives(from, job),
            message => self.request_arrives(from, to, message),
        }
    }

    fn process_starts(&mut self, _at: Instant, actor: Actor, role: &AnyRole) {
        if matches!(role, AnyRole::Controller(_)) {
            self.roster.controller_starts(actor);
        }
    }
}

/// Flags that must not change when a packet is sent again: that it asks for values, or marks the end of a push.
fn lasting_flags(flags: Flags) -> u8 {
    flags.bits() & !Flags::RETRANSMIT.bits()
}
