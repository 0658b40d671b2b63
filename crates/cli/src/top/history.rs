//! Counts of members at several moments, and rates from them.
//!
//! Members send their counts twice a second or more often, at moments of their own, and the controller is asked at others. A rate is
//! between two moments at which counts *came*, about [`WINDOW`] apart, so it does not depend on how the two rhythms meet.

use std::collections::{BTreeMap, VecDeque};

use libra_monitor::{Counts, JobDocument, MemberDocument};
use libra_proto::{ServerStatistics, SwitchStatistics, WorkerStatistics};

use super::rates::Rated;

/// Seconds that a rate spans.
const WINDOW: f64 = 2.0;
/// Seconds after which counts that did not change are those of a member that does nothing.
const STILL: f64 = 1.25;
/// Seconds between two counts below which they have no rate.
const SPAN_MIN: f64 = 0.2;

/// Counts of the members of a job in the last seconds.
#[derive(Debug, Default)]
pub(crate) struct History {
    members: BTreeMap<String, VecDeque<Point>>,
    /// Time of the newest document.
    at: f64,
}

/// Counts that came at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    at: f64,
    counts: Counts,
}

impl History {
    /// Takes the counts of a document that was read at a moment. Members that it does not have are forgotten.
    pub(crate) fn observe(&mut self, at: f64, job: &JobDocument) {
        let names: Vec<&str> = job.members.iter().map(|member| member.member.as_str()).collect();
        self.members.retain(|name, _| names.contains(&name.as_str()));
        let earlier = std::mem::replace(&mut self.at, at);
        for member in &job.members {
            self.observe_member(earlier, member);
        }
    }

    fn observe_member(&mut self, earlier: f64, member: &MemberDocument) {
        let Some(counts) = member.counts else { return };
        let points = self.members.entry(member.member.clone()).or_default();
        if points.back().is_some_and(|newest| newest.counts == counts) {
            return;
        }
        if points.back().is_some_and(|newest| has_begun_again(&newest.counts, &counts)) {
            points.clear();
        }
        // They came with its last message at the latest, and after the document before.
        let at = (self.at - member.silent_ms / 1e3).clamp(earlier.min(self.at), self.at);
        points.push_back(Point { at, counts });
        while points.get(1).is_some_and(|second| second.at <= at - WINDOW) {
            points.pop_front();
        }
    }

    /// Returns the rates of a member; none before its counts have changed, or since it began again.
    pub(crate) fn rates<C: Rated>(&self, member: &str) -> Option<C::Rates> {
        let points = self.members.get(member)?;
        let newest = points.back()?;
        let end = if self.at - newest.at > STILL { self.at } else { newest.at };
        let before = points.iter().rev().find(|point| point.at <= end - WINDOW).or_else(|| points.front())?;
        let seconds = end - before.at;
        if seconds < SPAN_MIN {
            return None;
        }
        C::rates(&C::of(&before.counts)?, &C::of(&newest.counts)?, seconds)
    }
}

/// Another process has the place of the one before: its counts begin at 0.
fn has_begun_again(before: &Counts, after: &Counts) -> bool {
    fn fell<C: Rated>(before: &Counts, after: &Counts) -> bool {
        let rates =
            C::of(before).zip(C::of(after)).and_then(|(before, after)| C::rates(&before, &after, 1.0));
        rates.is_none()
    }
    match before {
        Counts::Worker(_) => fell::<WorkerStatistics>(before, after),
        Counts::Switch(_) => fell::<SwitchStatistics>(before, after),
        Counts::Server(_) => fell::<ServerStatistics>(before, after),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{job, server_member, worker_member};
    use super::*;

    fn pushes(history: &History, member: &str) -> Option<f64> {
        history.rates::<WorkerStatistics>(member).map(|rates| rates.pushes)
    }

    /// Looks at a worker that makes 100 pushes a second and tells it at its own moments.
    fn watch(look_every: f64, tell_every: f64, seconds: f64) -> Vec<Option<f64>> {
        let mut history = History::default();
        let mut found = Vec::new();
        for look in 0.. {
            let at = f64::from(look) * look_every;
            if at > seconds {
                return found;
            }
            let told_at = (at / tell_every).floor() * tell_every;
            let mut worker = worker_member(0, libra_launch::report::whole(100.0 * told_at));
            worker.silent_ms = 1e3 * (at - told_at);
            history.observe(at, &job(vec![worker]));
            found.push(pushes(&history, "worker 0"));
        }
        found
    }

    #[test]
    fn rates_do_not_depend_on_the_moments_of_looks() {
        for (look, tell) in [(0.25, 0.5), (0.25, 0.1), (0.3, 0.5), (1.0, 0.5), (0.25, 1.0)] {
            let found = watch(look, tell, 10.0);
            for rate in found.iter().flatten() {
                assert!((95.0..=105.0).contains(rate), "{look} {tell}: {found:?}");
            }
            assert!(found.iter().flatten().count() > found.len() / 2, "{look} {tell}: {found:?}");
        }
    }

    #[test]
    fn a_member_that_stops_has_a_rate_of_zero() {
        let mut history = History::default();
        history.observe(0.0, &job(vec![worker_member(0, 0)]));
        history.observe(1.0, &job(vec![worker_member(0, 100)]));
        assert_eq!(pushes(&history, "worker 0"), Some(100.0));
        history.observe(2.0, &job(vec![worker_member(0, 100)]));
        assert_eq!(pushes(&history, "worker 0"), Some(100.0), "the next counts may be on their way");
        history.observe(2.5, &job(vec![worker_member(0, 100)]));
        assert_eq!(pushes(&history, "worker 0"), Some(40.0));
        history.observe(3.5, &job(vec![worker_member(0, 100)]));
        assert_eq!(pushes(&history, "worker 0"), Some(0.0));
    }

    #[test]
    fn a_replaced_member_begins_without_rates() {
        let mut history = History::default();
        for (at, updates) in [(0.0, 5_000), (1.0, 6_000), (2.0, 10)] {
            history.observe(at, &job(vec![server_member(0, updates)]));
        }
        assert_eq!(history.rates::<ServerStatistics>("server 0"), None);
        history.observe(3.0, &job(vec![server_member(0, 510)]));
        let rates = history.rates::<ServerStatistics>("server 0").expect("two counts of the same process");
        assert_eq!(rates.row_updates, 500.0);
    }

    #[test]
    fn members_come_and_go() {
        let mut history = History::default();
        history.observe(0.0, &job(vec![worker_member(0, 0)]));
        history.observe(1.0, &job(vec![worker_member(0, 10), worker_member(1, 7)]));
        assert_eq!((pushes(&history, "worker 0"), pushes(&history, "worker 1")), (Some(10.0), None));
        history.observe(2.0, &job(vec![worker_member(1, 27)]));
        assert_eq!((pushes(&history, "worker 0"), pushes(&history, "worker 1")), (None, Some(20.0)));
        assert_eq!(history.members.len(), 1);
    }

    #[test]
    fn only_what_rates_need_is_kept() {
        let mut history = History::default();
        for look in 0..1_000_u32 {
            history.observe(f64::from(look) / 4.0, &job(vec![worker_member(0, look.into())]));
        }
        assert!(history.members["worker 0"].len() < 12, "{}", history.members["worker 0"].len());
    }
}
