//! Messages and datagrams that make no sense: counted, dropped, and never a panic.

use core::net::SocketAddr;
use core::time::Duration;

use libra_dataplane::{Flags, Header, PacketWriter, packet_bytes};
use libra_faultsim::{ClusterHarness, Event, HarnessConfig, Quality, Random, whole};
use libra_proto::{
    AckedSet, Adopted, Answered, Bulk, Changed, Cluster, ColdPush, Committed, Drained, Hello, HotPath, Join,
    Keys, Kind, MemberEvent, Message, Ownership, Pass, Peer, PullId, Rejoin, Replay, RoundContents,
    SlotValues, Statistics, SwitchStatistics, TagKind, ValueFormat, Values, View, WorkDone, WorkerCommand,
    WorkerEvent, WorkerStatistics,
};
use proptest::prelude::*;

const EMBEDDING_WIDTH: usize = 3;
const HOT_ROWS: u64 = 25;

fn bulk<T: core::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Bulk<T>> {
    prop::collection::vec(value, 0..12).prop_map(Bulk)
}

/// Mostly ascending, as callers have them.
fn keys() -> impl Strategy<Value = Keys> {
    let drawn = prop::collection::vec(key(), 0..12);
    (drawn, any::<bool>()).prop_map(|(mut keys, sorted)| {
        if sorted {
            keys.sort_unstable();
        }
        Keys::from(keys.as_slice())
    })
}

fn gradients() -> impl Strategy<Value = Values> {
    let format = prop_oneof![Just(ValueFormat::F32), Just(ValueFormat::Bf16), Just(ValueFormat::F16)];
    (format, prop::collection::vec(gradient(), 0..12))
        .prop_map(|(format, values)| Values::new(format, values))
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5, any::<u64>()]
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..62, 998u64..1005, any::<u64>()]
}

fn gradient() -> impl Strategy<Value = f32> {
    prop_oneof![Just(1.0f32), any::<u32>().prop_map(f32::from_bits)]
}

fn slots() -> impl Strategy<Value = Vec<(u16, u16)>> {
    prop::collection::vec((prop_oneof![0u16..90, any::<u16>()], prop_oneof![0u16..12, any::<u16>()]), 0..6)
}

fn values() -> impl Strategy<Value = SlotValues> {
    (slots(), bulk(any::<u32>())).prop_map(|(slots, values)| SlotValues { slots, values })
}

fn contents() -> impl Strategy<Value = RoundContents> {
    let flow = (any::<u32>(), prop::collection::vec(any::<(u32, u32)>(), 0..3));
    let flow = flow.prop_map(|(below, above)| AckedSet { below, above });
    prop::collection::btree_map(0u16..3, flow, 0..3).prop_map(|flows| RoundContents { flows })
}

fn peer() -> impl Strategy<Value = Peer> {
    let number = || prop_oneof![0u16..3, any::<u16>()];
    prop_oneof![
        Just(Peer::Controller),
        number().prop_map(Peer::Server),
        number().prop_map(Peer::Switch),
        number().prop_map(Peer::Worker),
    ]
}

fn address() -> impl Strategy<Value = SocketAddr> {
    any::<([u8; 4], u16)>().prop_map(SocketAddr::from)
}

fn join() -> impl Strategy<Value = Join> {
    let kinds = prop_oneof![Just(Kind::Server), Just(Kind::Switch), Just(Kind::Worker)];
    let version = prop_oneof![Just(libra_proto::VERSION), any::<u16>()];
    let addresses = (prop::option::of(address()), prop::option::of(address()));
    (version, kinds, addresses, any::<u32>()).prop_map(
        |(version, kind, (stream, datagrams), receive_bytes)| Join {
            version,
            kind,
            stream,
            shards: 1,
            datagrams,
            receive_bytes,
            is_restartable: version & 1 == 0,
            is_slow: version & 2 == 0,
            tags: TagKind::Mac,
            http: None,
        },
    )
}

fn view() -> impl Strategy<Value = View> {
    let members = || prop::collection::btree_map(0u16..5, address(), 0..3);
    let owner = prop::option::of(prop_oneof![0u16..3, any::<u16>()]);
    let ownership = (owner, number()).prop_map(|(owner, view_id)| Ownership { owner, view_id });
    let ownerships = prop::collection::vec(ownership, 0..4);
    (number(), members(), members(), ownerships).prop_map(|(number, switches, workers, ownerships)| View {
        number,
        switches,
        workers,
        ownerships,
        ..View::default()
    })
}

