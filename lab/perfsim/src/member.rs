//! A process of a performance simulation: what waits for it, and one turn of its loop, as `libra-net` drives it.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::{ENTRY_BYTES, HEADER_BYTES, Kind, Packet};
use libra_proto::turn::{
    Drain, DueTimer, Output as RoleOutput, RECEIVED_RUNS_MAX, RUN_DATAGRAMS_MAX, STREAM_INPUTS_MAX,
};
use libra_proto::{
    Action, Callee, DatagramRun, Instant, Link, LinkEvent, Message, Outgoing, Role, WorkerCommand,
    WorkerEvent,
};

use crate::costs::{CostKind, CostModel, Work};
use crate::fabric::Place;
use crate::recording::{Input, Step};
use libra_faultsim::{AnyRole, Event, with_role};

/// Slots that are side by side in a cache.
pub(crate) const LINE: u16 = 16;

/// A process, by its number.
pub(crate) type Pid = usize;

/// Datagrams of one sender that come in one piece.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stride: usize,
}

/// Output of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Streamed {
    Event(LinkEvent),
    /// As it was encoded.
    Message(Vec<u8>),
}

/// Output of a process in a turn.
#[derive(Debug)]
pub(crate) enum Output {
    Run { to: SocketAddr, run: Run },
    Message { link: Link, bytes: Vec<u8> },
    Connect { link: Link, to: Callee },
    Close { link: Link },
    Event(Event),
}

/// Inputs that wait for a process.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) runs: VecDeque<Run>,
    pub(crate) streamed: VecDeque<(Link, Streamed)>,
    pub(crate) commands: VecDeque<WorkerCommand>,
    /// Events of its worker (users).
    pub(crate) events: VecDeque<WorkerEvent>,
}

/// State of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Asleep,
    /// It waits for a core.
    Ready,
    Running,
}

/// A role in a process.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) role: AnyRole,
    pub(crate) address: SocketAddr,
    /// Its open streams.
    pub(crate) links: BTreeMap<Link, (usize, usize)>,
    pub(crate) accepted: u64,
    outgoing: Outgoing,
    due_timer: DueTimer,
    /// Kind of input that is looked at first, so that none starves.
    next_kind: usize,
    pub(crate) recorded: Option<Vec<Step>>,
}

/// A process on a host.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) place: Place,
    /// The core that it has, or had last.
    pub(crate) core: usize,
    pub(crate) state: State,
    /// True if it waits for a core though it had more to do: then it is not woken when it gets one.
    pub(crate) pushed_aside: bool,
    pub(crate) inbox: Inbox,
    pub(crate) prices: CostModel,
    /// True if datagrams pass at the rate of links and no processor looks at them, as in a switch of hardware.
    pub(crate) line_rate: bool,
    /// Time for which it has held its core.
    pub(crate) held_ns: f64,
    /// The timer that is set.
    pub(crate) timer: Option<Instant>,
    /// Until when the processor beside a pipeline of hardware is busy.
    pub(crate) agent_free_at: Instant,
    pub(crate) work: Work,
    pub(crate) busy_ns: f64,
    /// Until when it is busy with what was charged last, and how much that was.
    pub(crate) charged: (Instant, f64),
}

impl Process {
    pub(crate) fn new(place: Place, prices: CostModel, line_rate: bool) -> Self {
        Self {
            place,
            core: 0,
            state: State::Asleep,
            pushed_aside: false,
            inbox: Inbox::default(),
            prices,
            line_rate,
            held_ns: 0.0,
            timer: None,
            agent_free_at: Instant::ZERO,
            work: Work::default(),
            busy_ns: 0.0,
            charged: (Instant::ZERO, 0.0),
        }
    }
}

/// Result of a turn: its whole work, and each output with the work that was done until it left.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) work: Work,
    pub(crate) outputs: Vec<(Work, Output)>,
    /// True if outputs are not needed and are not kept.
    pub(crate) forgets: bool,
}

impl Turn {
    fn put(&mut self, output: Output) {
        if !self.forgets {
            self.outputs.push((self.work, output));
        }
    }
}

