//! A server with one shard and one region, and its callers.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use libra_dataplane::{Flags, Header, Kind as PacketKind, PacketWriter, packet_bytes};
use libra_store::RowLifecycle;

use crate::authentication::Pass;
use crate::bulk::Bulk;
use crate::cluster::{Cluster, Durability, Ownership, Peer, View};
use crate::message::{
    AckedSet, Adopted, Answered, ColdPush, Committed, Drained, Hello, Message, Replay, RoundContents,
    SlotValues, Start,
};
use crate::region::ROUNDS_BEGIN_AFTER;
use crate::role::{Action, Link, LinkEvent, Role};
use crate::server::{MemberEvent, Server, ServerCommand, ServerEvent};
use crate::statistics::ServerStatistics;
use crate::storage::{StorageEvent, StorageRequest};
use crate::testing::{self, HOT_ROWS, JOB, PLAN, WIDTH};
use crate::time::Instant;

pub(super) const NOW: Instant = Instant::from_nanos(1_000_000);
/// The stream to the controller.
pub(super) const CONTROLLER: Link = Link(0);

pub(super) fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000 + number))
}

pub(super) struct ServerHarness {
    pub(super) server: Server,
    links: u64,
    sent: BTreeMap<Link, Vec<Message>>,
    pub(super) closed: Vec<Link>,
    /// Streams with an identified peer.
    pub(super) admitted: BTreeSet<Link>,
    /// Requests to the disk since the last look.
    pub(super) requests: Vec<StorageRequest>,
    /// Other events, but those of a member.
    pub(super) events: Vec<ServerEvent>,
    view: View,
    /// Of worker 3, which reads values.
    reader: Option<Link>,
}

impl ServerHarness {
    /// A server of a cluster in which switch 0 holds the region since view 1.
    pub(super) fn new() -> Self {
        let mut harness = Self::starting(Server::new(address(1)), Durability::NONE);
        assert_eq!(harness.answers(CONTROLLER).last(), Some(&Message::Viewed { number: 1 }));
        harness
    }

    /// A server that has a stream to the controller.
    pub(super) fn of(server: Server) -> Self {
        let mut harness = Self {
            server,
            links: 0,
            sent: BTreeMap::new(),
            closed: Vec::new(),
            admitted: BTreeSet::new(),
            requests: Vec::new(),
            events: Vec::new(),
            view: View::default(),
            reader: None,
        };
        harness.server.handle_start(NOW);
        harness.server.handle_link(NOW, CONTROLLER, LinkEvent::Opened { remote: address(0) });
        harness.collect();
        harness
    }

    /// A server that was sent its place.
    pub(super) fn starting(server: Server, durability: Durability) -> Self {
        Self::starting_in(server, Cluster { durability, ..testing::cluster(4) })
    }

    /// The same, with a table that has such rows.
    pub(super) fn growing(server: Server, durability: Durability, growth: RowLifecycle) -> Self {
        let mut cluster = Cluster { durability, ..testing::cluster(4) };
        cluster.tables[0].rule.growth = growth;
        Self::starting_in(server, cluster)
    }

    /// The same in another cluster.
    pub(super) fn starting_in(server: Server, cluster: Cluster) -> Self {
        let mut harness = Self::of(server);
        let mut servers = cluster.view.servers.clone();
        servers.resize(servers.len().max(1), address(1));
        harness.view = View {
            number: 1,
            servers,
            switches: (0..4).map(|number| (number, address(10 + number))).collect(),
            workers: (0..4).map(|number| (number, address(20 + number))).collect(),
            ownerships: vec![Ownership { owner: Some(0), view_id: 1 }],
            next_switch: 4,
            next_worker: 4,
            ..View::default()
        };
        let view = harness.view.clone();
        let cluster = Cluster { shares: 4, view, ..cluster }.into();
        let start = Start { you: Peer::Server(0), share: 0, barrier: 0, cluster };
        harness.send(CONTROLLER, Message::Start(Box::new(start)));
        harness
    }

