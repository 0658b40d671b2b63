//! Reports of the runner about a target that deviates from a vector.

use std::net::SocketAddrV4;
use std::ops::Range;

use libra_conformance::{
    FlowSeqs, IpVerdict, Key, Need, Outcome, RegionName, Sender, Slots, Target, Vector, WorkerName, run,
    run_in_bursts,
};
use libra_dataplane::{
    BankPackets, Counters, HEADER_BYTES, Kind, Packet, PacketWriter, RegionConfig, SeqRange,
};

use crate::auth::mac;
use crate::pipeline::PipelineTarget;
use crate::scene::{FIXED, REGION, Scene, header, packet, push, worker};

/// The reference, but for its answers, with which something is done, and for IP, of which it says this.
struct Liar {
    target: PipelineTarget,
    lie: fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
    ip: IpVerdict,
}

impl Target for Liar {
    type Error = String;

    fn offers(&self, need: Need) -> bool {
        need != Need::Lanes
    }

    fn receive(&mut self, from: Sender, datagram: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let answer = self.target.receive(from, datagram)?;
        Ok((self.lie)(answer.into_iter().collect()).pop())
    }

    fn receive_burst(&mut self, from: Sender, datagrams: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        self.target.receive_burst(from, datagrams).map(self.lie)
    }

    fn receive_ip(&mut self, _: &[u8]) -> Result<IpVerdict, String> {
        Ok(self.ip.clone())
    }

    fn drain(&mut self, region: RegionName) -> Result<Slots, String> {
        let mut sums = self.target.drain(region)?;
        sums.0.insert(8, 1);
        Ok(sums)
    }

    fn counters(&mut self) -> Result<Counters, String> {
        Ok(Counters { foreign: 9, ..self.target.counters()? })
    }

    fn acked(&mut self, region: RegionName, flow: u16) -> Result<Vec<Range<u32>>, String> {
        self.target.acked(region, if flow == 0 { 9 } else { flow })
    }

    fn set_switch(&mut self, address: SocketAddrV4) -> Result<(), String> {
        self.target.set_switch(address)
    }
    fn set_worker(&mut self, worker: WorkerName, address: SocketAddrV4) -> Result<(), String> {
        self.target.set_worker(worker, address)
    }
    fn set_key(&mut self, worker: WorkerName, key: &Key) -> Result<(), String> {
        self.target.set_key(worker, key)
    }
    fn open(&mut self, config: &RegionConfig, after: u16, seen: &[FlowSeqs]) -> Result<(), String> {
        self.target.open(config, after, seen)
    }
    fn close(&mut self, region: RegionName) -> Result<(), String> {
        self.target.close(region)
    }
    fn flip(&mut self, region: RegionName) -> Result<Option<u16>, String> {
        self.target.flip(region)
    }
    fn install(&mut self, region: RegionName, values: &Slots) -> Result<(), String> {
        self.target.install(region, values)
    }
    fn values(&mut self, region: RegionName) -> Result<Slots, String> {
        self.target.values(region)
    }
    fn set_durable(&mut self, region: RegionName, round: u16) -> Result<(), String> {
        self.target.set_durable(region, round)
    }
    fn set_readable(&mut self, region: RegionName, readable: bool) -> Result<(), String> {
        self.target.set_readable(region, readable)
    }
    fn set_active(&mut self, region: RegionName, active: bool) -> Result<(), String> {
        self.target.set_active(region, active)
    }
    fn bank(&mut self, region: RegionName) -> Result<BankPackets, String> {
        self.target.bank(region)
    }
}

fn liar(lie: fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>) -> Liar {
    Liar { target: PipelineTarget::new(), lie, ip: IpVerdict::Pass }
}

fn vector(config: RegionConfig, act: impl Fn(&mut Scene)) -> Vector {
    let mut scene = Scene::with("a", "For the runner.", config);
    act(&mut scene);
    let (file, text) = scene.finish();
    Vector::read(&file, &text).unwrap()
}

fn said(vector: &Vector, mut target: Liar) -> [String; 2] {
    let alone = run(vector, &mut target).unwrap_err();
    let mut again = liar(target.lie);
    again.ip = target.ip;
    [alone, run_in_bursts(vector, &mut again).unwrap_err()].map(|failure| failure.to_string())
}

#[test]
fn a_difference_is_told_field_by_field() {
    let vector = vector(FIXED, |scene| {
        scene.taken(worker(0), &push(0, 0, &[(0, 1)]));
        scene.readable(REGION, true);
        scene.taken(worker(1), &packet(header(Kind::Pull, 1, 7), &[(3, 0), (4, 0)]));
    });
    let wrong = liar(|mut answers| {
        for answer in answers.iter_mut().filter(|answer| answer.len() > 40) {
            (answer[15], answer[41]) = (1, 9);
            answer.truncate(answer.len() - 1);
        }
        answers
    });
    let [alone, burst] = said(&vector, wrong);
    assert_eq!(
        alone,
        "a.txt:12: another answer to PULL no flags seq 7 of w7.1 for r7.0, 2 entries:\n\
         \x20   round: expected 65534, found 65281\n\
         \x20   entry 1: expected cell 4: 00000000, found -\n\
         \x20   behind it: expected -, found 0004000000"
    );
    assert_eq!(burst, alone);
}

