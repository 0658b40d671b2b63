//! All others to one worker: a controller, a server and a switch in one role, which acknowledge everything at the least cost.
//!
//! A worker before it, on sockets, does all that a worker does in a cluster, and no other role is measured with it.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use libra_dataplane::{Flags, Header, Kind, PacketWriter, SeqRange, packet_bytes};
use libra_proto::{
    Action, Cluster, Instant, Link, LinkEvent, Message, Outgoing, Ownership, Peer, Role, Start, Values, View,
};

use crate::costs::{CostKind, Work};
use crate::member::lines_pushed;

/// Packets that a round takes at most: a worker keeps those of two, and stands still at 4,096 (rule T2).
const ROUND_PACKETS_MAX: u32 = 1024;

/// Counters of the messages and packets of a worker, as its work; owners of a copy may read them while they are updated.
#[derive(Debug, Clone, Default)]
pub struct Counters(Arc<[AtomicU64; CostKind::ALL.len()]>);

impl Counters {
    fn add(&self, item: CostKind, count: usize) {
        self.0[item as usize].fetch_add(count as u64, Ordering::Relaxed);
    }

    /// All so far.
    #[must_use]
    pub fn work(&self) -> Work {
        CostKind::ALL.into_iter().fold(Work::default(), |work, item| {
            work.with(item, self.0[item as usize].load(Ordering::Relaxed) as f64)
        })
    }
}

/// The round of a region that takes packets now.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    number: u16,
    packets: u32,
    pushes: u32,
}

/// All others to one worker: a controller, a server and a switch in one role, which acknowledge everything at the least cost.
#[derive(Debug)]
pub struct AckingPeer {
    cluster: Cluster,
    /// The stream of the worker to its controller.
    worker: Option<Link>,
    rounds: BTreeMap<u8, Round>,
    /// Ranges of packets of one region that are acknowledged next.
    ranges: Vec<SeqRange>,
    packet: Vec<u8>,
    answers: Outgoing,
    actions: VecDeque<Action>,
    /// The reason why it ended, once it has.
    over: Option<String>,
    counters: Counters,
}

impl AckingPeer {
    /// Members at these addresses, for one worker of a job.
    pub(crate) fn new(mut cluster: Cluster, streams: SocketAddr, datagrams: SocketAddr) -> Self {
        cluster.shares = 1;
        let owner = cluster.plan.is_some().then_some(0);
        cluster.view = View {
            number: 1,
            servers: vec![streams],
            switches: owner.map(|switch| (switch, datagrams)).into_iter().collect(),
            ownerships: vec![Ownership { owner, view_id: 1 }; usize::from(u8::MAX)],
            next_switch: 1,
            next_worker: 1,
            ..View::default()
        };
        Self {
            cluster,
            worker: None,
            rounds: BTreeMap::new(),
            ranges: Vec::new(),
            packet: vec![0; packet_bytes(u8::MAX)],
            answers: Outgoing::default(),
            actions: VecDeque::new(),
            over: None,
            counters: Counters::default(),
        }
    }

    /// Returns the counters of the worker.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn send(&mut self, link: Link, message: Message) {
        self.actions.push_back(Action::Send { link, message });
    }

    /// Acknowledges what was collected, like the last packet of it.
    fn acknowledge(&mut self, to: SocketAddr, last: Option<Header>) {
        let Some(push) = last else { return };
        let round = self.rounds.entry(push.region).or_default();
        let header = Header {
            kind: Kind::Ack,
            flags: Flags::NONE,
            entries: 0,
            // The round before this one is durable from its end on.
            round: round.number.wrapping_add(1),
            durable: round.number,
            ..push
        };
        if round.pushes >= self.cluster.hot_path.pushes_per_round || round.packets >= ROUND_PACKETS_MAX {
            *round = Round { number: round.number.wrapping_add(1), ..Round::default() };
        }
        let mut writer = PacketWriter::new(header, &mut self.packet);
        for range in self.ranges.drain(..) {
            let fits = writer.push(range.count, range.first);
            debug_assert!(fits, "there are fewer ranges than a packet has entries");
        }
        let bytes = writer.finish();
        self.answers.push(to, &self.packet[..bytes]);
        self.counters.add(CostKind::PacketIn, 1);
        self.counters.add(CostKind::PacketByteIn, bytes);
    }
}

