//! Targets find the faults that are planted for them, and without these they pass.
//!
//! A process of its own, as mutants are enabled for a whole process; one test, so that no other runs into them.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use libra_dataplane::Header;
use libra_dataplane::mutants::{Mutant, clear, enable};
use libra_fuzz::{Outcome, Target, fuzz};
use libra_proto::Message;

#[path = "targets/job.rs"]
#[expect(dead_code, reason = "its files are for other targets")]
mod job;
#[path = "targets/message.rs"]
mod message;
#[path = "targets/packet.rs"]
mod packet;
#[path = "targets/pipeline.rs"]
mod pipeline;

#[path = "../../../crates/dataplane/tests/pipeline/model.rs"]
mod model;
#[path = "../../../crates/dataplane/tests/pipeline/scene.rs"]
#[expect(dead_code, reason = "the properties of the pipeline need more of it")]
mod scene;

/// Those that one pipeline alone can show.
const OF_THE_PIPELINE: &[Mutant] = &[
    Mutant::NoDedup,
    Mutant::GenerationNotChecked,
    Mutant::FlipInTheMiddle,
    Mutant::StaleViewAccepted,
    Mutant::StalePlanAccepted,
    Mutant::CellOrderNotChecked,
];

/// Returns true if the target finds a fault.
fn finds(target: &Target, read: fn(&[u8]) -> Outcome) -> bool {
    catch_unwind(AssertUnwindSafe(|| fuzz!(target, read))).is_err()
}

fn passes_without_and_fails_with(mutant: Mutant) {
    assert!(!finds(&pipeline::target(), pipeline::read), "the pipeline without a mutant");
    enable(mutant);
    let found = finds(&pipeline::target(), pipeline::read);
    clear();
    assert!(found, "{mutant} is not found");
}

/// Takes flags that mean nothing for none.
fn forgiving_header(bytes: &[u8]) -> Outcome {
    let parse = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.get_mut(2).into_iter().for_each(|flags| *flags &= 7);
        Header::parse(&bytes)
    };
    Outcome::of(&packet::read_header(parse, bytes))
}

/// Loses a part of a number.
fn forgetful_message(frame: &[u8]) -> Outcome {
    let decode = |frame: &[u8]| {
        Message::decode(frame).map(|message| match message {
            Message::Probe { number } if number > 300 => Message::Probe { number: number - 1 },
            message => message,
        })
    };
    message::read_with(decode, frame)
}

#[test]
fn planted_faults_are_found() {
    OF_THE_PIPELINE.iter().copied().for_each(passes_without_and_fails_with);
    assert!(!finds(&packet::target(), packet::read));
    assert!(finds(&packet::target(), forgiving_header), "a header that forgives");
    assert!(!finds(&message::target(), message::read));
    assert!(finds(&message::target(), forgetful_message), "a message that forgets");
}
