//! Model of what `libra top` shows: it takes documents and failures to read one, and returns a board. It reads no clock.

use std::cmp::Ordering;
use std::collections::VecDeque;

use libra_monitor::{Checkpoints, Gathering, JobDocument, Lost, MemberDocument};
use libra_proto::{ServerStatistics, SwitchStatistics, WorkerStatistics};
use serde::Serialize;

use super::events::{Event, Events};
use super::history::History;
use super::rates::{Rated, ServerRates, SwitchRates, WorkerRates};

/// Seconds over which the pace of the training is measured: there are pauses in it, such as evaluations.
const PACE_WINDOW: f64 = 30.0;

/// Model of a job that is watched. Moments are seconds since that began.
#[derive(Debug, Default)]
pub(crate) struct Model {
    history: History,
    events: Events,
    /// The newest document, and when it was read.
    newest: Option<(f64, JobDocument)>,
    /// Since when there is none, and the reason.
    outage: Option<Outage>,
    /// Samples at several moments.
    pace: VecDeque<(f64, u64)>,
}

/// A time in which the controller does not answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outage {
    pub(crate) since: f64,
    pub(crate) reason: String,
}

/// Order of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    /// By their numbers.
    #[default]
    Number,
    /// The busiest first.
    Activity,
}

/// The picture of a job at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Board {
    pub(crate) job: u16,
    pub(crate) phase: String,
    pub(crate) uptime_seconds: f64,
    pub(crate) view: u64,
    pub(crate) is_settled: bool,
    pub(crate) gathering: Option<Gathering>,
    pub(crate) progress: ProgressRow,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) lost: Lost,
    pub(crate) regions_moved: u64,
    pub(crate) tags: String,
    pub(crate) failure: Option<String>,
    pub(crate) workers: Vec<Row<WorkerStatistics>>,
    pub(crate) switches: Vec<Row<SwitchStatistics>>,
    pub(crate) servers: Vec<Row<ServerStatistics>>,
}

/// Progress of the training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ProgressRow {
    pub(crate) samples: u64,
    pub(crate) samples_planned: u64,
    pub(crate) ratio: Option<f64>,
    pub(crate) loss: Option<f64>,
    pub(crate) seconds_left: Option<f64>,
}

/// A member with its rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(bound(serialize = "C: Serialize, C::Rates: Serialize"))]
pub(crate) struct Row<C: Rated> {
    pub(crate) member: MemberColumns,
    pub(crate) counts: Option<C>,
    pub(crate) rates: Option<C::Rates>,
}

/// Properties of members of all kinds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct MemberColumns {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) address: String,
    pub(crate) http: Option<String>,
    pub(crate) view: u64,
    pub(crate) regions: u64,
    pub(crate) share: u16,
    pub(crate) clock: u64,
    pub(crate) silent_ms: f64,
}

impl Model {
    /// Takes a document that was read at a moment.
    pub(crate) fn observe(&mut self, at: f64, job: JobDocument) {
        if let Some(outage) = self.outage.take() {
            self.events.push(at, format!("the controller answers again, after {:.1} s", at - outage.since));
        }
        self.history.observe(at, &job);
        self.events.observe(at, &job);
        let samples = job.progress.samples;
        if self.pace.back().is_some_and(|(_, before)| samples < *before) {
            self.pace.clear();
        }
        self.pace.push_back((at, samples));
        while self.pace.get(1).is_some_and(|(second, _)| *second <= at - PACE_WINDOW) {
            self.pace.pop_front();
        }
        self.newest = Some((at, job));
    }

    /// Takes the failure to read a document.
    pub(crate) fn fail(&mut self, at: f64, reason: String) {
        match &mut self.outage {
            Some(outage) => outage.reason = reason,
            None => {
                self.events.push(at, "the controller does not answer".to_owned());
                self.outage = Some(Outage { since: at, reason });
            }
        }
    }

