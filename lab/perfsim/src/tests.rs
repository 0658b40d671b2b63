//! Tests of whole simulations.

use core::time::Duration;

use libra_plan::{Frequencies, TableShape};
use libra_proto::Instant;

use super::*;
use crate::fabric::{Train, instant};
use crate::run::Simulation;

/// Prices that are easy to add up.
fn costs() -> Costs {
    Costs {
        spread: 0.0,
        machine: "none".to_owned(),
        worker: CostModel(
            [
                (CostKind::Turn, 100.0),
                (CostKind::RunIn, 500.0),
                (CostKind::RunOut, 1000.0),
                (CostKind::PacketByteOut, 0.8),
                (CostKind::Line, 5.0),
                (CostKind::MessageOut, 1000.0),
                (CostKind::MessageByteOut, 1.0),
            ]
            .into(),
        ),
        server: CostModel(
            [(CostKind::Turn, 100.0), (CostKind::MessageByteIn, 2.0), (CostKind::RoundByte, 1.0)].into(),
        ),
        switch: CostModel(
            [(CostKind::PacketIn, 50.0), (CostKind::PacketByteIn, 0.2), (CostKind::RoundByte, 0.5)].into(),
        ),
        user: CostModel([(CostKind::Pair, 1.0)].into()),
        kernel: CostModel(
            [
                (CostKind::Wake, 1000.0),
                (CostKind::RunIn, 500.0),
                (CostKind::RunOut, 1000.0),
                (CostKind::MessageOut, 1000.0),
            ]
            .into(),
        ),
        wake_latency_ns: WakeLatency(vec![[0.0, 5000.0]]),
    }
}

fn setting(system: System, workers: u16, hardware: bool) -> Setting {
    let rows = 100_000;
    Setting {
        system,
        workers,
        servers: 1,
        topology: Topology::Rack {
            machines: 8,
            host: Host { cores: 16, speed: 1.0, polls: false },
            link: LinkSpec::DUAL_100G,
            forwarding: Duration::from_micros(1),
            hardware,
        },
        model: Model { rows, width: 1, law: PowerLaw::new(rows, 1.05), batch: 2000 },
        hot: 10_000,
        open: 4,
        pushes_per_round: 32,
        entries_max: 240,
        costs: costs(),
        warm_up: Duration::from_millis(3),
        measured: Duration::from_millis(6),
        drawn: 8,
        seed: 1,
    }
}

fn run(setting: &Setting) -> Report {
    setting.run().unwrap()
}

#[test]
fn a_setting_always_has_the_same_report() {
    let setting = setting(System::Libra, 4, true);
    let text = |report: &Report| serde_json::to_string(report).unwrap();
    assert_eq!(text(&run(&setting)), text(&run(&setting)));
    let other = Setting { seed: 2, ..setting.clone() };
    assert_ne!(text(&run(&setting)), text(&run(&other)));
}

/// Bytes that were sent arrived, were dropped or are on their way, as counted at the two ends; and no link carries what did not come to it.
#[test]
fn bytes_are_neither_made_nor_lost() {
    bytes_are_conserved(&setting(System::Libra, 8, true));
}

/// On links that lose one packet in a hundred what is lost is counted, too, and all pushes are accepted all the same.
#[test]
fn bytes_are_lost_only_where_they_are_counted() {
    let (lossy, rates) = (losing(setting(System::Libra, 8, true), 0.01), [0.0, 0.01]);
    let lost = bytes_are_conserved(&lossy);
    assert!(lost > 10_000, "{lost}");
    let [whole, less] = rates.map(|rate| run(&losing(setting(System::Libra, 8, true), rate)));
    assert!(less.pairs_per_second > 0.2 * whole.pairs_per_second, "{less:?} of {whole:?}");
    let packets = (less.up.packets_per_second + less.down.packets_per_second) * 0.006;
    let share = (less.up.packets_lost + less.down.packets_lost) as f64 / packets;
    assert!((0.008..0.012).contains(&share) && whole.up.packets_lost == 0, "{share}");
}

