use std::fs;
use std::sync::Mutex;

use serde_json::Value;

use super::*;

fn watched() -> Watched {
    Watched::Members(Inspector::new(None))
}

/// The lines of a file, as JSON.
fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn each_line_has_time_event_role_and_member() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    fs::write(&path, "{\"event\":\"before\"}\n").unwrap();
    let to = path.to_str().unwrap().parse().unwrap();
    let log = EventFile::start(&to, "switch", watched(), |_| ()).unwrap();
    log.sender().send(Some(Peer::Switch(3)), Event::MemberStarted);
    log.sender().send(None, Event::MemberFailed { reason: "a \"quoted\"\nreason".to_owned() });
    drop(log);
    let lines = lines(&path);
    assert_eq!(lines.len(), 3, "lines of before stay: {lines:?}");
    assert_eq!((&lines[1]["event"], &lines[1]["role"]), (&"member_started".into(), &"switch".into()));
    assert_eq!((&lines[1]["member"], &lines[2]["member"]), (&"switch 3".into(), &Value::Null));
    assert_eq!(lines[2]["reason"], "a \"quoted\"\nreason");
    let time = lines[1]["time"].as_str().unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{time}");
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let to = EventsTo::File("/no/such/directory/events".into());
    let error = EventFile::start(&to, "worker", watched(), |_| ()).unwrap_err();
    assert!(error.to_string().contains("/no/such/directory/events"), "{error}");
}

#[test]
fn a_full_disk_is_told_once_and_its_lines_are_counted() {
    // A device on which each write fails for want of room.
    let to = EventsTo::File("/dev/full".into());
    let told = Arc::<Mutex<Vec<String>>>::default();
    let heard = Arc::clone(&told);
    let log =
        EventFile::start(&to, "worker", watched(), move |line| heard.lock().unwrap().push(line.to_owned()));
    let log = log.unwrap();
    (0..10).for_each(|_| log.sender().send(None, Event::MemberStarted));
    drop(log);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("No space left"), "{told:?}");
}

#[test]
fn lines_that_were_lost_are_counted_before_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let told = Arc::<Mutex<Vec<String>>>::default();
    let heard = Arc::clone(&told);
    let to = EventsTo::File(path.clone());
    let mut writer = Writer::open(&to, move |line| heard.lock().unwrap().push(line.to_owned())).unwrap();
    let lost = AtomicU64::new(5);
    let line = Line { member: None, event: Event::LogResumed, time: jiff::Timestamp::now() };
    writer.write("server", &line, &lost);
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    let lines = lines(&path);
    assert_eq!((&lines[0]["event"], &lines[0]["count"]), (&"lines_lost".into(), &5.into()));
    assert_eq!(lines[1]["event"], "log_resumed");
}
