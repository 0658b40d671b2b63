use libra_monitor::{Counts, JobDocument, MemberDocument};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::model::Model;
use super::super::testing::{gathering, job, server_member, switch_member, worker_member};
use super::*;

/// Pictures as they were reviewed last.
const NARROW: &str = include_str!("80x24.txt");
const WIDE: &str = include_str!("200x60.txt");

/// A switch after so many packets.
fn busy_switch(number: u16, state: &str, regions: u64, packets: u64) -> MemberDocument {
    let mut member = switch_member(number, state, regions);
    if let Some(Counts::Switch(counts)) = &mut member.counts {
        (counts.packets, counts.pushes, counts.pulls) = (packets, packets / 2, packets / 3);
        (counts.rounds, counts.refused, counts.queue_bytes) = (packets / 100, packets / 1_000, 8 << 10);
    }
    member
}

/// A job with so many workers at a second of its life. Worker 1 is away from the second on.
fn job_at(second: u16, workers: u16) -> JobDocument {
    let step = u64::from(second);
    let mut members: Vec<_> =
        (0..workers).map(|number| worker_member(number, step * (200 + 10 * u64::from(number)))).collect();
    if second >= 2 && workers > 1 {
        members[1].state = "away".to_owned();
    }
    members.push(server_member(0, 40_000 * step));
    members.push(server_member(1, 30_000 * step));
    if second < 3 {
        members.push(busy_switch(0, "active", 2, 90_000 * step));
        members.push(busy_switch(1, "standby", 0, 0));
    } else {
        members.push(busy_switch(1, "active", 2, 90_000 * (step - 2)));
    }
    let mut job = job(members);
    job.uptime_seconds = 60.0 + f64::from(second);
    job.progress.samples = 20_000 + 1_000 * step;
    job.progress.ratio = Some(job.progress.samples as f64 / 100_000.0);
    (job.checkpoints.newest, job.checkpoints.age_seconds) = (7, Some(30.0 + f64::from(second)));
    job.checkpoints.interval_seconds = Some(60.0);
    if second >= 3 {
        (job.view, job.lost.switches, job.regions_moved) = (4, 1, 2);
    }
    job
}

fn model_of(workers: u16) -> Model {
    let mut model = Model::default();
    for second in 0..5 {
        model.observe(second.into(), job_at(second, workers));
    }
    model
}

