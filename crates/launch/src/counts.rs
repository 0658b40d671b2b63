//! Counts of the members of a job without a model: a table for a person, JSON for a machine.

use libra_proto::{Outcome, ServerStatistics, Statistics, SwitchStatistics, WorkerStatistics};
use serde::Serialize;

use crate::report::rows_on_disk;
use crate::table::summary;

/// Counts of all members together.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    seconds: f64,
    /// Workers that came to the end.
    workers: usize,
    worker: WorkerStatistics,
    server: ServerStatistics,
    switch: SwitchStatistics,
}

impl Counts {
    /// Returns the counts of a job that took so many seconds.
    pub fn new(outcome: &Outcome, seconds: f64) -> Self {
        let mut counts = Self { seconds, workers: outcome.reports.len(), ..Self::default() };
        for (_, statistics) in &outcome.statistics {
            match statistics {
                Statistics::Worker(worker) => counts.worker += *worker,
                Statistics::Server(server) => counts.server += *server,
                Statistics::Switch(switch) => counts.switch += *switch,
            }
        }
        counts
    }

    /// Returns the table.
    pub fn table(&self) -> String {
        let Self { seconds, workers, worker, server, switch } = self;
        let hot_share = 100.0 * worker.rows_hot as f64 / (worker.rows as f64).max(1.0);
        let mut rows = vec![
            ("workers", workers.to_string(), format!("finished after {seconds:.1} s")),
            ("pushes", worker.pushes.to_string(), format!("{} rows, {hot_share:.1}% hot", worker.rows)),
            (
                "rows pulled",
                worker.rows_pulled.to_string(),
                format!("{} from switches", worker.rows_pulled_hot),
            ),
            ("rows kept", server.rows.to_string(), format!("{} updates at servers", server.row_updates)),
            ("packets added", switch.pushes.to_string(), format!("in {} rounds of switches", switch.rounds)),
            ("sent again", worker.retransmits.to_string(), format!("of {} packets", worker.packets)),
        ];
        rows.extend(rows_on_disk(server).map(|(value, note)| ("on disk", value, note)));
        summary(rows)
    }
}