fn statistics() -> impl Strategy<Value = Statistics> {
    any::<(u64, bool)>().prop_map(|(packets, worker)| {
        if worker {
            Statistics::Worker(WorkerStatistics { packets, ..WorkerStatistics::default() })
        } else {
            Statistics::Switch(SwitchStatistics { packets, ..SwitchStatistics::default() })
        }
    })
}

/// Messages between members and the controller; but Start, which only the controller sends, and only before the
/// member has a place.
fn control() -> impl Strategy<Value = Message> {
    let rejoin = (join(), peer(), any::<u16>(), (number(), number()), prop::option::of(view()));
    let rejoin = rejoin.prop_map(|(join, you, share, (view, barriers), known)| {
        let cluster = known.map(|view| {
            let cluster = Cluster::new(9, Vec::new(), None, HotPath::for_workers(2));
            Box::new(Cluster { view, ..cluster })
        });
        Message::Rejoin(Box::new(Rejoin {
            join,
            pass: Pass::default(),
            instance: 9,
            you,
            share,
            view,
            barriers,
            cluster,
            work_done: WorkDone { phase: share.into(), ..WorkDone::default() },
        }))
    });
    prop_oneof![
        join().prop_map(Message::Join),
        rejoin,
        view().prop_map(|view| Message::View(view.into())),
        number().prop_map(|number| Message::Viewed { number }),
        number().prop_map(|number| Message::Probe { number }),
        (statistics(), number()).prop_map(|(statistics, probe)| Message::Heartbeat { statistics, probe }),
        Just(Message::Retire),
        Just(Message::Retired),
        prop_oneof![0u16..3, any::<u16>()].prop_map(|switch| Message::Unreachable { switch }),
        Just(Message::Leave { returns: false }),
        number().prop_map(|number| Message::Barrier { number }),
        number().prop_map(|number| Message::Release { number }),
        (number(), number()).prop_map(|(barrier, clock)| Message::Clock { barrier, clock }),
        (number(), number(), number()).prop_map(|(barrier, least, view)| Message::Clocks {
            barrier,
            least,
            view
        }),
        (".*", statistics()).prop_map(|(text, statistics)| Message::Report { text, statistics }),
        Just(Message::Finish),
        (prop::option::of(0u16..3), prop_oneof![0u16..3, any::<u16>()], key(), number())
            .prop_map(|(worker, table, key, count)| Message::GradientsRefused { worker, table, key, count }),
        ".*".prop_map(|reason| Message::Abort { reason }),
        (prop_oneof![Just(9u64), any::<u64>()], peer()).prop_map(|(instance, from)| Message::Hello(Hello {
            instance,
            from,
            pass: Pass::default(),
            to: 0,
            answered: Answered { newest: instance, count: 1 }
        })),
    ]
}