/// A rate of zero is no loss, to the bit, whatever a stream would do if it lost something; and another seed loses other packets.
#[test]
fn without_losses_nothing_changes() {
    let text = |setting: &Setting| serde_json::to_string(&run(setting)).unwrap();
    let plain = setting(System::Libra, 4, true);
    let mut other = plain.clone();
    let Topology::Rack { link, .. } = &mut other.topology else { unreachable!() };
    link.recovery = Duration::from_secs(1);
    assert_eq!(text(&plain), text(&other));
    let lossy = losing(plain, 0.001);
    assert_eq!(text(&lossy), text(&lossy));
    assert_ne!(text(&lossy), text(&Setting { seed: 2, ..lossy.clone() }));
}

/// Streams alone, as no row is hot: what they lose makes them late, and what takes longer to be sent again makes it slower.
#[test]
fn streams_lose_time_and_nothing_else() {
    let rate = |loss, recovery| {
        // Alone, for whom nothing is better if another comes later.
        let alone = Setting { open: 1, ..setting(System::PsSparse, 1, true) };
        let mut setting = losing(Setting { measured: Duration::from_millis(40), ..alone }, loss);
        let Topology::Rack { link, .. } = &mut setting.topology else { unreachable!() };
        link.recovery = Duration::from_micros(recovery);
        run(&setting).pushes_per_second
    };
    let (whole, soon, late) = (rate(0.0, 1000), rate(0.01, 100), rate(0.01, 1000));
    assert!(whole > 1.02 * soon && soon > 1.2 * late, "{whole} {soon} {late}");
}

fn losing(mut setting: Setting, rate: f64) -> Setting {
    let Topology::Rack { link, .. } = &mut setting.topology else { unreachable!() };
    link.loss = rate;
    setting
}

/// Returns the bytes that were lost.
fn bytes_are_conserved(setting: &Setting) -> u64 {
    let pushes = (0..8).map(|worker| setting.model.pushes(worker, 1, 4)).collect();
    let mut simulation = Simulation::with(setting, None, pushes);
    let begin = simulation.warm_up().unwrap();
    simulation.measure(&begin).unwrap();
    let engine = &simulation.engine;
    assert!(engine.bytes_delivered > 1_000_000);
    let gone = engine.bytes_dropped + engine.bytes_lost;
    assert_eq!(engine.bytes_sent, engine.bytes_delivered + gone + engine.bytes_under_way);
    assert_eq!(engine.bytes_under_way, engine.bytes_queued(), "what is on its way is what will still happen");
    for place in 0..engine.places() {
        for link in engine.link_counts(place).into_iter().flatten() {
            assert_eq!(link.bytes_offered, link.bytes_carried + link.bytes_dropped);
            let could = engine.now.since(Instant::ZERO).as_secs_f64() * 200e9 / 8.0;
            assert!(link.bytes_carried as f64 <= could, "no link carries more than it can");
        }
    }
    engine.bytes_lost
}

#[test]
fn nothing_is_busy_for_longer_than_there_is_time() {
    for (system, hardware) in
        [(System::Libra, true), (System::Libra, false), (System::PsSparse, true), (System::Het(4), true)]
    {
        let report = run(&setting(system, 12, hardware));
        for (kind, usage) in &report.roles {
            assert!(usage.most <= 1.000_001 && usage.mean <= usage.most + 1e-9, "{kind}: {usage:?}");
        }
        assert!(report.cores_most <= 1.0 && report.up.most <= 1.0 && report.down.most <= 1.0, "{report:?}");
    }
    // One machine, and more threads than cores.
    let host = Host { cores: 2, speed: 0.5, polls: false };
    let report = run(&Setting { topology: Topology::OneMachine(host), ..setting(System::Libra, 4, false) });
    assert!((0.95..=1.0).contains(&report.cores_most), "{report:?}");
}

