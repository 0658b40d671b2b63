//! Counts of the members of a job without a model: a table for a person, JSON for a machine.

use libra_monitor::Totals;
use libra_proto::{Outcome, ServerStatistics, SwitchStatistics, WorkerStatistics};
use serde::{Deserialize, Serialize};

use crate::report::{group, rows_on_disk};
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
    /// The samples that were dealt in chunks; none if workers divide them themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Dealt>,
}

/// Samples of all epochs, those before the job was resumed too.
#[derive(Debug, Serialize)]
struct Dealt {
    samples: u64,
    batches: u64,
    /// Chunks that were dealt again after a worker was lost that may have trained a part.
    repeated_chunks: u64,
}

/// Account of a worker of a phase, as the package for Python writes it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProgramAccount {
    samples: u64,
    batches: u64,
}

impl Dealt {
    fn of(outcome: &Outcome) -> Option<Self> {
        let mut dealt = Self { samples: 0, batches: 0, repeated_chunks: outcome.repeated_chunks };
        let accounts = outcome.work.iter().flat_map(|(_, record)| record.accounts.values());
        for account in accounts {
            // Another front end has accounts of its own.
            let account: ProgramAccount = serde_json::from_str(account).ok()?;
            dealt.samples += account.samples;
            dealt.batches += account.batches;
        }
        (dealt.batches > 0).then_some(dealt)
    }
}

impl Counts {
    /// Returns the counts of a job that took so many seconds.
    pub fn new(outcome: &Outcome, seconds: f64) -> Self {
        let Totals { worker, server, switch } = Totals::of_outcome(outcome);
        Self { seconds, workers: outcome.reports.len(), worker, server, switch, data: Dealt::of(outcome) }
    }

    /// Returns the table.
    pub fn table(&self) -> String {
        let Self { seconds, workers, worker, server, switch, data } = self;
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
        rows.extend(data.iter().map(|data| {
            let Dealt { samples, batches, repeated_chunks } = data;
            let note = format!("in {batches} batches, {repeated_chunks} chunks dealt again");
            ("samples", group(*samples), note)
        }));
        rows.extend(rows_on_disk(server).map(|(value, note)| ("on disk", value, note)));
        summary(rows)
    }
}
