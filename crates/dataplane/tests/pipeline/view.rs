//! A region is held under one view: packets of another change nothing, and every answer has the view of the region.

use libra_dataplane::{Counters, Flags, Header, Kind, NackReason, Region, RegionConfig};

use crate::scene::{
    JOB, PLAN, TestPipeline, VIEW, VIEW_ID, answer, entries, header, pipeline, small_config, write,
};

const REQUESTS: [Kind; 4] = [Kind::Push, Kind::Pull, Kind::Install, Kind::Drain];

/// A region that holds something of everything: values, sums in both banks, and marks in its windows.
fn used_pipeline() -> TestPipeline {
    let mut pipeline = pipeline(&[small_config()]);
    let install = write(header(Kind::Install, 0, 0), &entries(&[(0, 70), (1, 71)]));
    assert_eq!(answer(&mut pipeline, &install).0.kind, Kind::Ack);
    let region = pipeline.region_mut(JOB, 0).unwrap();
    region.set_readable(true);
    region.set_durable(0);
    assert_eq!(answer(&mut pipeline, &push(0)).0.kind, Kind::Ack);
    assert_eq!(pipeline.region_mut(JOB, 0).unwrap().flip(), Ok(1));
    assert_eq!(answer(&mut pipeline, &push(1)).0.kind, Kind::Ack);
    pipeline
}

fn push(seq: u32) -> Vec<u8> {
    write(header(Kind::Push, 0, seq), &entries(&[(0, 5), (1, 6)]))
}

/// All that a packet can change in a region, but its counters.
fn contents(region: &Region<Vec<u32>>) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut copy = region.clone();
    let mut banks = [Vec::new(), Vec::new()];
    for bank in &mut banks {
        copy.drain(|first_slot, sums| bank.push((first_slot, sums.to_vec())));
        copy.flip().unwrap();
    }
    let flows = 0..region.config().flows;
    let windows: Vec<Vec<_>> = flows.map(|flow| region.window(flow).unwrap().accepted().collect()).collect();
    let rounds = (region.round(), region.durable(), region.is_readable(), region.is_active());
    (region.values().to_vec(), banks, windows, rounds, region.active_packets(), region.idle_packets())
}

// rules V2, W6
#[test]
fn a_stale_view_is_refused_for_each_kind_and_changes_nothing() {
    for view in [VIEW - 1, VIEW + 1, 0, u16::MAX, VIEW ^ 0x0100] {
        for kind in REQUESTS {
            for list in [entries(&[(0, 1), (1, 2)]), vec![]] {
                for flags in [Flags::NONE, Flags::VALUES.with(Flags::RETRANSMIT)] {
                    let mut pipeline = used_pipeline();
                    let before = pipeline.clone();
                    let request = Header { view, flags, ..header(kind, 0, 2) };
                    let (nack, body) = answer(&mut pipeline, &write(request, &list));

                    assert_eq!(nack.nack_reason(), Some(NackReason::StaleView), "{kind:?} of view {view}");
                    assert_eq!((nack.view, nack.plan, nack.seq, body), (VIEW, PLAN, 2, vec![]));
                    assert_eq!(contents(&pipeline.regions()[0]), contents(&before.regions()[0]));
                    let (before, after) = (before.counters(), pipeline.counters());
                    let refused =
                        Counters { packets: before.packets + 1, stale_view: before.stale_view + 1, ..before };
                    assert_eq!(after, refused);
                    assert_eq!(after.refused(), 1);
                }
            }
        }
    }
}

#[test]
fn a_duplicate_of_a_stale_view_is_not_acknowledged() {
    let mut pipeline = used_pipeline();
    let again = Header { view: VIEW - 1, ..header(Kind::Push, 0, 1) };
    let (nack, _) = answer(&mut pipeline, &write(again, &entries(&[(0, 5), (1, 6)])));
    assert_eq!(nack.nack_reason(), Some(NackReason::StaleView));
    assert_eq!(pipeline.counters().duplicates, 0);
}

