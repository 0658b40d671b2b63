//! Documents for tests.

use libra_monitor::{
    Checkpoints, Counts, Gathering, JobDocument, Lost, MemberDocument, Places, Progress, Totals,
};
use libra_proto::{ServerStatistics, StepTimes, SwitchStatistics, TrainingCounts, WorkerStatistics};

fn member(kind: &str, number: u16, counts: Counts) -> MemberDocument {
    MemberDocument {
        member: format!("{kind} {number}"),
        kind: kind.to_owned(),
        state: "active".to_owned(),
        address: ([10, 0, 0, 1], 20_000 + number).into(),
        http: Some(([10, 0, 0, 1], 9_100 + number).into()),
        view: 3,
        regions: 0,
        share: number,
        clock: 0,
        silent_ms: 0.0,
        counts: Some(counts),
    }
}

/// An active worker after so many pushes, of which four fifths of the rows were hot.
pub(crate) fn worker_member(number: u16, pushes: u64) -> MemberDocument {
    let step_us = StepTimes {
        data: 10 * pushes,
        pull: 300 * pushes,
        compute: 500 * pushes,
        push: 150 * pushes,
        clock: 40 * pushes,
    };
    let training = TrainingCounts {
        samples: 256 * pushes,
        samples_planned: 100_000,
        loss: 0.4,
        step_us,
        ..TrainingCounts::default()
    };
    let counts = WorkerStatistics {
        pushes,
        rows: 100 * pushes,
        rows_hot: 80 * pushes,
        packets: 12 * pushes,
        retransmits: pushes / 10,
        round_trip_us: 850,
        training,
        ..Default::default()
    };
    MemberDocument { clock: pushes, ..member("worker", number, Counts::Worker(counts)) }
}

/// An active server after so many updates of rows, half of them hot.
pub(crate) fn server_member(number: u16, row_updates: u64) -> MemberDocument {
    let counts = ServerStatistics {
        row_updates,
        row_updates_hot: row_updates / 2,
        row_reads: 2 * row_updates,
        rounds: row_updates / 50,
        rows: 123_456,
        log_bytes: 5 << 20,
        checkpoint: 7,
        ..Default::default()
    };
    member("server", number, Counts::Server(counts))
}

/// A switch in this state with so many regions.
pub(crate) fn switch_member(number: u16, state: &str, regions: u64) -> MemberDocument {
    let counts = SwitchStatistics { memory_bytes: 12 << 20, ..Default::default() };
    MemberDocument { state: state.to_owned(), regions, ..member("switch", number, Counts::Switch(counts)) }
}

/// One server and all workers are missing.
#[allow(dead_code, reason = "the command line is tested with a real one")]
pub(crate) fn gathering() -> Gathering {
    let places = |there, expected| Places { there, expected };
    Gathering { servers: places(1, 2), switches: places(1, 1), workers: places(0, 2) }
}

/// A running job with these members.
pub(crate) fn job(members: Vec<MemberDocument>) -> JobDocument {
    JobDocument {
        version: libra_monitor::VERSION,
        job: 1,
        phase: "running".to_owned(),
        uptime_seconds: 62.0,
        loop_lag_ms: 0.1,
        view: 3,
        is_settled: true,
        gathering: None,
        work: None,
        progress: Progress {
            samples: 25_000,
            samples_planned: 100_000,
            ratio: Some(0.25),
            loss: Some(0.4321),
        },
        members,
        totals: Totals::default(),
        lost: Lost::default(),
        regions_moved: 0,
        checkpoints: Checkpoints {
            newest: 0,
            age_seconds: None,
            interval_seconds: None,
            written: 0,
            failed: 0,
        },
        tags: "off".to_owned(),
        strangers: 0,
        failure: None,
    }
}
