//! Events of a job, as they follow from one status and the next.

use std::collections::{BTreeMap, VecDeque};

use libra_monitor::{Checkpoints, JobDocument, Lost};

/// Events that are kept.
const EVENTS_MAX: usize = 100;
/// State between two views; what follows it matters.
const ENTERING: &str = "entering";

/// Something that happened, and when it was seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) at: f64,
    pub(crate) text: String,
}

/// The newest events of a job.
#[derive(Debug, Default)]
pub(crate) struct Events {
    events: VecDeque<Event>,
    /// Events since the job is watched.
    count: u64,
    last: Option<Last>,
}

/// State before, to which events are differences.
#[derive(Debug)]
struct Last {
    job: u16,
    phase: String,
    view: u64,
    uptime_seconds: f64,
    lost: Lost,
    regions_moved: u64,
    checkpoints: Checkpoints,
    failure: Option<String>,
    /// State and regions of each member, in the last view that it acted on.
    members: BTreeMap<String, (String, u64)>,
}

impl Events {
    /// Takes the status of a moment.
    pub(crate) fn observe(&mut self, at: f64, job: &JobDocument) {
        let last = self.last.take();
        let members = settled(last.as_ref(), job);
        if let Some(last) = last {
            for text in between(&last, job, &members) {
                self.push(at, text);
            }
        }
        self.last = Some(Last {
            job: job.job,
            phase: job.phase.clone(),
            view: job.view,
            uptime_seconds: job.uptime_seconds,
            lost: job.lost,
            regions_moved: job.regions_moved,
            checkpoints: job.checkpoints,
            failure: job.failure.clone(),
            members,
        });
    }

    /// Adds an event that no status tells.
    pub(crate) fn push(&mut self, at: f64, text: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_back();
        }
        self.events.push_front(Event { at, text });
        self.count += 1;
    }

    /// Returns the newest, newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Returns the number of events since the job is watched.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Members with their states and regions; one that enters a view has still those before it.
fn settled(last: Option<&Last>, job: &JobDocument) -> BTreeMap<String, (String, u64)> {
    let of_member = |member: &libra_monitor::MemberDocument| {
        let before = last.and_then(|last| last.members.get(&member.member));
        let now = || (member.state.clone(), member.regions);
        let state = if member.state == ENTERING { before.cloned().unwrap_or_else(now) } else { now() };
        (member.member.clone(), state)
    };
    job.members.iter().map(of_member).collect()
}

fn between(last: &Last, job: &JobDocument, members: &BTreeMap<String, (String, u64)>) -> Vec<String> {
    let mut events = Vec::new();
    // A controller that takes over counts from the start.
    let is_other = job.uptime_seconds < last.uptime_seconds || job.job != last.job;
    if is_other {
        events.push("another controller answers".to_owned());
    }
    gone(last, job, members, is_other, &mut events);
    changed(last, members, &mut events);
    if job.phase != last.phase {
        events.push(format!("phase: {} -> {}", last.phase, job.phase));
    }
    if job.view != last.view {
        events.push(format!("view: {} -> {}", last.view, job.view));
    }
    if let Some(failure) = job.failure.as_ref().filter(|failure| last.failure.as_ref() != Some(failure)) {
        events.push(format!("the job has failed: {failure}"));
    }
    if is_other {
        return events;
    }
    match job.regions_moved.saturating_sub(last.regions_moved) {
        0 => {}
        1 => events.push("1 region has moved".to_owned()),
        moved => events.push(format!("{moved} regions have moved")),
    }
    if job.checkpoints.newest != last.checkpoints.newest {
        events.push(format!("checkpoint {} is written", job.checkpoints.newest));
    }
    if job.checkpoints.failed > last.checkpoints.failed {
        events.push("a checkpoint has failed".to_owned());
    }
    events
}

/// Members that are not there any more: given up, or gone in order.
fn gone(
    last: &Last,
    job: &JobDocument,
    members: &BTreeMap<String, (String, u64)>,
    is_other: bool,
    events: &mut Vec<String>,
) {
    for (name, (state, _)) in &last.members {
        if members.contains_key(name) {
            continue;
        }
        let (now, before) = match name.split(' ').next() {
            Some("server") => (job.lost.servers, last.lost.servers),
            Some("switch") => (job.lost.switches, last.lost.switches),
            _ => (job.lost.workers, last.lost.workers),
        };
        let is_lost = !is_other && now > before && !matches!(state.as_str(), "leaving" | "done");
        events.push(format!("{name}: {state} -> {}", if is_lost { "lost" } else { "gone" }));
    }
}

