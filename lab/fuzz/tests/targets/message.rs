//! Messages: their encoding. The arrays in them (`Keys`, `Values`, `Bulk`) have formats of their own.

use libra_fuzz::{Outcome, Target};
use libra_proto::{Malformed, Message};

use crate::job::job;

/// Decodes; a message that comes out survives its own encoding. Compared as bytes, as a gradient that is no number is not equal to itself.
pub(crate) fn read_with(decode: impl Fn(&[u8]) -> Result<Message, Malformed>, frame: &[u8]) -> Outcome {
    let message = match decode(frame) {
        Ok(message) => message,
        Err(malformed) => return Outcome::of::<(), _>(&Err(malformed)),
    };
    let encoded = message.encode();
    let again = decode(&encoded).expect("what was encoded can be decoded");
    assert_eq!(again.encode(), encoded, "{message:?}");
    // The first byte is the kind of message.
    Outcome::beyond(format!("kind {}", encoded[0]))
}

pub(crate) fn read(frame: &[u8]) -> Outcome {
    read_with(Message::decode, frame)
}

pub(crate) fn target() -> Target {
    let messages = &job().messages;
    for message in messages {
        assert_eq!(Message::decode(message).unwrap().encode(), *message);
    }
    Target::new("message", messages.clone())
}