/// One worker, one push at a time, all rows cold: its time is the sum of what it passes.
#[test]
fn a_push_alone_takes_as_long_as_what_it_passes() {
    let costs = costs();
    let setting = Setting { open: 1, ..setting(System::PsSparse, 1, true) };
    let report = run(&setting);
    let of = |kind: &str, item| report.work_per_pair[kind].count(item) * 2000.0;
    let message = of("worker", CostKind::MessageByteOut);
    let answer = of("worker", CostKind::MessageByteIn);
    assert!((of("worker", CostKind::MessageOut) - 1.0).abs() < 0.1, "a push is a message");
    let kernel = |item| costs.kernel.0[&item];
    // The user: woken, then makes the push; the worker: woken, sends.
    let wake = costs.wake_latency_ns.after(0.0) + kernel(CostKind::Wake);
    let mut expected = 2000.0;
    expected += wake + 100.0 + message + kernel(CostKind::MessageOut);
    let spec = LinkSpec::DUAL_100G;
    let path = |bytes: f64| {
        let train = Train::of_message(instant(bytes).as_nanos().try_into().unwrap());
        let nanos = |bytes: usize| bytes as f64 * 8e9 / spec.bits_per_second;
        nanos(train.bytes) + nanos(train.last) + 2.0 * spec.propagation.as_nanos() as f64 + 1000.0
    };
    // The server: woken, adds, answers; the worker: woken, notifies its user, which is woken.
    expected += path(message) + wake + 100.0 + 2.0 * message + kernel(CostKind::MessageOut);
    expected += path(answer) + wake + 100.0 + wake;
    let found = report.latency_us[0] * 1000.0;
    // A first packet that overtakes the tail of its train makes the difference.
    assert!((found / expected - 1.0).abs() < 0.02, "{found} for {expected}");
    assert!((report.pushes_per_second * found / 1e9 - 1.0).abs() < 0.1, "one at a time");
}

#[test]
fn a_polling_process_is_not_woken() {
    let polling = |polls| {
        let mut setting = Setting { open: 1, ..setting(System::PsSparse, 1, true) };
        if let Topology::Rack { host, .. } = &mut setting.topology {
            host.polls = polls;
        }
        run(&setting)
    };
    let (sleeps, polls) = (polling(false), polling(true));
    assert!(sleeps.work_per_pair["server"].count(CostKind::Wake) > 0.0);
    assert_eq!(polls.work_per_pair["server"].count(CostKind::Wake), 0.0);
    assert!(
        polls.latency_us[0] + 4.0 * 6.0 <= sleeps.latency_us[0],
        "four wakes of 6 us: {polls:?}, {sleeps:?}"
    );
}

#[test]
fn throughput_grows_with_workers_and_the_switch_offloads() {
    let rates: Vec<f64> =
        [2, 4, 8, 16].map(|workers| run(&setting(System::Libra, workers, true)).pairs_per_second).into();
    assert!(rates.windows(2).all(|pair| pair[1] > 0.95 * pair[0]), "{rates:?}");
    let past = run(&setting(System::PsSparse, 16, true));
    assert!(rates[3] > 1.3 * past.pairs_per_second, "{rates:?} against {past:?}");
    assert_eq!(past.connections, 16);
    assert!(past.roles["server"].most > 0.97, "{past:?}");
}

/// Of a push of which some rows are hot, those that are fewer are counted: here the hot ones, and none where all rows go one way.
#[test]
fn rows_that_leave_both_ways_are_counted() {
    let mixed = |system, hot, width| {
        let mut setting = Setting { hot, ..setting(system, 2, true) };
        setting.model.width = width;
        let worker = run(&setting).work_per_pair["worker"];
        (worker.count(CostKind::Mixed), worker.count(CostKind::PacketByteOut))
    };
    for width in [1, 4] {
        let (count, bytes) = mixed(System::Libra, 300, width);
        let bytes = bytes / width as f64;
        assert!(count > 0.05 && (6.0 * count / bytes - 1.0).abs() < 0.15, "{count} of {bytes}");
    }
    assert_eq!(mixed(System::Libra, 100_000, 1).0, 0.0);
    assert_eq!(mixed(System::PsSparse, 300, 1).0, 0.0);
}

/// On a machine with fewer cores than threads roles give way to users, so that none waits for a slice of another.
#[test]
fn a_machine_is_busy_though_its_threads_take_turns() {
    let host = Host { cores: 2, speed: 1.0, polls: false };
    let report = run(&Setting { topology: Topology::OneMachine(host), ..setting(System::Libra, 4, false) });
    assert!(report.cores_most > 0.95, "{report:?}");
    assert!(report.latency_us[1] < 20.0 * report.latency_us[0], "{report:?}");
}

