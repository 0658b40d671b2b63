//! Requirements for receivers to merge answers (GRO): a checksum in each, and an interface that does it.

use libra_dataplane::Kind;
use libra_xdp::{Verdict, XdpError, merge_arrivals};

use crate::scene::{self, JOB};

const HEAD_BYTES: usize = 14 + 20 + 8;

/// An Ethernet frame from 10.0.0.2:7000 to 10.0.0.1:7700.
fn frame(datagram: &[u8]) -> Vec<u8> {
    let [ip_bytes, udp_bytes] = [28, 8].map(|head| u8::try_from(head + datagram.len()).unwrap());
    let [from, to] = [7000_u16, 7700].map(u16::to_be_bytes);
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    let ip = [0x45, 0, 0, ip_bytes, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    let udp = [from[0], from[1], to[0], to[1], 0, udp_bytes, 0, 0];
    [&ethernet[..], &ip, &udp, datagram].concat()
}

/// The sum in ones' complement of what a UDP checksum is over (RFC 768), itself included: 0xffff if that is right.
fn udp_sum(frame: &[u8]) -> u32 {
    let [addresses, udp] = [&frame[26..34], &frame[34..]];
    let summed = [addresses, &[0, 17], &udp[4..6], udp].concat();
    let sum: u32 = summed.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn every_answer_without_entries_has_a_valid_nonzero_checksum() {
    let Some(mut pipeline) = scene::load("10.0.0.1:7700".parse().unwrap()) else { return };
    pipeline.set_worker("10.0.0.2:7000".parse().unwrap(), JOB, 0, None).unwrap();
    let mut ones = 0;
    // Numbers that differ in all ways that a sum can.
    for seq in 0..=u32::from(u16::MAX) {
        let push = scene::write(scene::header(Kind::Push, 0, seq), &[]);
        let Verdict::Send(answer) = pipeline.receive_frame(&frame(&push)).unwrap() else {
            panic!("number {seq} was not answered")
        };
        assert_eq!(answer.len(), HEAD_BYTES + push.len());
        assert_ne!(answer[40..42], [0, 0], "number {seq}");
        assert_eq!(udp_sum(answer), 0xffff, "number {seq}");
        ones += u32::from(answer[40..42] == [0xff, 0xff]);
    }
    assert!(ones > 0, "a sum of zero was among them, and is sent as this one");
}

#[test]
fn an_interface_merges_arrivals_and_a_missing_one_is_an_error() {
    // Where everything that comes is merged anyway.
    match merge_arrivals("lo") {
        Ok(()) => {}
        Err(XdpError::NotPermitted { .. }) => return eprintln!("SKIPPED: this needs root"),
        Err(error) => panic!("{error}"),
    }
    for missing in ["no-such-one", "longer-than-any-name"] {
        let error = merge_arrivals(missing).unwrap_err();
        assert!(matches!(&error, XdpError::NoInterface { name } if name == missing), "{error}");
    }
}
