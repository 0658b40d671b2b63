//! `conformance/auth_model.py`: the tags of the vectors, computed in another language.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output};

use libra_conformance::{Exchange, Sender, Step, Target as _, WorkerName, folder};
use libra_dataplane::{Direction, HEADER_BYTES};

use crate::auth::mac;
use crate::pipeline::PipelineTarget;
use crate::scene::{AFTER, FIXED, JOB, push};

/// Runs the model on files. `None`, and a line that says so, without a Python.
fn model(files: &[impl AsRef<OsStr>]) -> Option<Output> {
    let model = Command::new("python3").arg(folder().join("auth_model.py")).args(files).output();
    let skipped = |error| {
        // Seen though the test passes, which hides what is printed.
        let line = format!("\nSKIPPED: python3 cannot be started, so no tag was computed twice: {error}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    };
    model.map_err(skipped).ok()
}

/// Number of tags that it has checked.
fn checked(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stdout);
    let tags = text.lines().map(|line| line.strip_suffix(" tags").unwrap().rsplit_once(' ').unwrap().1);
    tags.map(|tags| tags.parse::<usize>().unwrap()).sum()
}

// rules A2, A3, A4
#[test]
fn a_model_in_python_computes_the_same_tags() {
    let names = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let has_keys = |name: &String| name.contains("auth-") && name.ends_with(".txt");
    let files: Vec<_> = names.map(|path| path.display().to_string()).filter(has_keys).collect();
    let Some(output) = model(&files) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(files.len() >= 14 && checked(&output) > 2000, "{} tags of {files:?}", checked(&output));
}

/// A vector of pushes in a burst, with each acknowledgement that came back behind one of them.
fn burst() -> String {
    let (name, key) = (WorkerName { job: JOB, worker: 0 }, mac(0));
    let mut target = PipelineTarget::new();
    target.set_worker(name, "10.7.0.2:5000".parse().unwrap()).unwrap();
    target.set_key(name, &key).unwrap();
    target.open(&FIXED, AFTER, &[]).unwrap();
    let signed = |seq| {
        let mut push = push(0, seq, &[(1, 1)]);
        key.tags().sign(Direction::Up, &mut push, FIXED.view);
        push
    };
    let datagrams: Vec<_> = (0..60).filter(|seq| seq % 7 != 2).map(signed).collect();
    let answers = target.receive_burst(Sender::Worker(name), &datagrams).unwrap();
    assert!(answers[0].len() > HEADER_BYTES, "several of them in one");
    let steps = [Step::Key(name, key), Step::Open { config: FIXED, after: AFTER, seen: vec![] }];
    let answered = datagrams.into_iter().zip(answers).map(|(datagram, answer)| {
        Step::Exchange(Exchange { from: Sender::Worker(name), times: 1, datagram, answer: Some(answer) })
    });
    steps.into_iter().chain(answered).fold("conformance 1\n".to_owned(), |mut text, step| {
        writeln!(text, "{step}").unwrap();
        text
    })
}

// rules W8, A2
#[test]
fn acks_of_several_packets_have_a_tag_over_their_ranges() {
    let file = std::env::temp_dir().join(format!("libra-acks-{}.txt", std::process::id()));
    let text = burst();
    std::fs::write(&file, &text).unwrap();
    let right = model(&[&file]);
    // Of the last answer the last range names another packet.
    let mut wrong = text.trim_end().to_owned();
    let last = wrong.pop().unwrap();
    wrong.push(if last == '0' { '1' } else { '0' });
    std::fs::write(&file, wrong).unwrap();
    let wrong = model(&[&file]);
    std::fs::remove_file(&file).unwrap();
    let (Some(right), Some(wrong)) = (right, wrong) else { return };
    assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
    assert_eq!(checked(&right), 2);
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("the tag should be"));
}