// rule W6
#[test]
fn the_plan_is_checked_first_then_the_view_then_the_flow() {
    let mut pipeline = used_pipeline();
    let mut reason = |request: Header| answer(&mut pipeline, &write(request, &[])).0.nack_reason();
    for kind in REQUESTS {
        let stale = Header { plan: PLAN + 1, view: VIEW + 1, ..header(kind, 99, 2) };
        assert_eq!(reason(stale), Some(NackReason::StalePlan));
        assert_eq!(reason(Header { plan: PLAN, ..stale }), Some(NackReason::StaleView));
    }
}

// rule W7
#[test]
fn an_answer_carries_the_view_of_the_region() {
    let mut pipeline = used_pipeline();
    let list = entries(&[(0, 1), (1, 2)]);
    for (kind, answered) in REQUESTS.into_iter().zip([Kind::Ack, Kind::Pull, Kind::Ack, Kind::Drain]) {
        let (header, _) = answer(&mut pipeline, &write(header(kind, 0, 2), &list));
        assert_eq!((header.kind, header.view), (answered, VIEW));
    }
    // A refusal for anything else carries it too, whatever view was asked under.
    let stale = Header { plan: PLAN + 1, view: 4000, ..header(Kind::Push, 0, 3) };
    assert_eq!(answer(&mut pipeline, &write(stale, &list)).0.view, VIEW);

    let mut burst = [push(2), push(3), push(5)];
    let mut views = Vec::new();
    pipeline.process_burst((JOB, 0), burst.iter_mut().map(Vec::as_mut_slice), |answer| {
        views.push(Header::parse(answer).unwrap().view);
    });
    assert_eq!(views, [VIEW]);
}

// rule W7
#[test]
fn packets_without_a_region_are_answered_with_their_view() {
    let mut pipeline = used_pipeline();
    let request = Header { region: 1, view: 4000, ..header(Kind::Push, 0, 0) };
    let (nack, _) = answer(&mut pipeline, &write(request, &[]));
    assert_eq!((nack.nack_reason(), nack.view), (Some(NackReason::UnknownFlow), 4000));
}

#[test]
fn acknowledgements_of_regions_in_different_views_stay_apart() {
    let moved = RegionConfig { region: 1, view: VIEW_ID + 1, ..small_config() };
    let mut pipeline = pipeline(&[small_config(), moved]);
    let to_moved = |seq| write(Header { region: 1, view: VIEW + 1, ..header(Kind::Push, 0, seq) }, &[]);
    let mut burst = [push(0), push(1), to_moved(2), to_moved(3)];
    let mut views = Vec::new();
    pipeline.process_burst((JOB, 0), burst.iter_mut().map(Vec::as_mut_slice), |answer| {
        let answer = Header::parse(answer).unwrap();
        views.push((answer.region, answer.view, answer.entries));
    });
    assert_eq!(views, [(0, VIEW, 1), (1, VIEW + 1, 1)]);
}

// rule E2
#[test]
fn a_region_knows_which_flows_have_taken_packets() {
    let mut pipeline = pipeline(&[small_config()]);
    let changed =
        |pipeline: &TestPipeline| pipeline.region(JOB, 0).unwrap().changed_flows().collect::<Vec<_>>();
    assert_eq!(changed(&pipeline), []);
    let of_flow_1 = write(Header { worker: 1, ..header(Kind::Push, 0, 0) }, &entries(&[(0, 5)]));
    assert_eq!(answer(&mut pipeline, &of_flow_1).0.kind, Kind::Ack);
    let read = write(header(Kind::Pull, 0, 0), &[]);
    assert_eq!(answer(&mut pipeline, &read).0.kind, Kind::Pull);
    let stale = write(Header { view: VIEW + 1, ..header(Kind::Push, 0, 0) }, &entries(&[(0, 5)]));
    assert_eq!(answer(&mut pipeline, &stale).0.nack_reason(), Some(NackReason::StaleView));
    assert_eq!(changed(&pipeline), [1]);
    pipeline.region_mut(JOB, 0).unwrap().forget_changes();
    assert_eq!(answer(&mut pipeline, &of_flow_1).0.kind, Kind::Ack);
    assert_eq!(changed(&pipeline), [], "a duplicate is nothing new");
    assert!(pipeline.region_mut(JOB, 0).unwrap().mark_seen(0, 0..9));
    assert_eq!(changed(&pipeline), [], "nor is what was taken elsewhere");
}