    /// Returns the time since when the controller does not answer; none while it does.
    pub(crate) fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Returns the newest events, newest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.newest()
    }

    /// Returns the number of events since the job is watched.
    pub(crate) fn event_count(&self) -> u64 {
        self.events.count()
    }

    /// Returns the job as it was last seen; none before it was.
    pub(crate) fn board(&self, order: Order) -> Option<Board> {
        let (_, job) = self.newest.as_ref()?;
        let progress = job.progress;
        Some(Board {
            job: job.job,
            phase: job.phase.clone(),
            uptime_seconds: job.uptime_seconds,
            view: job.view,
            is_settled: job.is_settled,
            gathering: job.gathering,
            progress: ProgressRow {
                samples: progress.samples,
                samples_planned: progress.samples_planned,
                ratio: progress.ratio,
                loss: progress.loss,
                seconds_left: self.seconds_left(progress.samples_planned),
            },
            checkpoints: job.checkpoints,
            lost: job.lost,
            regions_moved: job.regions_moved,
            tags: job.tags.clone(),
            failure: job.failure.clone(),
            workers: self.rows(job, "worker", order, |rates: &WorkerRates| rates.rows + rates.samples),
            switches: self.rows(job, "switch", order, |rates: &SwitchRates| rates.packets),
            servers: self
                .rows(job, "server", order, |rates: &ServerRates| rates.row_updates + rates.row_reads),
        })
    }

    fn seconds_left(&self, planned: u64) -> Option<f64> {
        let ((first, before), (last, samples)) = self.pace.front().zip(self.pace.back())?;
        let trained = samples.checked_sub(*before).filter(|trained| *trained > 0)?;
        let left = planned.checked_sub(*samples)?;
        Some(left as f64 / trained as f64 * (last - first))
    }

    fn rows<C: Rated>(
        &self,
        job: &JobDocument,
        kind: &str,
        order: Order,
        activity: impl Fn(&C::Rates) -> f64,
    ) -> Vec<Row<C>> {
        let row = |member: &MemberDocument| Row {
            member: MemberColumns::from(member),
            counts: member.counts.as_ref().and_then(C::of),
            rates: self.history.rates::<C>(&member.member),
        };
        let mut rows: Vec<Row<C>> =
            job.members.iter().filter(|member| member.kind == kind).map(row).collect();
        let number =
            |row: &Row<C>| row.member.name.rsplit(' ').next().and_then(|text| text.parse::<u64>().ok());
        rows.sort_by_key(number);
        if order == Order::Activity {
            let busy = |row: &Row<C>| row.rates.as_ref().map_or(0.0, &activity);
            rows.sort_by(|one, other| busy(other).partial_cmp(&busy(one)).unwrap_or(Ordering::Equal));
        }
        rows
    }
}

impl From<&MemberDocument> for MemberColumns {
    fn from(member: &MemberDocument) -> Self {
        Self {
            name: member.member.clone(),
            state: member.state.clone(),
            address: member.address.to_string(),
            http: member.http.map(|http| http.to_string()),
            view: member.view,
            regions: member.regions,
            share: member.share,
            clock: member.clock,
            silent_ms: member.silent_ms,
        }
    }
}

/// Returns the rates of all members together, of those that have some.
pub(crate) fn total<C: Rated>(rows: &[Row<C>]) -> Option<C::Rates> {
    let add = |mut sum: C::Rates, rates: C::Rates| {
        sum += rates;
        sum
    };
    rows.iter().filter_map(|row| row.rates).reduce(add)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{job, worker_member};
    use super::*;

    fn names(board: &Board) -> Vec<&str> {
        board.workers.iter().map(|row| row.member.name.as_str()).collect()
    }

    #[test]
    fn members_are_in_the_order_that_is_asked_for() {
        let mut model = Model::default();
        let look = |pushes: [u64; 3]| {
            job(vec![worker_member(10, pushes[0]), worker_member(2, pushes[1]), worker_member(0, pushes[2])])
        };
        model.observe(0.0, look([0, 0, 0]));
        model.observe(1.0, look([50, 90, 10]));
        let board = model.board(Order::Number).expect("it has a document");
        assert_eq!(names(&board), ["worker 0", "worker 2", "worker 10"]);
        let board = model.board(Order::Activity).expect("it has a document");
        assert_eq!(names(&board), ["worker 2", "worker 10", "worker 0"]);
        assert_eq!(total(&board.workers).map(|rates| rates.pushes), Some(150.0));
    }

    #[test]
    fn the_time_left_follows_from_the_pace() {
        let mut model = Model::default();
        let look = |samples| {
            let mut job = job(vec![]);
            job.progress.samples = samples;
            job
        };
        let left = |model: &Model| model.board(Order::Number).and_then(|board| board.progress.seconds_left);
        model.observe(0.0, look(0));
        assert_eq!(left(&model), None);
        model.observe(10.0, look(20_000));
        assert_eq!(left(&model), Some(40.0));
        model.observe(11.0, look(100));
        assert_eq!(left(&model), None, "the samples began again");
    }

    #[test]
    fn an_outage_lasts_until_the_controller_answers() {
        let mut model = Model::default();
        assert_eq!(model.board(Order::Number), None);
        model.observe(0.0, job(vec![worker_member(0, 1)]));
        model.fail(1.0, "refused".to_owned());
        model.fail(2.0, "in time".to_owned());
        assert_eq!(model.outage(), Some(&Outage { since: 1.0, reason: "in time".to_owned() }));
        assert!(model.board(Order::Number).is_some(), "the last one stays");
        model.observe(3.5, job(vec![worker_member(0, 2)]));
        assert_eq!(model.outage(), None);
        let events: Vec<_> = model.events().map(|event| event.text.as_str()).collect();
        assert_eq!(events, ["the controller answers again, after 2.5 s", "the controller does not answer"]);
    }
}
