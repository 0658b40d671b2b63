//! The fuzz target of a mesh: frames in a stream, and the messages of the mesh itself in them.

use std::io;

use libra_fuzz::{Outcome, Target, fuzz};

use super::super::control::{Control, Join};
use super::super::flow::Receiving;
use super::super::frame::{HEAD_BYTES, Head, Kind, filling};
use super::super::message::{Meta, SECTIONS};
use super::super::roster::{Member, NodeRole, Roster};
use super::read_payload;

fn frame(kind: Kind, sequence: u64, sections: [&[u8]; SECTIONS]) -> Vec<u8> {
    let meta = Meta { app: 1, timestamp: 7, push: true, ..Meta::default() };
    let lengths = sections.map(|section| section.len() as u64);
    let head = Head { kind, sequence, taken: sequence, sender: 9, meta, lengths };
    let sections = sections.iter().flat_map(|section| [section, filling(section.len())].concat());
    head.encode().into_iter().chain(sections).collect()
}

fn controls() -> Vec<Control> {
    let host = || "10.0.0.1".to_owned();
    let join = Join { role: NodeRole::Server, workers: 2, servers: 1, host: Some(host()), port: 80 };
    let member = Member { id: 8, owner: 8, role: NodeRole::Server, host: host(), port: 80 };
    let roster = Roster { you: 9, members: vec![member; 3], notice: "none".to_owned() };
    vec![
        Control::Join(join),
        Control::Roster(roster),
        Control::Refused { reason: "full".to_owned() },
        Control::Hello { from: 9 },
        Control::Barrier { group: 7 },
        Control::BarrierFailed { group: 7, reason: "dead".to_owned() },
        Control::Died { node: 9, peer: host(), reason: "dead".to_owned() },
        Control::Bye,
    ]
}

/// Reads frames as the thread of a stream does, up to the first that is none.
fn read(mut stream: &[u8]) -> Outcome {
    let (mut receiving, mut spare, mut frames) = (Receiving::default(), Vec::new(), 0);
    let ended = |frames: usize, end: &str| {
        if frames > 0 { Outcome::beyond(end) } else { Outcome::refused(end) }
    };
    loop {
        let Some((bytes, rest)) = stream.split_first_chunk::<HEAD_BYTES>() else {
            return ended(frames, if stream.is_empty() { "end" } else { "cut in a head" });
        };
        stream = rest;
        let Some(head) = Head::decode(bytes) else { return ended(frames, "no head") };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        let payload = match read_payload(&mut stream, spare, &head) {
            Ok(Some(payload)) => payload,
            Ok(None) => return ended(frames, "too long"),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                return ended(frames, "cut in a payload");
            }
        };
        let found = [payload.text().len(), 8 * payload.keys().len(), payload.values().len()];
        let promised = head.lengths.map(|length| usize::try_from(length).expect("it was read"));
        assert_eq!(found, [promised[0], promised[1] / 8 * 8, promised[2]]);
        if head.kind == Kind::Control {
            let Some(control) = Control::decode(payload.text()) else {
                return ended(frames, "no control message");
            };
            assert_eq!(Control::decode(&control.encode()), Some(control));
        }
        receiving.offer(head.sequence);
        spare = payload.into_words();
        frames += 1;
    }
}

#[test]
fn fuzz_mesh() {
    let application = frame(Kind::Application, 1, [b"hello", &[1; 16], &[2; 12], &[3; 4]]);
    let bare = Head::bare(Kind::Probe, 4, 2, 9).encode().to_vec();
    let controls: Vec<Vec<u8>> = (2..)
        .zip(controls())
        .map(|(sequence, control)| frame(Kind::Control, sequence, [&control.encode(), &[], &[], &[]]))
        .collect();
    let mut seeds = vec![[application, bare].concat(), controls.concat()];
    seeds.extend(controls);
    // Much less than a head can promise.
    fuzz!(Target::new("mesh", seeds).with_memory(2 << 20), read);
}
