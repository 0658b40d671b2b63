use super::*;

const REGION: u8 = 3;

/// A network through which so many entries come, of which the least time is a round trip.
struct Network {
    comes_through: u8,
    /// Rounds of probes until answers come.
    delay: usize,
    /// Of the probes in each round, whether they are lost, whatever their length.
    loses: fn(u32) -> bool,
}

/// Runs a search until it is over. Returns its duration.
fn search(length: &mut PathLength, network: &Network) -> Duration {
    let (mut now, mut number, mut way) = (Instant::ZERO, 0, VecDeque::new());
    while let Some(due) = length.poll_timeout() {
        now = now.max(due);
        assert!(now.since(Instant::ZERO) < Duration::from_secs(100), "{length:?}");
        length.handle_timeout(now);
        if let Some(entries) = length.take_due() {
            length.asked(REGION, number);
            let probes = [(number, SHORT), (number + 1, entries)];
            number += 2;
            let comes = |(number, entries): &(u32, u8)| {
                *entries <= network.comes_through && !(network.loses)(*number)
            };
            way.push_back(probes.into_iter().filter(comes).collect::<Vec<_>>());
        }
        if way.len() > network.delay {
            for (number, entries) in way.pop_front().unwrap() {
                length.answered(REGION, number, entries);
            }
        }
    }
    now.since(Instant::ZERO)
}

const GOOD: Network = Network { comes_through: 240, delay: 0, loses: |_| false };

// rule T19
#[test]
fn each_length_is_found_within_six_seconds() {
    for comes_through in 1..240 {
        for delay in [0, 1, 4] {
            let mut length = PathLength::new(240, true);
            let took = search(&mut length, &Network { comes_through, delay, ..GOOD });
            let bounds = (comes_through, comes_through + 1);
            assert_eq!((length.usable(), length.too_short()), (comes_through, Some(bounds)));
            assert!(length.is_reduced() && took < Duration::from_secs(6 + delay as u64 / 2), "{took:?}");
        }
    }
}

// rule T19
#[test]
fn a_path_that_is_wide_is_known_by_its_first_answer() {
    for is_adaptive in [false, true] {
        let mut length = PathLength::new(240, is_adaptive);
        assert_eq!(length.usable(), if is_adaptive { 0 } else { 240 }, "rule T20");
        assert_eq!(search(&mut length, &GOOD), Duration::ZERO);
        assert_eq!((length.usable(), length.too_short(), length.is_reduced()), (240, None, false));
    }
}

// rule T19
#[test]
fn loss_does_not_look_like_a_narrow_path() {
    // Nine of ten, in an order that has nothing to do with lengths.
    let loses = |number: u32| ((number.wrapping_mul(0x9e37_79b9) >> 16) & 0xff) < 230;
    let mut length = PathLength::new(240, false);
    search(&mut length, &Network { loses, ..GOOD });
    assert_eq!(length.too_short(), None);
}

#[test]
fn a_search_begins_again_when_packets_stay_without_an_answer() {
    let mut length = PathLength::new(240, true);
    search(&mut length, &GOOD);
    length.suspect();
    assert_eq!(length.usable(), 240, "nothing is known yet");
    search(&mut length, &Network { comes_through: 100, ..GOOD });
    assert_eq!(length.usable(), 100);
    length.suspect();
    search(&mut length, &GOOD);
    assert_eq!((length.usable(), length.too_short()), (240, None), "it is wide again");
}

#[test]
fn a_length_that_ends_the_job_is_not_doubted() {
    let mut length = PathLength::new(240, false);
    search(&mut length, &Network { comes_through: 100, ..GOOD });
    length.suspect();
    assert!(length.due.is_none() && length.too_short().is_some());
    let mut given = PathLength::given();
    given.suspect();
    assert!(given.due.is_none() && given.usable() == u8::MAX);
}

// rule T20
#[test]
fn each_change_of_a_length_is_reported_once() {
    let mut length = PathLength::new(240, true);
    assert_eq!(length.take_change(), None, "the search is under way");
    search(&mut length, &Network { comes_through: 100, ..GOOD });
    assert_eq!((length.take_change(), length.take_change()), (Some((240, 100)), None));
    length.suspect();
    search(&mut length, &Network { comes_through: 100, ..GOOD });
    assert_eq!(length.take_change(), None, "it is what it was");
    length.suspect();
    search(&mut length, &GOOD);
    assert_eq!((length.take_change(), length.take_change()), (Some((100, 240)), None));
    let mut given = PathLength::given();
    assert_eq!(given.take_change(), None);
    let mut ends_the_job = PathLength::new(240, false);
    search(&mut ends_the_job, &Network { comes_through: 100, ..GOOD });
    assert_eq!(ends_the_job.take_change(), None);
}

#[test]
fn copies_of_an_answer_count_once() {
    let mut length = PathLength::new(240, false);
    length.handle_timeout(Instant::ZERO);
    length.asked(REGION, 7);
    (0..100).for_each(|_| length.answered(REGION, 7, SHORT));
    assert_eq!(length.silent, 1);
    length.answered(REGION, 9, SHORT);
    length.answered(REGION + 1, 7, SHORT);
    assert_eq!(length.silent, 1, "it was not asked");
}
