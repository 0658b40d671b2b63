//! Tags of packets and of answers, in jobs with keys.

use libra_dataplane::Direction::{self, Up};
use libra_dataplane::{Arithmetic, Entry, Flags, Header, Kind};
use libra_proto::{Plane, RoundContents, TagKind};

use crate::scene::{Both, address, config, header, values, write};

const ARITHMETIC: Arithmetic = Arithmetic::Fixed { bound: 1 << 20 };

/// Bodies end with each remainder of a block of the hash, in packets and in answers.
// rule A2
#[test]
fn entries_of_all_numbers_are_hashed_to_the_same_tag() {
    let Some(mut both) = Both::load_with_tags(1, TagKind::Mac) else { return };
    let config = libra_dataplane::RegionConfig { bank_packets_max: 1000, ..config(0, ARITHMETIC) };
    both.open(config, 0, &RoundContents::default());
    both.each(|plane| {
        plane.settle(0, 0);
        plane.install(0, &values(&[(0, u32::MAX), (7, 9), (200, 0x0102_0304)]));
    });
    let mut seq = 0;
    for count in 0..=255_u16 {
        let entries: Vec<_> = (0..count).map(|cell| Entry { cell, value: u32::from(cell) * 77 }).collect();
        for flags in [Flags::NONE, Flags::VALUES] {
            let mut push = write(Header { flags, ..header(Kind::Push, 0, seq) }, &entries);
            both.sign(0, Up, &mut push, config.view);
            let answer = both.send(address(0), &push).expect("it is answered");
            let mut signed = answer.clone();
            both.sign(0, Direction::Down, &mut signed, config.view);
            assert_eq!(answer, signed, "{count} entries");
            // The last bit of the last entry, or of the number.
            let bit = if count == 0 { 21 } else { push.len() - 1 };
            push[bit] ^= 1;
            assert_eq!(both.send(address(0), &push), None, "{count} entries");
            seq += 1;
        }
    }
    both.compare(&[0]);
    assert_eq!((both.soft.counters().pushes, both.soft.counters().forged), (512, 512));
}

/// A cookie is of no region, and a MAC of one.
// rules A3, A5
#[test]
fn a_region_that_is_not_here_is_refused_with_cookies_alone() {
    for (kind, is_answered) in [(TagKind::Cookie, true), (TagKind::Mac, false)] {
        let Some(mut both) = Both::load_with_tags(2, kind) else { return };
        let config = config(0, ARITHMETIC);
        let push = |both: &Both, signer| {
            let mut push = write(header(Kind::Push, 0, 0), &[Entry { cell: 1, value: 1 }]);
            both.sign(signer, Up, &mut push, config.view);
            push
        };
        let (sound, forged) = (push(&both, 0), push(&both, 1));
        // Before there is one, with one, and after it.
        assert_eq!(both.send(address(0), &sound).is_some(), is_answered);
        assert_eq!(both.send(address(0), &forged), None);
        both.open(config, 0, &RoundContents::default());
        assert!(both.send(address(0), &sound).is_some());
        assert_eq!(both.send(address(0), &forged), None);
        both.each(|plane| plane.forget(0));
        assert_eq!(both.send(address(0), &sound).is_some(), is_answered);
        assert_eq!(both.send(address(0), &forged), None);
        both.compare(&[]);
    }
}

/// Whatever tags it had before.
// rule A1
#[test]
fn workers_that_are_set_again_have_their_new_tags() {
    let Some(mut both) = Both::load_with_tags(2, TagKind::Mac) else { return };
    let config = config(0, ARITHMETIC);
    both.open(config, 0, &RoundContents::default());
    let kinds = [TagKind::Mac, TagKind::Off, TagKind::Cookie, TagKind::Mac];
    for (seq, kind) in (0..).zip(kinds) {
        both.set_workers(2, kind);
        let mut push = write(header(Kind::Push, 1, seq), &[Entry { cell: 1, value: 1 }]);
        assert_eq!(both.send(address(1), &push).is_some(), kind == TagKind::Off, "{kind}");
        both.sign(1, Up, &mut push, config.view);
        assert!(both.send(address(1), &push).is_some(), "{kind}");
    }
    both.compare(&[0]);
}