/// Messages to and from shards.
fn data() -> impl Strategy<Value = Message> {
    let region = || 0u8..4;
    prop_oneof![
        (number(), keys(), gradients(), any::<bool>()).prop_map(|(number, keys, gradients, answer)| {
            Message::Push(ColdPush { number, keys, gradients, answer })
        }),
        (number(), number(), gradients()).prop_map(|(number, view, values)| Message::Pushed {
            number,
            view,
            values
        }),
        (number(), key(), any::<u32>(), any::<u32>())
            .prop_map(|(number, key, lane, bits)| { Message::PushRefused { number, key, lane, bits } }),
        (number(), keys()).prop_map(|(number, keys)| Message::Pull { number, keys }),
        (number(), gradients()).prop_map(|(number, values)| Message::Pulled { number, values }),
        (region(), number(), any::<u32>(), prop::collection::vec(datagram().prop_map(Bulk), 0..3)).prop_map(
            |(region, view_id, below, packets)| Message::Replay(Replay { region, view_id, below, packets })
        ),
        (region(), number(), any::<u32>()).prop_map(|(region, view_id, below)| Message::Replayed {
            region,
            view_id,
            below
        }),
        (region(), number()).prop_map(|(region, view_id)| Message::Adopt {
            region,
            view_id,
            round: 0,
            contents: RoundContents::default()
        }),
        (region(), (number(), number(), number()), contents(), values()).prop_map(
            |(region, (view_id, round, change), contents, values)| {
                Message::Adopted(Adopted { region, view_id, round, contents, change, values })
            }
        ),
        (region(), number(), number(), contents(), (slots(), bulk(any::<u32>()))).prop_map(
            |(region, view_id, round, contents, (slots, sums))| {
                Message::Drained(Drained { region, view_id, round, contents, slots, sums }.into())
            }
        ),
        (region(), number(), number(), values()).prop_map(|(region, view_id, round, values)| {
            Message::Committed(Committed { region, view_id, round, values })
        }),
        (region(), number(), number(), values()).prop_map(|(region, view_id, change, values)| {
            Message::Changed(Changed { region, view_id, change, values })
        }),
        (region(), number(), number()).prop_map(|(region, view_id, change)| Message::Installed {
            region,
            view_id,
            change
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![control(), data()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_message_survives_its_encoding(message in message()) {
        let frame = message.encode();
        // Compared as bytes: a gradient may be no number, which is not equal to itself.
        prop_assert_eq!(Message::decode(&frame).map(|message| message.encode()), Ok(frame));
    }

    #[test]
    fn bytes_are_a_message_or_they_are_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn a_changed_message_is_a_message_or_it_is_not(
        message in message(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut frame = message.encode();
        for (index, byte) in changes {
            let length = frame.len();
            frame[index.index(length)] = byte;
        }
        let _ = Message::decode(&frame);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_message_makes_a_role_panic(
        messages in prop::collection::vec((0usize..12, message()), 1..12),
    ) {
        let mut harness = ClusterHarness::busy();
        let (servers, switches, workers) = (harness.servers().start, harness.switches().start, harness.workers().start);
        let ways = [
            (workers, 0), (switches, 0), (servers, 0),
            (0, workers), (0, switches), (0, servers),
            (workers, servers), (workers + 1, servers + 1), (switches, servers),
            (servers, workers), (servers + 1, workers), (servers, switches),
        ];
        for (way, message) in messages {
            let (from, to) = ways[way];
            harness.world.forge(from, to, &message);
            for _ in 0..20 {
                harness.step();
            }
        }
        for _ in 0..300 {
            harness.step();
        }
    }

    #[test]
    fn no_changed_message_makes_a_role_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..), 1..200),
    ) {
        let mut harness = ClusterHarness::busy();
        let sent = harness.world.observer.recorder.messages.clone();
        for (which, place, change) in changes {
            let sent = &sent[which.index(sent.len())];
            let mut frame = sent.message.encode();
            let place = place.index(frame.len());
            frame[place] ^= change;
            if let (Ok(message), Some(to)) = (Message::decode(&frame), sent.to) {
                harness.world.forge(sent.from, to, &message);
                harness.step();
            }
        }
        for _ in 0..300 {
            harness.step();
        }
    }

    #[test]
    fn no_datagram_makes_a_role_panic(
        datagrams in prop::collection::vec((0usize..6, 0usize..6, datagram()), 1..40),
    ) {
        let mut harness = ClusterHarness::busy();
        let members = harness.workers().end;
        for (from, to, bytes) in datagrams {
            let from = harness.world.address(from % members);
            harness.world.inject(from, to % members, bytes);
            harness.step();
        }
        for _ in 0..300 {
            harness.step();
        }
    }
}

fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let fields =
        (1u8..8, 0u8..8, 0u8..3, prop_oneof![0u16..4, any::<u16>()], prop_oneof![0u16..4, any::<u16>()]);
    let seq = prop_oneof![0u32..8, any::<u32>()];
    let entries =
        prop::collection::vec((prop_oneof![0u16..9, any::<u16>()], prop_oneof![0u32..8, any::<u32>()]), 0..7);
    let packet = (fields, seq, entries, 0u16..2, prop_oneof![4 => Just(1u16), 1 => any::<u16>()]).prop_map(
        |((kind, flags, region, round, durable), seq, entries, worker, view)| {
            let mut bytes = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
            let kind = libra_dataplane::Kind::from_code(kind).unwrap();
            let flags = Flags::from_bits(flags).unwrap();
            let (entries_of, job, plan, tag) = (0, 9, 4, 0);
            let header = Header {
                kind,
                flags,
                entries: entries_of,
                job,
                worker,
                plan,
                view,
                region,
                round,
                durable,
                seq,
                tag,
            };
            let mut writer = PacketWriter::new(header, &mut bytes);
            assert!(entries.iter().all(|&(cell, value)| writer.push(cell, value)));
            let length = writer.finish();
            bytes.truncate(length);
            bytes
        },
    );
    prop_oneof![3 => packet, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

// rules W4, C4
#[test]
fn junk_from_strangers_is_counted_and_harms_nothing() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(2, 1, 2));
    let (server, switch, worker) =
        (harness.servers().start, harness.switches().start, harness.workers().start);
    let [from_server, from_switch, from_worker] =
        [server, switch, worker].map(|host| harness.world.address(host));
    let mut random = Random::new(4);
    for _ in 0..100 {
        let junk: Vec<u8> = (0..random.below(60)).map(|_| random.bits().to_le_bytes()[0]).collect();
        // To the switch from a worker and from a stranger; to a worker from its switch and from a stranger.
        harness.world.inject(from_worker, switch, junk.clone());
        harness.world.inject(from_server, switch, junk.clone());
        harness.world.inject(from_switch, worker, junk.clone());
        harness.world.inject(from_server, worker, junk.clone());
        harness.world.inject(from_worker, server, junk);
    }
    let sums = harness.work(10, whole);
    harness.check_values(&sums).unwrap();
    let outcome = harness.finish();
    harness.check().unwrap();
    for (peer, statistics) in outcome.statistics {
        match (peer, statistics) {
            (Peer::Switch(_), Statistics::Switch(counts)) => {
                assert_eq!(counts.unknown_senders, 100);
                // An empty burst holds no datagram.
                assert!((95..=100).contains(&counts.malformed), "{counts:?}");
            }
            (Peer::Worker(0), Statistics::Worker(counts)) => assert!(counts.dropped >= 195, "{counts:?}"),
            (Peer::Server(0), Statistics::Server(counts)) => assert_eq!(counts.dropped, 100),
            _ => {}
        }
    }
}

#[test]
fn new_values_for_slots_that_do_not_exist_are_not_installed() {
    let mut harness = ClusterHarness::new(HarnessConfig::small(1, 1, 1));
    let (server, switch) = (harness.servers().start, harness.switches().start);
    harness.wait_for(switch, |event| matches!(event, Event::Member(MemberEvent::Started { .. })));
    let slots = u16::try_from(HOT_ROWS).unwrap() * u16::try_from(EMBEDDING_WIDTH).unwrap();
    for slots in [vec![(65_535, 3)], vec![(slots - 1, 3)], vec![(0, 2)], vec![(0, 4)], vec![(32_767, 3)]] {
        let values = SlotValues { slots, values: Bulk(vec![7; 3]) };
        let changed = Changed { region: 0, view_id: 1, change: 1, values };
        harness.world.forge(server, switch, &Message::Changed(changed));
    }
    for worker in harness.workers() {
        harness.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
    }
    let sums = harness.work(3, whole);
    harness.check_values(&sums).unwrap();
    let outcome = harness.finish();
    let malformed = outcome.statistics.iter().map(|(_, statistics)| match statistics {
        Statistics::Switch(counts) => counts.malformed,
        _ => 0,
    });
    assert_eq!(malformed.sum::<u64>(), 5);
}

#[test]
fn a_barrier_is_for_workers() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 2));
    let workers = harness.workers();
    harness.command(workers.start, WorkerCommand::Barrier { number: 0 });
    harness.world.forge(harness.servers().start, 0, &Message::Barrier { number: 0 });
    harness.run_for(Duration::from_millis(50));
    let released = |event: &Event| *event == Event::Worker(WorkerEvent::Released { number: 0 });
    assert!(core::iter::from_fn(|| harness.next_event(workers.start)).all(|event| !released(&event)));
    harness.command(workers.start + 1, WorkerCommand::Barrier { number: 0 });
    harness.wait_for(workers.start, released);
}

#[test]
fn a_push_with_pull_without_values_reads_them_at_the_shard() {
    let mut harness = ClusterHarness::started(HarnessConfig::small(1, 1, 1));
    let (switch, worker) = (harness.switches().start, harness.workers().start);
    // Answers of the switch are lost, and this is received in their place.
    let deaf = Quality { loss: 1.0, ..Quality::GOOD };
    harness.world.network.set_quality_of(worker, Some(deaf));
    let id = PullId(harness.number());
    let (keys, gradients) = (vec![1, 2], vec![1.0; 2 * EMBEDDING_WIDTH]);
    harness.command(worker, WorkerCommand::PushPull { id, keys, gradients });
    let header = Header { job: 9, plan: 4, view: 1, round: 1, ..Header::of_kind(libra_dataplane::Kind::Ack) };
    harness.world.inject(harness.world.address(switch), worker, header.to_bytes().to_vec());
    let (keys, values) = harness.wait_for_pull(worker, id);
    assert_eq!((keys, values), (vec![1, 2], vec![0.0; 2 * EMBEDDING_WIDTH]));
    let messages = &harness.world.observer.recorder.messages;
    assert!(messages.iter().any(|sent| matches!(sent.message, Message::Pull { .. })));
}
