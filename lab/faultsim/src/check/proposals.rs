//! Jobs that workers describe: one that was accepted begins for all that described it.

use std::collections::BTreeMap;

use libra_proto::Cluster;

use super::Verdict;
use crate::process::Actor;

/// Tables that workers have described, as long as the job has not begun.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    of: BTreeMap<Actor, Box<Cluster>>,
    has_begun: bool,
}

impl Proposals {
    /// A worker describes the job; once that has begun it changes nothing.
    pub(super) fn arrives(&mut self, from: Actor, job: &Cluster) {
        if !self.has_begun {
            self.of.insert(from, Box::new(job.clone()));
        }
    }

    /// The controller sends a member the job.
    pub(super) fn begins(&mut self) {
        self.has_begun = true;
    }

    // rule M19
    /// A member starts.
    pub(super) fn check_start(&self, actor: Actor, cluster: &Cluster) -> Verdict {
        let Some(job) = self.of.get(&actor) else { return Ok(()) };
        let described = (&job.tables, &job.plan, job.mode, job.seed);
        if described == (&cluster.tables, &cluster.plan, cluster.mode, cluster.seed) {
            Ok(())
        } else {
            Err(format!("{actor:?} is in a job that is not the one it has described"))
        }
    }
}