/// Members that are new, or in another state.
fn changed(last: &Last, members: &BTreeMap<String, (String, u64)>, events: &mut Vec<String>) {
    for (name, (state, regions)) in members {
        match last.members.get(name) {
            None => events.push(format!("{name}: new, {state}")),
            Some((before, _)) if before != state => events.push(format!("{name}: {before} -> {state}")),
            Some((_, before)) if before != regions && last.phase == "running" => {
                events.push(format!("{name}: {before} -> {regions} regions"));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{job, switch_member, worker_member};
    use super::*;

    /// The events between jobs, oldest first.
    fn events(jobs: &[JobDocument]) -> Vec<String> {
        let mut events = Events::default();
        for (at, job) in (0..).zip(jobs) {
            events.observe(f64::from(at), job);
        }
        let mut texts: Vec<_> = events.newest().map(|event| event.text.clone()).collect();
        texts.reverse();
        texts
    }

    #[test]
    fn a_killed_switch_and_its_take_over_are_events() {
        let before = job(vec![switch_member(0, "active", 2), switch_member(1, "standby", 0)]);
        let mut between = job(vec![switch_member(1, "entering", 2)]);
        (between.view, between.lost.switches, between.is_settled) = (4, 1, false);
        let mut after = job(vec![switch_member(1, "active", 2)]);
        (after.view, after.lost.switches, after.regions_moved) = (4, 1, 2);
        let found = events(&[before.clone(), between, after]);
        let expected = [
            "switch 0: active -> lost",
            "view: 3 -> 4",
            "switch 1: standby -> active",
            "2 regions have moved",
        ];
        assert_eq!(found, expected);
        assert_eq!(events(&[before.clone(), before]), [""; 0]);
    }

    #[test]
    fn a_member_that_leaves_in_order_is_gone_and_not_lost() {
        let worker = |state: &str| {
            let mut worker = worker_member(1, 10);
            worker.state = state.to_owned();
            worker
        };
        let mut after = job(vec![]);
        after.lost.workers = 1;
        let found = events(&[job(vec![]), job(vec![worker("joining")]), job(vec![worker("leaving")]), after]);
        let expected =
            ["worker 1: new, joining", "worker 1: joining -> leaving", "worker 1: leaving -> gone"];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_view_that_changes_nothing_of_a_member_is_one_event() {
        let mut entering = job(vec![worker_member(0, 1)]);
        entering.members[0].state = "entering".to_owned();
        entering.view = 4;
        let mut after = job(vec![worker_member(0, 2)]);
        after.view = 4;
        assert_eq!(events(&[job(vec![worker_member(0, 1)]), entering, after]), ["view: 3 -> 4"]);
    }

    #[test]
    fn counts_of_another_controller_are_no_events() {
        let mut before = job(vec![]);
        (before.uptime_seconds, before.regions_moved, before.checkpoints.newest) = (100.0, 5, 7);
        let mut after = job(vec![]);
        (after.uptime_seconds, after.phase) = (0.5, "recovering".to_owned());
        assert_eq!(events(&[before, after]), ["another controller answers", "phase: running -> recovering"]);
    }

    #[test]
    fn checkpoints_and_failures_are_events() {
        let mut after = job(vec![]);
        (after.checkpoints.newest, after.checkpoints.failed) = (3, 1);
        after.failure = Some("the disk is full".to_owned());
        let found = events(&[job(vec![]), after]);
        assert_eq!(
            found,
            ["the job has failed: the disk is full", "checkpoint 3 is written", "a checkpoint has failed"]
        );
    }

    #[test]
    fn the_number_of_events_is_bounded() {
        let mut events = Events::default();
        for number in 0..250 {
            events.push(0.0, number.to_string());
        }
        assert_eq!((events.newest().count(), events.count()), (EVENTS_MAX, 250));
        assert_eq!(events.newest().next().map(|event| event.text.as_str()), Some("249"));
    }
}