impl Role for AckingPeer {
    type Command = Infallible;
    /// The worker is gone, for this reason.
    type Event = String;
    type Status = ();

    fn handle_start(&mut self, _now: Instant) {}

    fn handle_datagrams(&mut self, _now: Instant, from: SocketAddr, datagrams: &mut [u8], stride: usize) {
        self.counters.add(CostKind::RunOut, 1);
        self.counters.add(CostKind::PacketByteOut, datagrams.len());
        self.counters.add(CostKind::Line, lines_pushed(datagrams, stride));
        self.counters.add(CostKind::RunIn, 1);
        let mut last: Option<Header> = None;
        for datagram in datagrams.chunks(stride.max(1)) {
            self.counters.add(CostKind::PacketOut, 1);
            let Ok(header) = Header::parse_without_entries(datagram) else { continue };
            if header.kind != Kind::Push {
                continue;
            }
            if last.is_some_and(|last| last.region != header.region) || self.ranges.len() == 64 {
                self.acknowledge(from, last);
            }
            let round = self.rounds.entry(header.region).or_default();
            round.packets += 1;
            round.pushes += u32::from(header.flags.contains(Flags::LAST));
            match self.ranges.last_mut() {
                Some(range) if range.first + u32::from(range.count) == header.seq => range.count += 1,
                _ => self.ranges.push(SeqRange { first: header.seq, count: 1 }),
            }
            last = Some(header);
        }
        self.acknowledge(from, last);
    }

    fn handle_link(&mut self, _now: Instant, link: Link, event: LinkEvent) {
        if let LinkEvent::Closed { reason } = event
            && self.worker == Some(link)
        {
            self.over.get_or_insert(reason);
        }
    }

    fn handle_message(&mut self, _now: Instant, link: Link, message: Message) {
        match message {
            Message::Join(join) => {
                self.worker = Some(link);
                let mut cluster = self.cluster.clone();
                cluster.view.workers.extend(join.datagrams.map(|address| (0, address)));
                let start = Start { you: Peer::Worker(0), share: 0, barrier: 0, cluster: cluster.into() };
                self.send(link, Message::Start(Box::new(start)));
            }
            Message::Push(push) => {
                self.counters.add(CostKind::MessageOut, 1);
                self.counters.add(CostKind::MessageIn, 1);
                let view = self.cluster.view.number;
                self.send(link, Message::Pushed { number: push.number, view, values: Values::default() });
            }
            Message::Report { .. } => self.send(link, Message::Finish),
            Message::Abort { reason } => self.over = Some(reason),
            _ => {}
        }
    }

    fn handle_socket_failure(&mut self, _now: Instant, reason: &str) {
        self.over = Some(reason.to_owned());
    }