/// The formula agrees with the simulation, for 8 to 32 workers.
#[test]
fn formula_and_simulation_agree() {
    for (system, workers) in [
        (System::PsSparse, 8),
        (System::PsSparse, 32),
        (System::Libra, 8),
        (System::Libra, 16),
        (System::Libra, 32),
    ] {
        let setting = setting(system, workers, true);
        let (simulated, computed) = (run(&setting).pairs_per_second, estimate(&setting, 1, 1.0));
        let ratio = computed.pairs_per_second / simulated;
        assert!((0.87..1.15).contains(&ratio), "{system:?}, {workers}: {ratio:.2}, {computed:?}");
    }
}

/// Pushes of two tables are replayed to the last, regardless of how many each worker makes and how many rows are hot.
#[test]
fn a_training_is_replayed_to_its_last_push() {
    let shape = |name: &str, keys, width, hot| TableShape { name: name.to_owned(), keys, width, hot };
    let tables = vec![shape("rows", 0..5000, 3, true), shape("layer", 1 << 40..(1 << 40) + 1, 500, false)];
    let pushes = |worker: u64| {
        (0..40 + 20 * worker).map(move |step| {
            let mut keys: Vec<u64> =
                (0..200).map(|row| (row * row + 7 * step + 13 * worker) % 5000).collect();
            keys.sort_unstable();
            keys.dedup();
            let values = 3 * keys.len() + 500;
            keys.push(1 << 40);
            Push { gradients: vec![0.5 - step as f32; values], pairs: keys.len() as u64, keys }
        })
    };
    let mut frequencies = Frequencies::new(tables).unwrap();
    for push in (0..4).flat_map(pushes) {
        frequencies.record_push(push.keys.iter().copied());
        push.keys.iter().for_each(|key| frequencies.record_gradient(*key, 200.0));
    }
    for (system, hot) in [(System::Libra, 2000), (System::Libra, 1 << 40), (System::PsSparse, 2000)] {
        let setting = Setting { hot, ..setting(system, 4, true) };
        let replay = Replay {
            frequencies: frequencies.clone(),
            pushes: (0..4).map(|worker| Pushes::new(pushes(worker))).collect(),
        };
        let report = setting.replay(replay).unwrap();
        assert_eq!(report.pairs, frequencies.total(), "{system:?}, {hot}");
        let rate = report.pairs as f64 / report.seconds;
        assert!((report.pairs_per_second / rate - 1.0).abs() < 1e-9 && report.latency_us[0] > 1.0);
        assert_eq!(report.roles.contains_key("switch"), system == System::Libra);
    }
    // A row that fits no packet is cold as a rule; here it would be hot.
    let wide = Frequencies::new(vec![shape("rows", 0..10, 241, true)]).map(|mut wide| {
        wide.record_push([3]);
        wide
    });
    let replay = Replay { frequencies: wide.unwrap(), pushes: vec![] };
    assert!(setting(System::Libra, 1, true).replay(replay).unwrap_err().contains("241"));
}

/// A replay of what a role was handed does what the role did, in each step: it checks that itself.
#[test]
fn a_recording_is_replayed_alone() {
    for recorded in [Recorded::Server, Recorded::Switch] {
        let recording = setting(System::Libra, 2, false).record(recorded).unwrap();
        let mut ticks = 0;
        let samples = recording.replay(|| {
            ticks += 7;
            ticks
        });
        assert!(samples.len() > 20 && samples.iter().all(|(_, nanos)| *nanos == 7.0), "{}", samples.len());
    }
}

/// Slower links make it slower, in proportion where they are the limit.
#[test]
fn a_slow_link_is_the_limit() {
    let at = |bits_per_second| {
        // The machine of the server has no worker: what stays on a machine crosses no link.
        let setting = Setting { measured: Duration::from_millis(20), ..setting(System::PsSparse, 7, true) };
        let Topology::Rack { machines, host, link, forwarding, hardware } = setting.topology else {
            unreachable!()
        };
        let link = LinkSpec { bits_per_second, ..link };
        run(&Setting { topology: Topology::Rack { machines, host, link, forwarding, hardware }, ..setting })
    };
    let (slow, slower) = (at(2e9), at(1e9));
    assert!(slow.down.most > 0.95 && slower.down.most > 0.95, "{slow:?} {slower:?}");
    assert!((slow.pairs_per_second / slower.pairs_per_second - 2.0).abs() < 0.1);
}
