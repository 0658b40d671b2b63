//! A controller that answers before it knows its job (rule M20): its user may still read the data, and members of a cluster whose
//! controller is gone cannot wait for that.

use super::{Controller, ControllerEvent, Phase, Sizes};
use crate::admission::TO_CONTROLLER_BYTES_MAX;
use crate::cluster::{Cluster, HotPath, View};
use crate::message::Join;
use crate::role::{Action, Link};
use crate::time::Instant;

/// Callers that came to begin the job, in their order.
pub(super) type Held = Vec<(Link, Join)>;

impl Controller {
    /// A controller whose user [describes](super::ControllerCommand::Describe) the job later. `cluster` has what does not depend on it: the
    /// instance of the job, its secret and the kind of its tags.
    pub fn awaiting_job(cluster: Cluster) -> Self {
        let nothing = Sizes { servers: 0, switches: 0, workers: 0 };
        Self { held: Some(Held::new()), ..Self::new(nothing, cluster) }
    }

    /// Keeps a caller until there is a job. Returns false if there is one.
    pub(super) fn holds(&mut self, link: Link, join: &Join) -> bool {
        let Some(held) = self.held.as_mut().filter(|_| self.phase == Phase::Gathering) else { return false };
        held.push((link, join.clone()));
        // A driver closes the streams of callers that are not admitted in time, as those of strangers.
        let message_bytes_max = TO_CONTROLLER_BYTES_MAX;
        self.actions.push_back(Action::Admit { link, message_bytes_max });
        true
    }

    /// Returns true if a caller waits for the job. What it sends until then, its counts, is of no use.
    pub(super) fn is_held(&self, link: Link) -> bool {
        self.held.iter().flatten().any(|(held, _)| *held == link)
    }

    /// The user has described the job. One that has taken over a cluster has its job already.
    pub(super) fn describe(&mut self, now: Instant, sizes: Sizes, job: Cluster) {
        let Some(held) = self.held.take().filter(|_| self.phase == Phase::Gathering) else { return };
        let known = &self.cluster;
        let cluster = Cluster {
            job: known.job,
            instance: known.instance,
            secret: known.secret.clone(),
            hot_path: HotPath { tags: known.hot_path.tags, ..job.hot_path },
            shares: sizes.workers.max(job.shares),
            view: View { servers: Self::unknown_servers(sizes), ..View::default() },
            ..job
        };
        (self.sizes, self.barrier, self.cluster) = (sizes, cluster.first_phase(), cluster);
        for (link, join) in held {
            self.handle_join(now, link, &join);
        }
    }

    /// A cluster is taken over: callers that came to begin another job come again (rule M9).
    pub(super) fn let_held_go(&mut self) {
        let Some(held) = self.held.take() else { return };
        held.into_iter().for_each(|(link, _)| self.hang_up(link));
        self.events.push_back(ControllerEvent::TakesOver);
    }

    /// There will be no job.
    pub(super) fn refuse_held(&mut self, reason: &str) {
        for (link, _) in self.held.take().into_iter().flatten() {
            self.refuse(link, reason);
        }
    }
}
