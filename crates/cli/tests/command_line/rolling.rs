//! A restart of every member of a job, one after the other.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{Member, Place, controller, json};

/// Options of a job whose steps wait for the end of a round of 20 ms, so that it lasts for 8 s on any machine, and in which the timing
/// of workers makes no difference to quality.
const JOB: &str =
    "--epochs 6 --batch 128 --sample 1 --factors 4 --log --mode sync --round-ms 20 --pushes-per-round 1000";
/// The bound of a test in a debug build beside others; on an idle machine a worker takes as long as its chunk, others milliseconds.
const EXIT_MAX: Duration = Duration::from_secs(10);
/// The job goes on between two restarts.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks a member to end. The next one is started in its place.
fn end_in_order(member: Member) {
    let begun = Instant::now();
    member.signal("-TERM");
    let (code, last) = member.end();
    assert_eq!(code, Some(75), "{last}");
    assert!(begun.elapsed() < EXIT_MAX, "{:?}: {last}", begun.elapsed());
}

fn samples(report: &Value) -> Vec<u64> {
    report["epochs"].as_array().unwrap().iter().map(|epoch| epoch["samples"].as_u64().unwrap()).collect()
}

#[test]
fn a_rolling_restart_of_all_members_loses_nothing() {
    let place = Place::of(200);
    let [rolled, undisturbed] = ["rolled.json", "undisturbed.json"].map(|name| place.path(name));
    let states = ["server-0", "server-1", "undisturbed"].map(|name| place.path(name));
    let job: Vec<&str> = JOB.split(' ').chain(["--data", &place.data]).collect();
    let more = ["--standby", "1", "--state-dir", &states[2], "--json", &undisturbed];
    let twin = Member::start(&[&["train"], &job[..], &more].concat());

    let job = [&job[..], &["--json", &rolled]].concat();
    let (mut control, address) = controller(&job);
    let start = |arguments: &[&str]| Member::start(&[arguments, &["--controller", &address]].concat());
    let server = |state: &str| start(&["server", "--state-dir", state, "--shards-per-server", "1"]);
    let mut servers: Vec<Member> = states[..2].iter().map(|state| server(state)).collect();
    let mut workers = vec![start(&["worker"]), start(&["worker"])];
    let mut switches = vec![start(&["switch"])];
    control.line_with("training begins");
    workers.iter().for_each(|worker| drop(worker.line_with("the cluster is complete")));
    switches.push(start(&["switch"]));
    control.line_with("switch 1 joined");
    sleep(PAUSE);

    for number in 2..4 {
        end_in_order(workers.remove(0));
        workers.push(start(&["worker"]));
        control.line_with(&format!("worker {number} joined"));
        sleep(PAUSE);
    }
    for state in &states[..2] {
        end_in_order(servers.remove(0));
        control.line_with("is away");
        servers.push(server(state));
        control.line_with("is back after");
        sleep(PAUSE);
    }
    // The first has the regions, and the second is the standby; then the second has them.
    for number in 2..4 {
        end_in_order(switches.remove(0));
        switches.push(start(&["switch"]));
        control.line_with(&format!("switch {number} joined"));
        sleep(PAUSE);
    }
    end_in_order(control);
    control = Member::start(&[&["controller", "--listen", &address], &job[..]].concat());
    control.line_with("took over");

    for member in workers.into_iter().chain(servers).chain(switches).chain([control, twin]) {
        let (code, last) = member.end();
        assert_eq!(code, Some(0), "{last}");
    }
    let [report, undisturbed] = [&rolled, &undisturbed].map(|path| json(path.as_ref()));
    let quality = |report: &Value| report["quality"]["hr10"].as_f64().unwrap();
    let apart = (quality(&report) - quality(&undisturbed)).abs();
    assert!(apart <= 0.01, "{report:#}\n{undisturbed:#}");
    assert!(quality(&undisturbed) > 0.9, "it has learnt nothing: {undisturbed:#}");
    assert_eq!(samples(&report), samples(&undisturbed), "each sample is trained once in each epoch");
    assert_eq!((&report["data"]["repeated"], &report["failover"]["recovered"]), (&0.into(), &true.into()));
    assert!(report["failover"]["lost"].as_array().unwrap().is_empty(), "{report:#}");
}
