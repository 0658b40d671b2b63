//! The fuzz target of frames in a stream, against a model that has all bytes at once.

use std::sync::OnceLock;

use libra_fuzz::{Outcome, Target, fuzz};
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Runtime};

use super::{FrameReader, LENGTH_BYTES, NO_LENGTH, seal, speaks_tls};

/// Bytes of a frame, at most.
const FRAME_BYTES_MAX: usize = 10_000;

/// The end of a stream, as far as its reader can tell.
#[derive(Debug, PartialEq)]
enum End {
    Whole,
    Cut,
    TooLong,
    Tls,
}

/// The frames of a stream and its end.
fn expected(mut bytes: &[u8]) -> (Vec<Vec<u8>>, End) {
    let mut frames = Vec::new();
    if bytes.len() >= LENGTH_BYTES && speaks_tls(bytes) {
        return (frames, End::Tls);
    }
    loop {
        if bytes.is_empty() {
            return (frames, End::Whole);
        }
        let Some((length, rest)) = bytes.split_first_chunk() else { return (frames, End::Cut) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return (frames, End::TooLong);
        }
        let Some((frame, rest)) = rest.split_at_checked(length) else { return (frames, End::Cut) };
        frames.push(frame.to_vec());
        bytes = rest;
    }
}

/// The first two bytes of an input are where the stream is cut into two pieces that come one after the other.
fn read(input: &[u8]) -> Outcome {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME
        .get_or_init(|| Builder::new_current_thread().build().expect("it needs nothing of the system"));
    let Some((cut, bytes)) = input.split_first_chunk() else { return Outcome::refused("no stream") };
    let (first, second) = bytes.split_at(usize::from(u16::from_be_bytes(*cut)).min(bytes.len()));
    let mut reader = FrameReader::new(first.chain(second));
    let mut frames = Vec::new();
    let end = runtime.block_on(async {
        loop {
            match reader.next(FRAME_BYTES_MAX).await {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => return End::Whole,
                Err(error) => match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => return End::Cut,
                    std::io::ErrorKind::InvalidData => return End::TooLong,
                    std::io::ErrorKind::PermissionDenied => return End::Tls,
                    other => panic!("memory can be read: {other}"),
                },
            }
        }
    });
    assert_eq!((&frames, &end), (&expected(bytes).0, &expected(bytes).1));
    let name = format!("{end:?} after {} frames", if frames.is_empty() { "no" } else { "some" });
    if frames.is_empty() { Outcome::refused(name) } else { Outcome::beyond(name) }
}

// rule S2
#[test]
fn fuzz_frames() {
    let stream = |cut: u16, lengths: &[usize]| {
        let frames = lengths.iter().flat_map(|length| {
            let mut frame = NO_LENGTH.to_vec();
            frame.resize(LENGTH_BYTES + length, 7);
            seal(&mut frame);
            frame
        });
        cut.to_be_bytes().into_iter().chain(frames).collect::<Vec<u8>>()
    };
    let seeds = vec![stream(0, &[0]), stream(9, &[5, 0, 1]), stream(5000, &[4092, 4093, 9000])];
    fuzz!(Target::new("frames", seeds), read);
}