    fn handle_command(&mut self, _now: Instant, command: Infallible) {
        match command {}
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, outgoing: &mut Outgoing) {
        outgoing.clear();
        outgoing.append(&mut self.answers);
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_event(&mut self) -> Option<String> {
        self.over.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn status(&self, _now: Instant) {}
}

#[cfg(test)]
mod tests {
    use libra_proto::{Callee, Level, Worker, WorkerCommand, WorkerEvent};

    use super::*;
    use crate::{Costs, Host, Model, PowerLaw, Setting, System, Topology};

    /// A worker and its peer, whose messages and datagrams come at once.
    fn pushed(system: System, hot: u64, pushes: u64) -> Work {
        let rows = 2000;
        let setting = Setting {
            system,
            workers: 1,
            servers: 1,
            topology: Topology::OneMachine(Host { cores: 1, speed: 1.0, polls: false }),
            model: Model { rows, width: 1, law: PowerLaw::new(rows, 1.05), batch: 500 },
            hot,
            open: 1,
            pushes_per_round: 4,
            entries_max: 240,
            costs: Costs::default(),
            warm_up: Default::default(),
            measured: Default::default(),
            drawn: 4,
            seed: 1,
        };
        let [streams, datagrams, own] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut others = setting.acking_peer(streams, datagrams);
        let mut worker = Worker::new(own);
        let (mut now, mut outgoing) = (Instant::from_nanos(1), Outgoing::default());
        let (mut load, mut done, mut begun) = (setting.pushes(0).0, 0, 0);
        worker.handle_start(now);
        for _ in 0..100_000 {
            now = now + core::time::Duration::from_micros(10);
            outgoing.clear();
            worker.poll_transmit(now, &mut outgoing);
            for (_, datagram) in outgoing.iter() {
                others.handle_datagrams(now, own, &mut datagram.to_vec(), datagram.len());
            }
            while let Some(action) = worker.poll_action() {
                match action {
                    Action::Connect { link, to } => {
                        let remote = if let Callee::Server(address) = to { address } else { streams };
                        worker.handle_link(now, link, LinkEvent::Opened { remote });
                    }
                    Action::Send { link, message } => others.handle_message(now, link, message),
                    Action::Close { link } => {
                        others.handle_link(now, link, LinkEvent::Closed { reason: "done".to_owned() });
                    }
                    Action::Admit { .. } => panic!("a worker accepts no streams"),
                }
            }
            others.poll_transmit(now, &mut outgoing);
            for (_, datagram) in outgoing.iter() {
                worker.handle_datagrams(now, datagrams, &mut datagram.to_vec(), datagram.len());
            }
            while let Some(action) = others.poll_action() {
                let Action::Send { link, message } = action else { panic!("it opens no stream: {action:?}") };
                worker.handle_message(now, link, message);
            }
            while let Some(event) = worker.poll_event() {
                match event {
                    WorkerEvent::Pushed { .. } => done += 1,
                    WorkerEvent::Started { .. } => {}
                    WorkerEvent::Finished => return others.counters().work(),
                    event => panic!("{event:?}"),
                }
            }
            if done == pushes {
                worker.handle_command(now, WorkerCommand::Report { text: String::new() });
                done += 1;
            } else if begun == done && begun < pushes {
                begun += 1;
                let push = load.next().unwrap();
                let (keys, gradients) = (push.keys, push.gradients);
                let level = Level::Accepted;
                worker.handle_command(now, WorkerCommand::Push { number: begun, keys, gradients, level });
            }
        }
        panic!("{done} of {pushes} pushes are done, of {begun}");
    }

    /// So many packets that a worker would stand still if rounds did not become durable.
    #[test]
    fn every_push_is_answered_and_counted() {
        let work = pushed(System::Libra, 2000, 3000);
        assert_eq!(work.count(CostKind::PacketOut), 3000.0 * 3.0);
        assert_eq!(work.count(CostKind::PacketByteOut), 3000.0 * (3.0 * 30.0 + 500.0 * 6.0));
        // At least as many as 500 slots side by side, and at most all that 2,000 slots have, two of them in two packets.
        assert!((32.0..=127.0).contains(&(work.count(CostKind::Line) / 3000.0)), "{work:?}");
        assert_eq!((work.count(CostKind::PacketIn), work.count(CostKind::MessageOut)), (9000.0, 0.0));
        let work = pushed(System::PsSparse, 0, 50);
        assert_eq!((work.count(CostKind::PacketOut), work.count(CostKind::MessageOut)), (0.0, 50.0));
        let work = pushed(System::Libra, 200, 50);
        assert!(
            work.count(CostKind::PacketOut) == 50.0 && work.count(CostKind::MessageOut) == 50.0,
            "{work:?}"
        );
    }
}