impl Member {
    pub(crate) fn new(role: AnyRole, address: SocketAddr) -> Self {
        Self {
            role,
            address,
            links: BTreeMap::new(),
            accepted: 0,
            outgoing: Outgoing::default(),
            due_timer: DueTimer::default(),
            next_kind: 0,
            recorded: None,
        }
    }

    /// When the role wants to be woken.
    pub(crate) fn due(&self) -> Option<Instant> {
        with_role!(&self.role, role => role.poll_timeout())
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// The role begins.
    pub(crate) fn start(&mut self, now: Instant) -> Turn {
        self.turn(now, vec![Input::Start])
    }

    /// Takes what the loop would take next, hands it in and drains the role. `None` if there is nothing.
    pub(crate) fn next_turn(&mut self, now: Instant, inbox: &mut Inbox) -> Option<Turn> {
        let mut inputs = Vec::new();
        if self.is_due(now) {
            if !inbox.runs.is_empty() && self.due_timer.lets_datagrams_pass() {
                self.due_timer.datagrams_passed();
                take_runs(inbox, &mut inputs);
            } else {
                self.due_timer.fired();
                inputs.push(Input::Timeout);
            }
            return Some(self.turn(now, inputs));
        }
        for _ in 0..3 {
            let kind = self.next_kind;
            self.next_kind = (kind + 1) % 3;
            match kind {
                0 => take_runs(inbox, &mut inputs),
                1 => {
                    let count = inbox.streamed.len().min(STREAM_INPUTS_MAX);
                    inputs.extend(
                        inbox.streamed.drain(..count).map(|(link, streamed)| Input::Streamed(link, streamed)),
                    );
                }
                _ => inputs.extend(inbox.commands.pop_front().map(Input::Command)),
            }
            if !inputs.is_empty() {
                return Some(self.turn(now, inputs));
            }
        }
        None
    }

    /// Hands things in, then drains the role.
    pub(crate) fn turn(&mut self, now: Instant, inputs: Vec<Input>) -> Turn {
        let mut step =
            self.recorded.is_some().then(|| Step { now, inputs: inputs.clone(), work: Work::default() });
        let mut work = Work::of(CostKind::Turn, 1.0);
        for input in inputs {
            work += input.work();
            input.hand_in(&mut self.role, now);
        }
        let mut turn = Turn { work, ..Turn::default() };
        drain(&mut self.role, now, &mut self.outgoing, &mut turn, self.address);
        if let (Some(recorded), Some(mut step)) = (&mut self.recorded, step.take()) {
            step.work = turn.work;
            recorded.push(step);
        }
        turn
    }
}

fn take_runs(inbox: &mut Inbox, inputs: &mut Vec<Input>) {
    let count = inbox.runs.len().min(RECEIVED_RUNS_MAX);
    inputs.extend(inbox.runs.drain(..count).map(Input::Run));
}

/// Carries out the outputs of a role.
pub(crate) fn drain(
    role: &mut AnyRole,
    now: Instant,
    outgoing: &mut Outgoing,
    turn: &mut Turn,
    own: SocketAddr,
) {
    let (mut cold_rows, mut width) = (0, 1);
    let mut drain = Drain::new();
    while let Some(output) = with_role!(role, role => {
        drain.next(&mut **role, now, outgoing).map(|output| output.map_event(Event::from))
    }) {
        let output = match output {
            RoleOutput::Datagrams => {
                split_runs(outgoing, own, turn);
                outgoing.clear();
                continue;
            }
            RoleOutput::Action(Action::Connect { link, to }) => Output::Connect { link, to },
            RoleOutput::Action(Action::Close { link }) => Output::Close { link },
            // Messages of these members have the sizes that they have: the simulator of failures looks at bounds.
            RoleOutput::Action(Action::Admit { .. }) => continue,
            RoleOutput::Action(Action::Send { link, message }) => {
                let bytes = message.encode();
                if let Message::Push(push) = &message {
                    cold_rows += push.keys.len();
                    width = push.gradients.len() / push.keys.len().max(1);
                }
                turn.work += work_of_message(&message, bytes.len(), false);
                Output::Message { link, bytes }
            }
            RoleOutput::Event(event) => {
                turn.work += Work::of(CostKind::Command, 1.0);
                Output::Event(event)
            }
        };
        turn.put(output);
    }
    if cold_rows > 0 {
        let headers = HEADER_BYTES as f64 * turn.work.count(CostKind::PacketOut);
        let entries = (turn.work.count(CostKind::PacketByteOut) - headers) / ENTRY_BYTES as f64;
        let hot_rows = entries / width.max(1) as f64;
        turn.work += Work::of(CostKind::Mixed, hot_rows.min(cold_rows as f64));
    }
}

/// Sends datagrams in runs.
fn split_runs(outgoing: &Outgoing, own: SocketAddr, turn: &mut Turn) {
    let mut start = 0;
    while let Some(DatagramRun { to, bytes, stride, end }) = outgoing.run_at(start, RUN_DATAGRAMS_MAX) {
        let sent = Work::of(CostKind::RunOut, 1.0)
            .with(CostKind::PacketOut, (end - start) as f64)
            .with(CostKind::PacketByteOut, bytes.len() as f64)
            .with(CostKind::Line, lines_pushed(bytes, stride) as f64);
        turn.work += sent;
        if !turn.forgets {
            turn.put(Output::Run { to, run: Run { from: own, bytes: bytes.to_vec(), stride } });
        }
        start = end;
    }
}

/// Returns the number of cache lines of slots that pushes in datagrams touch. Slots of a push ascend.
pub(crate) fn lines_pushed(datagrams: &[u8], stride: usize) -> usize {
    let packets = datagrams.chunks(stride.max(1)).filter_map(|datagram| Packet::parse(datagram).ok());
    let pushes = packets.filter(|packet| packet.header.kind == Kind::Push);
    let mut last = None;
    let lines = pushes.flat_map(|packet| packet.entries()).map(|entry| entry.cell / LINE);
    lines.filter(|line| last.replace(*line) != Some(*line)).count()
}

/// Returns the work of a message.
pub(crate) fn work_of_message(message: &Message, bytes: usize, arrives: bool) -> Work {
    let bytes = bytes as f64;
    match message {
        Message::Drained(_) | Message::Committed(_) => {
            Work::of(CostKind::Round, 1.0).with(CostKind::RoundByte, bytes)
        }
        Message::Push(push) if arrives => Work::of(CostKind::MessageIn, 1.0)
            .with(CostKind::MessageByteIn, bytes)
            .with(CostKind::Pair, push.keys.len() as f64),
        _ if arrives => Work::of(CostKind::MessageIn, 1.0).with(CostKind::MessageByteIn, bytes),
        _ => Work::of(CostKind::MessageOut, 1.0).with(CostKind::MessageByteOut, bytes),
    }
}

#[cfg(test)]
mod tests {
    use libra_dataplane::{Flags, Header, PacketWriter, packet_bytes};

    use super::*;

    #[test]
    fn slots_side_by_side_are_one_line_and_only_pushes_have_any() {
        let run = |kind| {
            let packet = |cells: &[u16]| {
                let mut bytes = vec![0; packet_bytes(3)];
                let header = Header { kind, ..header() };
                let mut writer = PacketWriter::new(header, &mut bytes);
                assert!(cells.iter().all(|cell| writer.push(*cell, 7)));
                let end = writer.finish();
                bytes.truncate(end);
                bytes
            };
            [packet(&[0, 15, 16]), packet(&[17, 64])].concat()
        };
        assert_eq!(lines_pushed(&run(Kind::Push), packet_bytes(3)), 3);
        assert_eq!(lines_pushed(&run(Kind::Pull), packet_bytes(3)), 0);
        assert_eq!(lines_pushed(&[1, 2, 3], 0), 0, "what is no packet has none");
    }

    fn header() -> Header {
        Header {
            kind: Kind::Push,
            flags: Flags::NONE,
            entries: 0,
            job: 1,
            worker: 0,
            plan: 1,
            view: 1,
            region: 0,
            round: 0,
            durable: 0,
            seq: 0,
            tag: 0,
        }
    }
}
