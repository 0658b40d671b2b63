//! Each mutant does what its name says, and nothing while it is not enabled.
//!
//! A process of its own, as mutants are enabled for a whole process; within it, one test at a time.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use libra_dataplane::mutants::{Mutant, clear, enable, is_enabled};
use libra_dataplane::{
    BODY_KEY_BYTES, Bank, BodyKey, Direction, Header, Kind, NackReason, PathKeys, RegionConfig, Seen, TagKey,
    Tags, WINDOW,
};

#[path = "pipeline/scene.rs"]
#[expect(dead_code, reason = "the properties of the pipeline need more of it")]
mod scene;
use scene::{
    JOB, PLAN, TestPipeline, VIEW, VIEW_ID, answer, entries, header, pipeline, region, small_config, write,
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The only test that may enable mutants. None is enabled at its beginning, nor after its end.
struct Field {
    _alone: MutexGuard<'static, ()>,
}

impl Field {
    fn new() -> Self {
        // A test that failed has cleared the field nevertheless, so its poison means nothing.
        Self { _alone: ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        clear();
    }
}

/// Returns the results of `act` without the mutant and with it.
fn without_and_with<T>(bug: Mutant, act: impl Fn() -> T) -> (T, T) {
    let _field = Field::new();
    let without = act();
    enable(bug);
    let with = act();
    (without, with)
}

fn push(pipeline: &mut TestPipeline, seq: u32) -> Header {
    answer(pipeline, &write(header(Kind::Push, 0, seq), &entries(&[(0, 1), (1, 1)]))).0
}

/// The sums of the idle bank of a small region, then those of the active one.
fn sums(pipeline: &mut TestPipeline) -> [Vec<u32>; 2] {
    let region = pipeline.region_mut(JOB, 0).unwrap();
    [(); 2].map(|()| {
        let mut bank = Vec::new();
        region.drain(|_, sums| bank.extend_from_slice(sums));
        region.flip().unwrap();
        bank
    })
}

#[test]
fn mutants_are_enabled_together_and_cleared_together() {
    let _field = Field::new();
    assert!(Mutant::ALL.iter().all(|&bug| !is_enabled(bug)));
    for (enabled, bug) in (1..).zip(Mutant::ALL) {
        enable(bug);
        enable(bug);
        assert_eq!(Mutant::ALL.iter().filter(|&&bug| is_enabled(bug)).count(), enabled);
    }
    clear();
    assert!(Mutant::ALL.iter().all(|&bug| !is_enabled(bug)));
}

#[test]
fn no_dedup_adds_a_packet_twice() {
    let (without, with) = without_and_with(Mutant::NoDedup, || {
        let mut pipeline = pipeline(&[small_config()]);
        for _ in 0..2 {
            assert_eq!(push(&mut pipeline, 0).kind, Kind::Ack);
        }
        sums(&mut pipeline)
    });
    assert_eq!(without, [vec![], vec![1, 1, 0]]);
    assert_eq!(with, [vec![], vec![2, 2, 0]]);
}

#[test]
fn generation_not_checked_loses_packets_when_the_window_wraps() {
    let (without, with) = without_and_with(Mutant::GenerationNotChecked, || {
        let mut pipeline = pipeline(&[small_config()]);
        let next_round = u32::try_from(WINDOW).unwrap();
        for seq in [0, next_round, next_round + 1] {
            assert_eq!(push(&mut pipeline, seq).kind, Kind::Ack);
        }
        let seen = pipeline.region(JOB, 0).unwrap().window(0).unwrap().seen(2 * next_round);
        (sums(&mut pipeline), seen)
    });
    assert_eq!(without, ([vec![], vec![3, 3, 0]], Seen::New));
    assert_eq!(with, ([vec![], vec![2, 2, 0]], Seen::Duplicate { bank: Bank::Odd }));
}

#[test]
fn flip_in_the_middle_tears_every_seventh_push() {
    let (without, with) = without_and_with(Mutant::FlipInTheMiddle, || {
        let mut pipeline = pipeline(&[small_config()]);
        for seq in 0..20 {
            let _ = push(&mut pipeline, seq);
        }
        sums(&mut pipeline)
    });
    assert_eq!(without, [vec![], vec![20, 20, 0]]);
    assert_eq!(with, [vec![0, 2, 0], vec![20, 18, 0]]);
}

#[test]
fn flip_in_the_middle_keeps_each_entry_in_its_slot() {
    let (without, with) = without_and_with(Mutant::FlipInTheMiddle, || {
        let mut pipeline = pipeline(&[RegionConfig { lanes: 3, ..small_config() }]);
        let list = entries(&[(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]);
        for seq in 0..7 {
            let _ = answer(&mut pipeline, &write(header(Kind::Push, 0, seq), &list));
        }
        let [idle, active] = sums(&mut pipeline);
        let total = |slot: usize| active[slot] + idle.get(slot).copied().unwrap_or_default();
        ((0..5).map(total).collect::<Vec<_>>(), idle.is_empty())
    });
    assert_eq!(without, (vec![7, 14, 21, 28, 35], true));
    assert_eq!(with, (vec![7, 14, 21, 28, 35], false));
}

#[test]
fn cut_off_by_one_lacks_the_highest_packet() {
    let (without, with) = without_and_with(Mutant::AckedOffByOne, || {
        let mut pipeline = pipeline(&[small_config()]);
        for seq in [0, 1, 2, 5] {
            let _ = push(&mut pipeline, seq);
        }
        let region = pipeline.region(JOB, 0).unwrap();
        [0, 1].map(|flow| region.window(flow).unwrap().accepted().flatten().collect::<Vec<_>>())
    });
    assert_eq!(without, [vec![0, 1, 2, 5], vec![]]);
    assert_eq!(with, [vec![0, 1, 2], vec![]]);
}

/// Returns the answer to each kind of request for a region when `change` was done to it.
fn reasons(change: fn(Header) -> Header) -> Vec<Option<NackReason>> {
    let mut pipeline = pipeline(&[small_config()]);
    [Kind::Push, Kind::Pull, Kind::Install, Kind::Drain]
        .map(|kind| answer(&mut pipeline, &write(change(header(kind, 0, 0)), &[])).0.nack_reason())
        .to_vec()
}

const STALE_PLAN: fn(Header) -> Header = |request| Header { plan: PLAN + 1, ..request };
const STALE_VIEW: fn(Header) -> Header = |request| Header { view: VIEW - 1, ..request };

#[test]
fn stale_view_accepted_takes_any_view_but_not_any_plan() {
    let (without, with) =
        without_and_with(Mutant::StaleViewAccepted, || (reasons(STALE_VIEW), reasons(STALE_PLAN)));
    assert_eq!(without, (vec![Some(NackReason::StaleView); 4], vec![Some(NackReason::StalePlan); 4]));
    assert_eq!(with, (vec![None; 4], vec![Some(NackReason::StalePlan); 4]));
}

#[test]
fn stale_plan_accepted_takes_any_plan_but_not_any_view() {
    let (without, with) =
        without_and_with(Mutant::StalePlanAccepted, || (reasons(STALE_VIEW), reasons(STALE_PLAN)));
    assert_eq!(without, (vec![Some(NackReason::StaleView); 4], vec![Some(NackReason::StalePlan); 4]));
    assert_eq!(with, (vec![Some(NackReason::StaleView); 4], vec![None; 4]));
}

#[test]
fn mark_seen_forgotten_leaves_the_windows_of_a_standby_empty() {
    let (without, with) = without_and_with(Mutant::MarkSeenForgotten, || {
        let mut region = region(small_config());
        assert!(region.mark_seen(0, 0..3));
        assert!(!region.mark_seen(2, 0..3));
        region.window(0).unwrap().accepted().flatten().collect::<Vec<_>>()
    });
    assert_eq!((without, with), (vec![0, 1, 2], vec![]));
}

/// True if a pipeline of a job with MACs takes a push with this tag.
fn is_taken(sign: impl Fn(&mut [u8], Tags<'_>), spoil: impl Fn(&mut [u8])) -> bool {
    let body = BodyKey::from_bytes(&[0x35; BODY_KEY_BYTES]);
    let keys = PathKeys { up: TagKey::from_bytes([1; 16]), down: TagKey::from_bytes([2; 16]) };
    let tags = Tags::Mac { body: &body, keys };
    let mut pipeline = pipeline(&[small_config()]);
    let mut packet = write(header(Kind::Push, 0, 0), &entries(&[(0, 1), (1, 1)]));
    sign(&mut packet, tags);
    spoil(&mut packet);
    pipeline.process_tagged_burst((JOB, 0), Some(tags), [packet.as_mut_slice()], |_| ());
    pipeline.counters().pushes == 1
}

#[test]
fn each_fault_of_tags_lets_a_forgery_in() {
    let up = |packet: &mut [u8], tags: Tags<'_>| tags.sign(Direction::Up, packet, VIEW_ID);
    let down = |packet: &mut [u8], tags: Tags<'_>| tags.sign(Direction::Down, packet, VIEW_ID);
    let other_view =
        |packet: &mut [u8], tags: Tags<'_>| tags.sign(Direction::Up, packet, VIEW_ID + (1 << 16));
    let nothing = |_: &mut [u8]| ();
    let last_value = |packet: &mut [u8]| *packet.last_mut().unwrap() ^= 1;
    let taken = |bug, act: &dyn Fn() -> bool| assert_eq!(without_and_with(bug, act), (false, true), "{bug}");
    taken(Mutant::TagIgnored, &|| is_taken(up, last_value));
    taken(Mutant::PaddingNotHashed, &|| is_taken(up, last_value));
    taken(Mutant::OneKeyBothWays, &|| is_taken(down, nothing));
    taken(Mutant::SinceNotInTag, &|| is_taken(other_view, nothing));
    assert!(is_taken(up, nothing));
}