#[test]
fn answers_that_are_missing_or_too_many_are_noticed() {
    let vector = vector(FIXED, |scene| {
        for seq in 0..3 {
            scene.taken(worker(0), &push(0, seq, &[(0, 1)]));
        }
        scene.malformed(worker(0), &[1, 2, 3]);
    });
    let [alone, burst] = said(&vector, liar(|_| vec![]));
    let expected = "expected ACK no flags seq 0 of w7.0 for r7.0, 0 entries, found none";
    assert_eq!(
        alone,
        format!(
            "a.txt:9: another answer to PUSH no flags seq 0 of w7.0 for r7.0, 1 entries:\n    answer: {expected}"
        )
    );
    assert!(burst.starts_with("a.txt:9: ") && burst.ends_with(expected), "{burst}");

    let [alone, burst] = said(&vector, liar(|answers| [answers, vec![vec![7]]].concat()));
    assert!(alone.starts_with("a.txt:9: ") && alone.contains("found 07"), "{alone}");
    assert_eq!(
        burst,
        "a.txt:15: another answer to a burst, behind its last answer:\n    \
         answer: expected none, found 1 bytes that are no packet (shorter than a header)"
    );
}

// rule W8
#[test]
fn an_acknowledgement_may_repeat_others_but_not_make_up_any() {
    /// Adds a range to acknowledgements of several packets.
    fn longer<const FIRST: u32, const COUNT: u16>(mut answers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        for answer in answers.iter_mut().filter(|answer| answer.len() > HEADER_BYTES) {
            let packet = Packet::parse(answer).unwrap();
            let mut bytes = [0; 100];
            let mut writer = PacketWriter::new(packet.header, &mut bytes);
            let more = SeqRange { first: FIRST, count: COUNT };
            for SeqRange { first, count } in packet.acknowledged().chain([more]) {
                assert!(writer.push(count, first));
            }
            let end = writer.finish();
            *answer = bytes[..end].to_vec();
        }
        answers
    }
    let vector = vector(FIXED, |scene| {
        for seq in 0..3 {
            scene.taken(worker(1), &push(1, seq, &[(0, 1)]));
        }
    });
    // The last line says that the counters are others.
    let run = |lie| run_in_bursts(&vector, &mut liar(lie)).unwrap_err().to_string();
    assert!(run(longer::<0, 3>).contains("`counters`"), "{}", run(longer::<0, 3>));
    let expected = "another answer to a burst:\n    acknowledged: expected what was taken, found 3";
    assert!(run(longer::<2, 4>).ends_with(expected), "{}", run(longer::<2, 4>));
}

// rules W8, A2
#[test]
fn the_tag_of_an_acknowledgement_of_a_burst_is_checked() {
    let mut scene = Scene::with("a", "For the runner.", FIXED);
    scene.key(WorkerName { job: REGION.job, worker: 1 }, &mac(1));
    for seq in 0..3 {
        scene.taken(worker(1), &scene.signed(push(1, seq, &[(0, 1)])));
    }
    let (file, text) = scene.finish();
    let vector = Vector::read(&file, &text).unwrap();
    let run = |lie| run_in_bursts(&vector, &mut liar(lie)).unwrap_err().to_string();
    // The last line says that the counters are others.
    assert!(run(|answers| answers).contains("`counters`"));
    let wrong = run(|mut answers| {
        answers.iter_mut().for_each(|answer| answer[HEADER_BYTES - 1] ^= 1);
        answers
    });
    assert!(wrong.contains("a burst:\n    tag: expected ") && wrong.contains(", found "), "{wrong}");
}

#[test]
fn a_wrong_state_is_told() {
    for (act, expected) in [
        (
            (|scene| drop(scene.drain(REGION))) as fn(&mut Scene),
            "a.txt:9: another answer to `drain r7.0`:\n    sum of slot 8: expected 00000000, found 00000001",
        ),
        (|scene| drop(scene.acked(REGION, 0)), "a.txt:9: the target: there is no flow 9"),
        (|_| (), "a.txt:9: another answer to `counters`:\n    foreign: expected 0, found 9"),
    ] {
        let [alone, burst] = said(&vector(FIXED, act), liar(|answers| answers));
        assert_eq!((alone.as_str(), burst.as_str()), (expected, expected));
    }
}

#[test]
fn vectors_beyond_a_target_are_skipped_before_any_step() {
    let vector = vector(RegionConfig { lanes: 2, ..FIXED }, |_| ());
    assert_eq!(run(&vector, &mut liar(|answers| answers)), Ok(Outcome::Skipped(Need::Lanes)));
}
