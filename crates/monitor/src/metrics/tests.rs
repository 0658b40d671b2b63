//! The families that dashboards, alerts and readers rely on.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use libra_proto::{
    CheckpointStatus, Histogram, JobPhase, KnownMember, Lost, MemberState, PathStatus, Peer, TagKind,
    TrainingCounts,
};

use super::*;
use crate::family::Value;

fn inspected<S>(status: S) -> Inspected<S> {
    let (sockets, lag) = (Vec::new(), Duration::from_millis(1));
    Inspected { statuses: vec![status], silent: 0, lag, sockets, restore_stands_still: None }
}

fn member(counts: Statistics, details: Details) -> Vec<Family> {
    let status = MemberStatus { member: None, job: 1, view: 7, is_ready: true, counts, details };
    // None of its sockets is known here: `process` has the test of their drops.
    of_members(&inspected(status), Kind::Worker)
}

/// Checks that each family is there, and that its first sample has these labels beside the name of the member.
fn assert_has(families: &[Family], expected: &[&str]) {
    let shown = |family: &Family| {
        let labels = family.samples[0].0.iter().map(|(key, _)| *key).filter(|key| *key != "member");
        format!("{} {}", family.name, labels.collect::<Vec<_>>().join(",")).trim().to_owned()
    };
    let shown: BTreeSet<String> = families.iter().map(shown).collect();
    let of_all = ["libra_build_info version", "libra_loop_lag_seconds", "libra_view", "process_cpu_seconds"];
    for family in expected.iter().chain(&of_all) {
        assert!(shown.contains(*family), "{family} is none of {shown:#?}");
    }
}

#[test]
fn the_families_of_a_worker_are_complete() {
    let path = PathStatus { switch: 0, window_packets: 8, round_trip: Some(Duration::from_micros(50)) };
    let details = WorkerDetails { paths: vec![path], ..WorkerDetails::default() };
    let families =
        member(Statistics::Worker(WorkerStatistics::default()), Details::Worker(Box::new(details)));
    assert_has(
        &families,
        &[
            "libra_member_info libra_job,role",
            "libra_worker_pushes",
            "libra_worker_rows_pushed path",
            "libra_worker_rows_too_large",
            "libra_worker_rows_pulled path",
            "libra_worker_hot_packets kind",
            "libra_worker_hot_refused",
            "libra_worker_push_accepted_seconds",
            "libra_worker_push_visible_seconds",
            "libra_worker_pull_seconds path",
            "libra_worker_window_packets switch",
            "libra_worker_round_trip_seconds switch",
            "libra_worker_samples",
            "libra_worker_step_seconds part",
            "libra_worker_chunks outcome",
        ],
    );
}

#[test]
fn the_families_of_a_server_are_complete() {
    let details = ServerDetails { checkpoint_age: Some(Duration::ZERO), ..ServerDetails::default() };
    let families =
        member(Statistics::Server(ServerStatistics::default()), Details::Server(Box::new(details)));
    assert_has(
        &families,
        &[
            "libra_member_info libra_job,role",
            "libra_server_row_updates source",
            "libra_server_row_reads",
            "libra_server_rounds",
            "libra_server_duplicates",
            "libra_server_dropped",
            "libra_server_fenced",
            "libra_server_refused what",
            "libra_server_rows",
            "libra_server_store_bytes",
            "libra_server_log_bytes",
            "libra_server_log_sync_seconds",
            "libra_server_checkpoint_seconds",
            "libra_server_checkpoint_age_seconds",
            "libra_server_lost_pushes",
            "libra_server_lost_rounds",
            "libra_server_upload_seconds",
            "libra_server_upload_number",
            "libra_server_upload_bytes",
            "libra_server_uploads_failed",
        ],
    );
}

#[test]
fn the_families_of_a_switch_are_complete() {
    let families = member(Statistics::Switch(SwitchStatistics::default()), Details::Switch(Box::default()));
    assert_has(
        &families,
        &[
            "libra_member_info libra_job,role",
            "libra_switch_packets outcome",
            "libra_switch_pulls",
            "libra_switch_rounds closed_by",
            "libra_switch_round_seconds",
            "libra_switch_commit_seconds",
            "libra_switch_uncommitted_bytes",
            "libra_switch_memory_bytes",
            "libra_switch_regions",
        ],
    );
}

#[test]
fn the_families_of_a_controller_are_complete() {
    let training = TrainingCounts { samples: 4, samples_planned: 10, loss: 0.5, ..TrainingCounts::default() };
    let worker = KnownMember {
        peer: Peer::Worker(0),
        state: MemberState::Active,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        http: None,
        view: 7,
        regions: 0,
        share: 0,
        clock: 0,
        silent: Duration::ZERO,
        counts: Some(Statistics::Worker(WorkerStatistics { training, ..WorkerStatistics::default() })),
    };
    let mut view_changes = Histogram::default();
    (0..3).for_each(|_| view_changes.record(Duration::from_millis(20)));
    let status = ControllerStatus {
        job: 1,
        phase: JobPhase::Running,
        view: 7,
        is_settled: true,
        gathering: None,
        members: vec![worker],
        departed: Vec::new(),
        lost: Lost::default(),
        view_changes,
        regions_moved: 0,
        work: None,
        checkpoints: CheckpointStatus::default(),
        tags: TagKind::Off,
        strangers: 0,
        failure: None,
    };
    let families = of_controller(&inspected(status), None);
    assert_has(
        &families,
        &[
            "libra_member_info libra_job,role",
            "libra_controller_members role,state",
            "libra_controller_losses role",
            "libra_controller_views",
            "libra_controller_view_seconds",
            "libra_controller_regions_moved",
            "libra_controller_checkpoints outcome",
            "libra_controller_progress_ratio",
            "libra_controller_samples",
            "libra_controller_loss",
        ],
    );
    let views = families.iter().find(|family| family.name == "libra_controller_views").unwrap();
    assert_eq!(views.samples, [(Labels::new(), Value::Count(3))]);
}