    /// The disk reports an event.
    pub(super) fn store(&mut self, event: StorageEvent) {
        self.server.handle_command(NOW, ServerCommand::Storage(event));
        self.collect();
    }

    pub(super) fn send(&mut self, link: Link, message: Message) {
        self.server.handle_message(NOW, link, message);
        self.collect();
    }

    pub(super) fn collect(&mut self) {
        while let Some(action) = self.server.poll_action() {
            match action {
                Action::Send { link, message } => self.sent.entry(link).or_default().push(message),
                Action::Close { link } => self.closed.push(link),
                Action::Connect { link, .. } => assert_eq!(link, CONTROLLER),
                Action::Admit { link, .. } => drop(self.admitted.insert(link)),
            }
        }
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Storage(request) => self.requests.push(request),
                ServerEvent::Member(event) if !matches!(event, MemberEvent::Drained { .. }) => {}
                event => self.events.push(event),
            }
        }
    }

    /// The messages on a stream since the last look.
    pub(super) fn answers(&mut self, link: Link) -> Vec<Message> {
        self.sent.remove(&link).unwrap_or_default()
    }

    /// Sends a message, and returns what comes back on the same stream at once.
    pub(super) fn request(&mut self, link: Link, message: Message) -> Vec<Message> {
        assert_eq!(self.answers(link), [], "the test has looked at what came before");
        self.send(link, message);
        self.answers(link)
    }

    /// A member calls and identifies itself.
    pub(super) fn call(&mut self, from: Peer) -> Link {
        self.call_with(Hello {
            pass: Pass::default(),
            instance: JOB.into(),
            from,
            to: 0,
            answered: Answered::default(),
        })
    }

    /// A member calls with this message.
    pub(super) fn call_with(&mut self, hello: Hello) -> Link {
        let link = self.open();
        self.send(link, Message::Hello(hello));
        link
    }

    /// The newest view that it was sent.
    pub(super) fn view(&self) -> View {
        self.view.clone()
    }

    /// A peer calls, and has not sent anything yet.
    pub(super) fn open(&mut self) -> Link {
        let link = Link(Link::ACCEPTED + self.links);
        self.links += 1;
        self.server.handle_link(NOW, link, LinkEvent::Opened { remote: address(99) });
        link
    }

    pub(super) fn hang_up(&mut self, link: Link) {
        self.server.handle_link(NOW, link, LinkEvent::Closed { reason: "reset".into() });
        self.collect();
    }

    /// The controller sends that the region is held by `owner` from now on. Returns since when.
    pub(super) fn assign_region(&mut self, owner: Option<u16>) -> u64 {
        self.view.number += 1;
        let view_id = self.view.number;
        self.view.ownerships = vec![Ownership { owner, view_id }];
        let view = self.view.clone().into();
        assert_eq!(self.request(CONTROLLER, Message::View(view)), [Message::Viewed { number: view_id }]);
        view_id
    }

    /// The controller sends that there are these workers, too.
    pub(super) fn add_workers(&mut self, workers: impl IntoIterator<Item = u16>) {
        self.view.number += 1;
        self.view.workers.extend(workers.into_iter().map(|worker| (worker, address(worker))));
        let number = self.view.number;
        let view = self.view.clone().into();
        assert_eq!(self.request(CONTROLLER, Message::View(view)), [Message::Viewed { number }]);
    }

    /// Here and in `commit`, rounds are counted from 1.
    pub(super) fn adopt(&mut self, link: Link, view_id: u64) -> Option<Adopted> {
        let answers = self.request(
            link,
            Message::Adopt { region: 0, view_id, round: 0, contents: RoundContents::default() },
        );
        assert!(answers.len() <= 1, "{answers:?}");
        answers.into_iter().next().map(|answer| match answer {
            Message::Adopted(adopted) => Adopted { round: adopted.round - ROUNDS_BEGIN_AFTER, ..adopted },
            other => panic!("{other:?}"),
        })
    }

    /// A round in which row 0 got `sum` in each value.
    pub(super) fn commit(&mut self, link: Link, view_id: u64, round: u64, sum: u32) -> Option<Committed> {
        let answers = self.request(link, drained(view_id, round, sum));
        assert!(answers.len() <= 1, "{answers:?}");
        answers.into_iter().next().map(|answer| match answer {
            Message::Committed(committed) => {
                Committed { round: committed.round - ROUNDS_BEGIN_AFTER, ..committed }
            }
            other => panic!("{other:?}"),
        })
    }

    pub(super) fn statistics(&self) -> ServerStatistics {
        self.server.statistics()
    }

    /// The first value of a row, as a worker reads it.
    pub(super) fn value(&mut self, key: u64) -> f32 {
        let reader = self.reader.unwrap_or_else(|| self.call(Peer::Worker(3)));
        self.reader = Some(reader);
        let answer = self.request(reader, Message::Pull { number: 1, keys: [key].as_slice().into() });
        let [Message::Pulled { number: 1, values }] = answer.as_slice() else { panic!("{answer:?}") };
        values.clone().into_vec()[0]
    }
}

