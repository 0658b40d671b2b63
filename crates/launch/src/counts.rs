//! Counts of the members of a job without a model: a table for a person, JSON for a machine.

use libra_monitor::Totals;
use libra_proto::{Outcome, ServerStatistics, SwitchStatistics, WorkerStatistics};
use serde::Serialize;

use crate::report::rows_on_disk;
use crate::table::summary;

/// Counts of all members together.
#[derive(Debug, Serialize)]
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
        let Totals { worker, server, switch } = Totals::of_outcome(outcome);
        Self { seconds, workers: outcome.reports.len(), worker, server, switch }
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
