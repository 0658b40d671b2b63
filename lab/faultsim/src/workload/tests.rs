//! Reads and operations that a user must refuse.

use libra_proto::Pulled;

use super::*;

const ROWS: Rows = Rows { embedding: (2, 1), dense: (1, 1), hot: 1, scale: 0, headroom_bits: 12, set: None };
const WORKLOAD: Workload = Workload {
    mix: [0, 1, 0, 0, 0],
    rows_max: 1,
    hot_share: 1.0,
    positive: true,
    gradient_max: 0,
    large: 1.0,
    under_way: 1,
    pause: Duration::ZERO,
    barrier_every: 0,
    tick_every: 0,
    in_chunks: false,
    staleness: 0,
    set: None,
};

/// A user who has made 3000 visible in row 0, and pulls it. What comes of reading a value.
fn read(value: f32) -> Result<(), String> {
    let mut account = Account::new(&ROWS);
    let mut user = User::new(3, &ROWS, Random::new(1));
    user.progress = Progress::Working;
    let now = Instant::ZERO;
    let Some(WorkerCommand::Push { number, keys, gradients, level: Level::Visible }) =
        user.next(now, &WORKLOAD, &mut account)
    else {
        panic!("the mix is of such pushes alone")
    };
    assert_eq!((keys, gradients), (vec![0], vec![3000.0]));
    user.handle(now, WorkerEvent::Pushed { number }, &WORKLOAD, &mut account)?;
    let pulls = Workload { mix: [0, 0, 0, 1, 0], ..WORKLOAD };
    let Some(WorkerCommand::Pull { id, keys }) = user.next(now, &pulls, &mut account) else {
        panic!("the mix is of pulls alone")
    };
    let pulled = Pulled { keys, values: vec![value] };
    user.handle(now, WorkerEvent::Pulled(id, pulled), &pulls, &mut account)
}

#[test]
fn a_value_too_old_or_never_pushed_is_noticed() {
    assert_eq!(read(-3000.0), Ok(()));
    assert!(read(-2999.0).unwrap_err().contains("3000 is visible to it"));
    assert!(read(-3001.0).unwrap_err().contains("all have pushed 3000"));
}

#[test]
fn an_operation_that_completes_twice_is_noticed() {
    let mut account = Account::new(&ROWS);
    let mut user = User::new(3, &ROWS, Random::new(1));
    let twice = user.handle(Instant::ZERO, WorkerEvent::Pushed { number: 1 }, &WORKLOAD, &mut account);
    assert!(twice.unwrap_err().contains("completes twice"));
}
