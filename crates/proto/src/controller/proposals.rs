//! Jobs that workers describe, for a controller that is started without tables (rule M19).

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_store::Store;

use super::{Controller, Phase, Sizes};
use crate::cluster::{Cluster, Peer};
use crate::message::Kind;
use crate::time::Instant;
use crate::work::{Work, WorkDone};

/// Origin of the tables of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Description {
    /// It has the tables.
    #[default]
    Own,
    /// It waits for a worker that describes the job.
    Awaited,
    /// This member has described it.
    Of(Peer),
}

impl Controller {
    /// The same, for a job whose tables, plan, mode and seed the workers bring.
    #[must_use]
    pub fn with_tables_of_workers(mut self) -> Self {
        self.description = Description::Awaited;
        self
    }

    /// Returns true if the tables are those of its workers.
    pub(super) fn takes_tables(&self) -> bool {
        self.description != Description::Own
    }

    /// Returns true if it has no tables yet.
    pub(super) fn awaits_tables(&self) -> bool {
        self.description == Description::Awaited
    }

    /// Returns true if the job cannot begin because not all workers have described it.
    pub(super) fn awaits_proposals(&self) -> bool {
        self.members.keys().any(|peer| self.lacks_proposal(*peer))
    }

    /// Returns true if a worker must still describe the job.
    pub(super) fn lacks_proposal(&self, peer: Peer) -> bool {
        let is_asked =
            self.takes_tables() && self.phase == Phase::Gathering && matches!(peer, Peer::Worker(_));
        is_asked && self.members.get(&peer).is_some_and(|member| !member.has_proposed)
    }

    /// A worker describes the job: the first one decides, and all others must agree with it.
    pub(super) fn handle_proposal(&mut self, now: Instant, peer: Peer, job: Cluster) {
        if self.phase != Phase::Gathering || !self.takes_tables() {
            return;
        }
        let refusal = match self.description {
            Description::Of(other) if other != peer && is_enabled(Mutant::OtherProposalAccepted) => None,
            Description::Of(other) if other != peer => difference(&self.cluster, &job)
                .map(|difference| format!("{peer} has another job than {other}: {difference}")),
            _ => self.adopt(peer, job).err(),
        };
        if let Some(member) = self.members.get_mut(&peer) {
            member.has_proposed = refusal.is_none();
        }
        match refusal {
            Some(reason) => self.refuse_worker(peer, &reason),
            None if self.awaits_proposals() => {}
            None if self.missing() == (Sizes { servers: 0, switches: 0, workers: 0 }) => self.begin(now),
            None => {}
        }
    }

    /// A worker is there, and has not described the job.
    pub(super) fn refuse_without_proposal(&mut self, peer: Peer) {
        self.refuse_worker(
            peer,
            "the controller takes the tables of the job from its workers (--tables workers), and this one brings none",
        );
    }

    fn refuse_worker(&mut self, peer: Peer, reason: &str) {
        let link = self.members.remove(&peer).and_then(|member| member.link);
        link.into_iter().for_each(|link| self.refuse(link, reason));
    }

    fn adopt(&mut self, peer: Peer, job: Cluster) -> Result<(), String> {
        let Cluster { tables, plan, mode, seed, task, work, cold_path, hot_path, .. } = job;
        let work = match self.cluster.durability.resumed() {
            Some(_) => Some(self.resumed_work(&task, seed, work)?),
            None => work.map(|work| Work { done: WorkDone::default(), ..work }),
        };
        let mut cluster = Cluster { tables, plan, mode, seed, task, work, cold_path, ..self.cluster.clone() };
        cluster.hot_path.round_time_max = hot_path.round_time_max;
        if cluster.tables.is_empty() {
            return Err("a job needs at least one table".to_owned());
        }
        Store::new(cluster.tables.clone(), seed).map_err(|error| error.to_string())?;
        cluster.check()?;
        if cluster.takes_phases() {
            return Err("its work is open, and the controller knows no phases of it".to_owned());
        }
        let switches = self.sizes.switches;
        if switches > 0 && cluster.plan.as_ref().is_none_or(|plan| plan.rows.is_empty()) {
            return Err(format!(
                "the controller waits for {switches} switches, and the workers have no plan of hot rows: give them one, or start the \
                 controller with --switches 0"
            ));
        }
        self.cluster = cluster;
        self.description = Description::Of(peer);
        Ok(())
    }

    /// Returns the work of a job that resumes, as its workers describe it: the part that was done is that of the run before (rule K8).
    fn resumed_work(&self, task: &str, seed: u64, work: Option<Work>) -> Result<Work, String> {
        let before = &self.cluster;
        let Some(work_before) = &before.work else {
            return Err("the checkpoint that the controller resumes at has no position".to_owned());
        };
        let Some(work) = work else {
            return Err(format!(
                "the controller resumes a job that had {}, and this worker has no samples that are dealt in chunks",
                before.task
            ));
        };
        if before.task != task {
            return Err(format!(
                "the job that the controller resumes had {}, this worker has {task}",
                before.task
            ));
        }
        if before.seed != seed {
            return Err(format!(
                "the job that the controller resumes had the seed {}, not {seed}",
                before.seed
            ));
        }
        // It may have more phases than before, or fewer.
        let (done, phase) = (work_before.done.clone(), work_before.done.phase);
        let added = &before.view.added;
        let (was, is) = (work_before.chunks(added, phase), work.chunks(added, phase));
        if was != is && phase < work_before.phases.min(work.phases) {
            return Err(format!(
                "phase {phase} of the job that the controller resumes had {was} chunks, not {is}"
            ));
        }
        Ok(Work { phases: work.phases.max(phase), done, ..work })
    }

    /// A member has gone before the job began. Without the worker that described it, the others describe it again when they come back.
    pub(super) fn forget_proposal_of(&mut self, peer: Peer) {
        if self.description != Description::Of(peer) {
            return;
        }
        self.description = Description::Awaited;
        let workers: Vec<Peer> = self.of_kind(Kind::Worker).map(|(peer, _)| peer).collect();
        for worker in workers {
            let link = self.members.remove(&worker).and_then(|member| member.link);
            link.into_iter().for_each(|link| self.hang_up(link));
        }
    }
}

/// Returns the first difference between the descriptions of a job.
fn difference(job: &Cluster, other: &Cluster) -> Option<String> {
    if job.mode != other.mode {
        return Some(format!("the mode {}, not {}", other.mode, job.mode));
    }
    if job.seed != other.seed {
        return Some(format!("the seed {}, not {}", other.seed, job.seed));
    }
    let is_dealt_alike = match (&job.work, &other.work) {
        (Some(work), Some(other)) => work.is_dealt_as(other),
        (work, other) => work == other,
    };
    if !is_dealt_alike {
        return Some("its work is dealt in other chunks".to_owned());
    }
    let mut pairs = job.tables.iter().zip(&other.tables);
    if let Some((table, _)) = pairs.find(|(table, other)| table != other) {
        return Some(format!("table {:?} is not the same", table.name));
    }
    if job.tables.len() != other.tables.len() {
        return Some(format!("{} tables, not {}", other.tables.len(), job.tables.len()));
    }
    (job.plan != other.plan).then(|| "its plan of hot rows is not the same".to_owned())
}