/// The contents of a round in which worker 1 had packets up to twice the round's number.
pub(super) fn contents(round: u64) -> RoundContents {
    let below = u32::try_from(2 * round).unwrap();
    RoundContents { flows: [(1, AckedSet { below, above: vec![(below + 3, 2)] })].into() }
}

pub(super) fn drained(view_id: u64, round: u64, sum: u32) -> Message {
    let slots = vec![(0, u16::try_from(WIDTH).unwrap())];
    let drained = Drained {
        region: 0,
        view_id,
        round: ROUNDS_BEGIN_AFTER + round,
        contents: contents(round),
        slots,
        sums: Bulk(vec![sum; WIDTH]),
    };
    Message::Drained(drained.into())
}

/// A push of `gradient` to each of some rows.
pub(super) fn push(number: u64, keys: &[u64], gradient: f32) -> Message {
    let gradients = vec![gradient; WIDTH * keys.len()].into();
    Message::Push(ColdPush { number, keys: keys.into(), gradients, answer: true })
}

/// The answer to a push under the first view.
pub(super) fn pushed(number: u64, values: &[f32]) -> Message {
    pushed_in(1, number, values)
}

pub(super) fn pushed_in(view: u64, number: u64, values: &[f32]) -> Message {
    Message::Pushed { number, view, values: values.to_vec().into() }
}

/// The bits of all hot rows, of which row 0 has a value.
pub(super) fn values(row_0: f32) -> SlotValues {
    let mut values = vec![0f32.to_bits(); WIDTH * usize::try_from(HOT_ROWS).unwrap()];
    values[..WIDTH].fill((row_0 + 0.0).to_bits());
    SlotValues { slots: vec![(0, u16::try_from(values.len()).unwrap())], values: Bulk(values) }
}

/// Packets of a worker, each of which adds its sequence number plus one to row 0.
pub(super) fn replay(worker: u16, view_id: u64, seqs: core::ops::Range<u32>) -> Replay {
    let view = u16::try_from(view_id & 0xffff).unwrap();
    let packet = |seq: u32| {
        let mut bytes = vec![0; packet_bytes(u8::try_from(WIDTH).unwrap())];
        let header = Header {
            flags: Flags::LAST.with(Flags::RETRANSMIT),
            job: JOB,
            worker,
            plan: PLAN,
            view,
            seq,
            ..Header::of_kind(PacketKind::Push)
        };
        let mut writer = PacketWriter::new(header, &mut bytes);
        for cell in 0..WIDTH {
            assert!(writer.push(u16::try_from(cell).unwrap(), seq + 1));
        }
        let length = writer.finish();
        bytes.truncate(length);
        Bulk(bytes)
    };
    let below = seqs.end;
    Replay { region: 0, view_id, below, packets: seqs.map(packet).collect() }
}
