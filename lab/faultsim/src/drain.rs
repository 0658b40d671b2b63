//! End of a scenario: all workers come to the last barrier, read every row and report, and all is compared.

use std::collections::BTreeMap;

use libra_proto::{Outcome, Peer};

use crate::check::FinalState;
use crate::network::Host;
use crate::runner::{Kind, LIVENESS_BOUND, ScenarioRunner};
use crate::workload::{Progress, User};

/// Messages under way in one direction of one stream, at most.
const STREAM_QUEUE_MAX: usize = 4096;

impl ScenarioRunner {
    /// All users go on to the end: what can be done next is done.
    pub(crate) fn drain(&mut self) {
        let is_worker = |host: &Host| self.kinds[*host] == Kind::Worker;
        let living = || self.users.values().filter(|user| user.is_there());
        let ended = living().all(|user| user.progress >= Progress::Ended);
        // A worker that was given up may still push.
        let strays = (0..self.kinds.len())
            .filter(is_worker)
            .any(|host| self.world.is_alive(host) && !self.users.get(&host).is_some_and(User::is_there));
        // A job that ends waits for no round that only dead workers have pushed to.
        let applied = || self.world.observer.taken_and_unapplied().is_none();
        if ended && !strays && self.all_act_on_one_view() && applied() {
            let waiting: Vec<Host> =
                living().filter(|user| user.progress == Progress::Ended).map(|user| user.host).collect();
            for host in waiting {
                if let Some(user) = self.users.get_mut(&host) {
                    user.progress = Progress::Reading;
                }
                self.let_user_act(host);
            }
        }
        let hosts: Vec<Host> = self.users.keys().copied().collect();
        hosts.into_iter().for_each(|host| self.let_user_act(host));
    }

    /// True if every member that runs acts on the newest view.
    fn all_act_on_one_view(&self) -> bool {
        let roster = &self.world.observer.roster;
        let Some(newest) = roster.newest() else { return true };
        (0..self.kinds.len()).filter_map(|host| self.world.actor(host)).all(|actor| {
            let is_member = match roster.peer(actor) {
                Some(Peer::Server(_)) => true,
                Some(Peer::Switch(switch)) => newest.switches.contains_key(&switch),
                Some(Peer::Worker(worker)) => newest.workers.contains_key(&worker),
                Some(Peer::Controller) | None => false,
            };
            !is_member || roster.acts_on(actor) == Some(newest.number)
        })
    }

    /// Everything should be at its end by now.
    pub(crate) fn check_end(&mut self) {
        if self.scenario.is_unprotected {
            self.finished = true;
            return;
        }
        let stages: Vec<(Host, u16, Progress)> =
            self.users.values().map(|user| (user.host, user.worker, user.progress)).collect();
        for user in self.users.values() {
            if let Some((number, at)) = user.oldest() {
                let text = format!(
                    "operation {number} of worker {}, begun at {at}, is not done {LIVENESS_BOUND:?} after the last fault",
                    user.worker
                );
                return self.violate("liveness", text);
            }
        }
        let agreed = self.all_act_on_one_view();
        let unapplied = self.world.observer.taken_and_unapplied();
        let text = format!(
            "the job does not end; all act on one view: {agreed}; not applied: {unapplied:?}; users: {stages:?}"
        );
        self.violate("liveness", text);
    }

    /// The controller reports that the job is done: everything is compared.
    pub(crate) fn end(&mut self, outcome: &Outcome) {
        self.finished = true;
        if let Err(text) = self.check_work(outcome) {
            return self.violate("work", text);
        }
        let mut live = BTreeMap::new();
        let mut gone = BTreeMap::new();
        let mut read = None;
        for user in self.users.values().chain(&self.departed) {
            if let Some(values) = &user.read {
                if read.as_ref().is_some_and(|other| other != values) {
                    let text = format!("worker {} reads other values in the end than another", user.worker);
                    return self.violate("final_state", text);
                }
                read = Some(values.clone());
                live.insert(user.worker, user.pushed.clone());
            } else if user.pushed.0.iter().any(|sum| *sum != 0.0) {
                gone.insert(user.worker, (user.visible.clone(), user.pushed.clone()));
            }
        }
        if self.quiesced_at.is_none() {
            return self.violate("liveness", "the job is done before any worker has reported".to_owned());
        }
        let Some(read) = read else {
            return self.violate("liveness", "the job is done, and no worker has read the rows".to_owned());
        };
        if self.world.counts().stream_queue_max > STREAM_QUEUE_MAX {
            let text = format!("{} messages waited in one stream", self.world.counts().stream_queue_max);
            return self.violate("memory", text);
        }
        let rows = self.scenario.rows.clone();
        let positive = self.scenario.workload.positive;
        let final_state = FinalState { rows: &rows, live: &live, gone: &gone, positive, read: &read };
        if let Err(text) = self.world.observer.final_state(&final_state) {
            self.violate("final_state", text);
        }
    }
}