fn draw_model(model: &Model, now: f64, shows_help: bool, width: u16, height: u16) -> String {
    let board = model.board(Order::Number);
    let screen = Screen {
        now,
        controller: "10.0.0.1:9100",
        board: board.as_ref(),
        outage: model.outage(),
        events: model.events().collect(),
        order: Order::Number,
        shows_help,
    };
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(&screen, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn compare(found: &str, reviewed: &str, file: &str) {
    if std::env::var("PICTURES").is_ok_and(|wish| wish == "write") {
        let path = format!("{}/src/top/view/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, found).unwrap();
    } else {
        assert!(
            found == reviewed,
            "the picture is another:\n{found}\nIf that is as it should be: PICTURES=write cargo test -p libra-cli pictures"
        );
    }
}

#[test]
fn pictures_are_those_that_were_reviewed() {
    compare(&draw_model(&model_of(14), 4.5, false, 80, 24), NARROW, "80x24.txt");
    compare(&draw_model(&model_of(14), 4.5, false, 200, 60), WIDE, "200x60.txt");
}

#[test]
fn members_without_room_are_counted() {
    let picture = draw_model(&model_of(40), 4.0, false, 80, 24);
    assert!(picture.contains("all 40") && picture.contains("all 2"), "{picture}");
    let line = picture.lines().find(|line| line.starts_with("and ")).unwrap();
    let hidden: usize = line.split(' ').nth(1).unwrap().parse().unwrap();
    let shown = picture.lines().filter(|line| line.starts_with("worker ")).count();
    assert_eq!(shown + hidden, 40, "{picture}");
    assert!(line.contains("active"), "{line}");
}

#[test]
fn every_size_has_a_picture() {
    let mut model = model_of(40);
    for (width, height) in [(1, 1), (10, 2), (20, 5), (40, 10), (79, 23), (500, 200)] {
        for shows_help in [false, true] {
            let picture = draw_model(&model, 4.0, shows_help, width, height);
            assert_eq!(picture.lines().count(), usize::from(height));
        }
    }
    model.fail(5.0, "gone".to_owned());
    assert!(draw_model(&model, 5.0, false, 80, 3).contains("no answer"));
}

#[test]
fn a_job_that_gathers_tells_who_is_there() {
    let mut model = Model::default();
    let mut job = job(vec![server_member(0, 0), switch_member(0, "joining", 0)]);
    (job.phase, job.gathering) = ("gathering".to_owned(), Some(gathering()));
    (job.progress.ratio, job.progress.loss) = (None, None);
    model.observe(0.0, job);
    let picture = draw_model(&model, 0.0, false, 80, 24);
    let told = "waits for members: 1 of 2 servers, 1 of 1 switches, 0 of 2 workers are there";
    assert!(picture.lines().any(|line| line == told), "{picture}");
}

#[test]
fn an_outage_keeps_the_picture() {
    let mut model = model_of(2);
    model.fail(5.0, "no answer from 10.0.0.1:9100: Connection refused".to_owned());
    let picture = draw_model(&model, 17.0, false, 80, 24);
    let mut lines = picture.lines();
    assert!(lines.next().unwrap().ends_with("10.0.0.1:9100: no answer for 12 s"), "{picture}");
    assert!(lines.next().unwrap().contains("Connection refused"), "{picture}");
    assert!(picture.contains("worker 0") && picture.contains("the controller does not answer"), "{picture}");
}

#[test]
fn the_help_explains_keys_and_columns() {
    let picture = draw_model(&model_of(2), 4.0, true, 80, 24);
    for words in ["q, Esc, Ctrl-C", "round trip", ".data <pull #compute >push =clock", "any key goes back"] {
        assert!(picture.contains(words), "{words:?} is not in\n{picture}");
    }
}

#[test]
fn a_text_has_all_members() {
    let model = model_of(40);
    let board = model.board(Order::Number);
    let screen = Screen {
        now: 4.0,
        controller: "10.0.0.1:9100",
        board: board.as_ref(),
        outage: None,
        events: model.events().collect(),
        order: Order::Number,
        shows_help: false,
    };
    let found = text(&screen, 100);
    assert_eq!(found.lines().filter(|line| line.starts_with("worker ")).count(), 40, "{found}");
    assert!(found.lines().all(|line| line.chars().count() <= 100) && !found.contains("quit"), "{found}");
}

#[test]
fn a_late_checkpoint_and_a_failure_stand_out() {
    let mut model = Model::default();
    let mut late = job_at(0, 1);
    late.checkpoints.age_seconds = Some(121.0);
    (late.checkpoints.failed, late.failure) = (2, Some("server 0 disappeared".to_owned()));
    assert!(is_late(&late.checkpoints));
    model.observe(0.0, late);
    let picture = draw_model(&model, 0.0, false, 80, 24);
    assert!(picture.contains("failed: server 0 disappeared"), "{picture}");
    assert!(picture.contains("checkpoint 7: 02:01 old, every 01:00, 2 failed"), "{picture}");
}

#[test]
fn a_loss_that_is_no_number_is_shown() {
    let (mut model, mut diverged) = (Model::default(), job_at(0, 2));
    diverged.progress.loss = None;
    if let Some(Counts::Worker(counts)) = &mut diverged.members[1].counts {
        counts.training.loss = f64::NAN;
    }
    model.observe(0.0, diverged);
    let picture = draw_model(&model, 0.0, false, 80, 24);
    assert!(picture.contains("loss NaN"), "{picture}");
}

#[test]
fn lines_are_divided_so_that_each_block_tells_something() {
    assert_eq!(heights(100, [10, 4, 4, 20]), [10, 4, 4, 20]);
    assert_eq!(heights(20, [12, 4, 4, 50]), [7, 4, 4, 5]);
    assert_eq!(heights(12, [42, 4, 4, 50]), [3, 3, 3, 3]);
    assert_eq!(heights(5, [42, 4, 4, 50]), [3, 2, 0, 0]);
    assert_eq!(heights(30, [2, 0, 2, 50]), [2, 0, 2, 26]);
    assert_eq!(heights(0, [2, 2, 2, 2]), [0; 4]);
}
