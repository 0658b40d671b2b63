//! Messages and datagrams that make no sense: counted, dropped, and never a panic.

use core::net::SocketAddr;
use core::time::Duration;

use libra_dataplane::{Flags, Header, PacketWriter, packet_bytes};
use libra_proto::{
    Bulk, ColdPush, Committed, Cut, Drained, FlowCut, Join, Kind, Level, MemberEvent, Message, Peer, PullId,
    Statistics, WorkerCommand, WorkerEvent, WorkerStatistics,
};
use proptest::prelude::*;

use crate::link::Random;
use crate::traffic::{EMBEDDING_WIDTH, HOT_ROWS, check_values, run, setup, whole};
use crate::world::{Event, World};

fn bulk<T: core::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Bulk<T>> {
    prop::collection::vec(value, 0..12).prop_map(Bulk)
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..62, 998u64..1005, any::<u64>()]
}

fn gradient() -> impl Strategy<Value = f32> {
    prop_oneof![Just(1.0f32), any::<u32>().prop_map(f32::from_bits)]
}

fn runs() -> impl Strategy<Value = Vec<(u16, u16)>> {
    prop::collection::vec((prop_oneof![0u16..90, any::<u16>()], prop_oneof![0u16..12, any::<u16>()]), 0..6)
}

fn peer() -> impl Strategy<Value = Peer> {
    prop_oneof![
        Just(Peer::Controller),
        any::<u16>().prop_map(Peer::Server),
        any::<u16>().prop_map(Peer::Switch),
        any::<u16>().prop_map(Peer::Worker),
    ]
}

/// Any message but Start, which only the controller sends, and only before the member has a place.
fn message() -> impl Strategy<Value = Message> {
    let number = || prop_oneof![0u64..5, any::<u64>()];
    let cut = prop::collection::vec((any::<u32>(), prop::collection::vec(any::<(u32, u32)>(), 0..3)), 0..3);
    let cut = cut.prop_map(|flows| Cut {
        flows: flows.into_iter().map(|(below, above)| FlowCut { below, above }).collect(),
    });
    let kinds = prop_oneof![Just(Kind::Server), Just(Kind::Switch), Just(Kind::Worker)];
    let address = || prop::option::of(any::<([u8; 4], u16)>().prop_map(SocketAddr::from));
    prop_oneof![
        (any::<u16>(), kinds, address(), address(), any::<u32>()).prop_map(
            |(version, kind, stream, datagrams, receive_bytes)| {
                Message::Join(Join { version, kind, stream, datagrams, receive_bytes })
            }
        ),
        Just(Message::Ready),
        (prop_oneof![Just(9u16), any::<u16>()], peer()).prop_map(|(job, from)| Message::Hello { job, from }),
        any::<u64>().prop_map(|packets| {
            Message::Heartbeat(Statistics::Worker(WorkerStatistics {
                packets,
                ..WorkerStatistics::default()
            }))
        }),
        number().prop_map(|number| Message::Barrier { number }),
        number().prop_map(|number| Message::Release { number }),
        ".*".prop_map(|text| Message::Report {
            text,
            statistics: Statistics::Worker(WorkerStatistics::default())
        }),
        Just(Message::Finish),
        ".*".prop_map(|reason| Message::Abort { reason }),
        (number(), bulk(key()), bulk(gradient()), any::<bool>()).prop_map(
            |(number, keys, gradients, answer)| {
                Message::Push(ColdPush { number, keys, gradients, answer })
            }
        ),
        (number(), bulk(gradient())).prop_map(|(number, values)| Message::Pushed { number, values }),
        (number(), bulk(key())).prop_map(|(number, keys)| Message::Pull { number, keys }),
        (number(), bulk(gradient())).prop_map(|(number, values)| Message::Pulled { number, values }),
        (0u8..4, number(), cut, runs(), bulk(any::<u32>())).prop_map(|(region, epoch, cut, slots, sums)| {
            Message::Drained(Drained { region, epoch, cut, slots, sums })
        }),
        (0u8..4, number(), runs(), bulk(any::<u32>())).prop_map(|(region, epoch, slots, values)| {
            Message::Committed(Committed { region, epoch, slots, values })
        }),
    ]
}

/// A running cluster with operations under way.
fn busy() -> World {
    let mut world = World::started(setup(2, 1, 2));
    run(&mut world, 2, whole);
    for worker in world.workers() {
        for key in [1, 2, 50, 51] {
            world.push(worker, &[key], &[1.0; EMBEDDING_WIDTH], Level::Accepted);
        }
    }
    world
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
        let mut world = busy();
        let (servers, switches, workers) = (world.servers().start, world.switches().start, world.workers().start);
        let ways = [
            (workers, 0), (switches, 0), (servers, 0),
            (0, workers), (0, switches), (0, servers),
            (workers, servers), (workers + 1, servers + 1), (switches, servers),
            (servers, workers), (servers + 1, workers), (servers, switches),
        ];
        for (way, message) in messages {
            let (from, to) = ways[way];
            world.forge(from, to, message);
            for _ in 0..20 {
                world.step();
            }
        }
        for _ in 0..300 {
            world.step();
        }
    }

    #[test]
    fn no_changed_message_makes_a_role_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u8..), 1..200),
    ) {
        let mut world = busy();
        let sent = world.messages.clone();
        for (which, place, change) in changes {
            let sent = &sent[which.index(sent.len())];
            let mut frame = sent.message.encode();
            let place = place.index(frame.len());
            frame[place] ^= change;
            if let Ok(message) = Message::decode(&frame) {
                world.forge(sent.from, sent.to, message);
                world.step();
            }
        }
        for _ in 0..300 {
            world.step();
        }
    }

    #[test]
    fn no_datagram_makes_a_role_panic(
        datagrams in prop::collection::vec((0usize..6, 0usize..6, datagram()), 1..40),
    ) {
        let mut world = busy();
        let members = world.workers().end;
        for (from, to, bytes) in datagrams {
            world.inject(from % members, to % members, bytes);
            world.step();
        }
        for _ in 0..300 {
            world.step();
        }
    }
}

fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let fields =
        (1u8..8, 0u8..8, 0u8..3, prop_oneof![0u16..4, any::<u16>()], prop_oneof![0u16..4, any::<u16>()]);
    let seq = prop_oneof![0u32..8, any::<u32>()];
    let entries =
        prop::collection::vec((prop_oneof![0u16..9, any::<u16>()], prop_oneof![0u32..8, any::<u32>()]), 0..7);
    let packet = (fields, seq, entries, 0u16..2).prop_map(
        |((kind, flags, region, epoch, durable), seq, entries, worker)| {
            let mut bytes = vec![0; packet_bytes(u8::try_from(entries.len()).unwrap())];
            let kind = libra_dataplane::Kind::from_code(kind).unwrap();
            let flags = Flags::from_bits(flags).unwrap();
            let header = Header {
                kind,
                flags,
                entries: 0,
                job: 9,
                worker,
                plan: 4,
                region,
                epoch,
                durable,
                seq,
                tag: 0,
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

#[test]
fn junk_from_strangers_is_counted_and_harms_nothing() {
    let mut world = World::started(setup(2, 1, 2));
    let (server, switch, worker) = (world.servers().start, world.switches().start, world.workers().start);
    let mut random = Random::new(4);
    for _ in 0..100 {
        let junk: Vec<u8> = (0..random.below(60)).map(|_| random.next().to_le_bytes()[0]).collect();
        // To the switch from a worker and from nobody; to a worker from its switch and from nobody.
        world.inject(worker, switch, junk.clone());
        world.inject(server, switch, junk.clone());
        world.inject(switch, worker, junk.clone());
        world.inject(server, worker, junk.clone());
        world.inject(worker, server, junk);
    }
    let model = run(&mut world, 10, whole);
    check_values(&mut world, &model).unwrap();
    let outcome = world.finish();
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
    let mut world = World::new(setup(1, 1, 1));
    let (server, switch) = (world.servers().start, world.switches().start);
    world.wait_for(switch, |event| matches!(event, Event::Member(MemberEvent::Started { .. })));
    let slots = u16::try_from(HOT_ROWS).unwrap() * u16::try_from(EMBEDDING_WIDTH).unwrap();
    for slots in [vec![(65_535, 3)], vec![(slots - 1, 3)], vec![(0, 2)], vec![(0, 4)], vec![(32_767, 3)]] {
        let committed = Committed { region: 0, epoch: 0, slots, values: Bulk(vec![7; 3]) };
        world.forge(server, switch, Message::Committed(committed));
    }
    for worker in world.workers() {
        world.wait_for(worker, |event| matches!(event, Event::Worker(WorkerEvent::Started { .. })));
    }
    let model = run(&mut world, 3, whole);
    check_values(&mut world, &model).unwrap();
    let outcome = world.finish();
    let malformed = outcome.statistics.iter().map(|(_, statistics)| match statistics {
        Statistics::Switch(counts) => counts.malformed,
        _ => 0,
    });
    assert_eq!(malformed.sum::<u64>(), 5);
}

#[test]
fn a_barrier_is_for_workers() {
    let mut world = World::started(setup(1, 1, 2));
    let workers = world.workers();
    world.command(workers.start, WorkerCommand::Barrier { number: 0 });
    world.forge(world.servers().start, 0, Message::Barrier { number: 0 });
    world.run_for(Duration::from_millis(50));
    let released = |event: &Event| *event == Event::Worker(WorkerEvent::Released { number: 0 });
    assert!(core::iter::from_fn(|| world.next_event(workers.start)).all(|event| !released(&event)));
    world.command(workers.start + 1, WorkerCommand::Barrier { number: 0 });
    world.wait_for(workers.start, released);
}

#[test]
fn a_push_with_pull_that_the_switch_answers_without_values_reads_them_at_the_shard() {
    let mut world = World::started(setup(1, 1, 1));
    let (switch, worker) = (world.switches().start, world.workers().start);
    // What the switch says is lost, and this is heard in its place.
    world.setup.network.loss = 100;
    let id = PullId(world.number());
    let (keys, gradients) = (vec![1, 2], vec![1.0; 2 * EMBEDDING_WIDTH]);
    world.command(worker, WorkerCommand::PushPull { id, keys, gradients });
    let (kind, flags) = (libra_dataplane::Kind::Ack, Flags::NONE);
    let (entries, job, worker_number, plan, region, epoch, durable, seq, tag) = (0, 9, 0, 4, 0, 1, 0, 0, 0);
    let ack =
        Header { kind, flags, entries, job, worker: worker_number, plan, region, epoch, durable, seq, tag };
    world.inject(switch, worker, ack.to_bytes().to_vec());
    let (keys, values) = world.wait_for_pull(worker, id);
    assert_eq!((keys, values), (vec![1, 2], vec![0.0; 2 * EMBEDDING_WIDTH]));
    let asked = world.messages.iter().any(|sent| matches!(sent.message, Message::Pull { .. }));
    assert!(asked);
}
