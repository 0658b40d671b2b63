//! Result of a job: a table for a person, JSON for a machine.

use std::path::Path;

use anyhow::Result;
use libra_models::{Measure, Quality};
use libra_monitor::Totals;
use libra_plan::{Plan, Summary};
use libra_proto::{
    Outcome, ReadCounts, Refusal, ServerStatistics, Sizes, StepTimes, SwitchStatistics, TagKind,
    TrainingCounts, WorkRecord, WorkerStatistics,
};
use serde_json::{Map, Value, json};

use crate::document::write_json;
use crate::event_log::{EventLog, Line};
use crate::job::Job;
use crate::resume::samples_of;
use crate::table::{paragraph, summary, table};
use crate::task::{Account, EpochAccount, epoch_of, size};

/// One epoch of all workers together.
#[derive(Debug, Clone)]
struct Epoch {
    /// Number of workers that have trained in it.
    workers: usize,
    samples: u64,
    loss: f64,
    measures: Vec<Measure>,
    seconds_train: f64,
    seconds_evaluate: f64,
}

/// Result of a job.
pub struct Report<'c> {
    /// None if its accounts were lost, with a worker and a controller at the same time.
    epochs: Vec<Option<Epoch>>,
    /// Chunks that were trained again after a worker was lost.
    repeated_chunks: u64,
    events: &'c EventLog,
    stall_ms_max: f64,
    samples: u64,
    /// Those of them that a run before this one has trained.
    samples_before: u64,
    workers: WorkerStatistics,
    servers: ServerStatistics,
    switches: SwitchStatistics,
    refusals: Vec<Refusal>,
    /// Those of the packets that there were.
    tags: TagKind,
    seconds_total: f64,
    baselines: Vec<Measure>,
}

impl Epoch {
    /// An epoch as the records of workers have it, with the times of those that came to the end.
    fn of(epoch: u32, work: &[(u16, WorkRecord)], accounts: &[Account]) -> Result<Option<Self>> {
        let Some(EpochAccount { workers, trained, evaluated }) = EpochAccount::of(work, epoch)? else {
            return Ok(None);
        };
        // Workers begin and end a phase together; its time is that of the one that was in it the longest.
        let seconds = |phase: u64| {
            let of_phase = accounts.iter().filter_map(|account| account.seconds.get(&phase).copied());
            of_phase.fold(0.0, f64::max)
        };
        let phase = 2 * u64::from(epoch);
        let measures = evaluated.map_or_else(Vec::new, |it| [it.quality.measures(), it.findings].concat());
        Ok(Some(Self {
            workers,
            samples: trained.samples,
            loss: trained.loss,
            measures,
            seconds_train: seconds(phase),
            seconds_evaluate: seconds(phase + 1),
        }))
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "workers": self.workers,
            "samples": self.samples,
            "loss": self.loss,
            "seconds_train": self.seconds_train,
            "seconds_evaluate": self.seconds_evaluate,
        });
        extend(&mut json, values(&self.measures));
        json
    }
}

impl<'c> Report<'c> {
    /// The report of a job that has ended.
    pub fn new(job: &Job, outcome: &Outcome, events: &'c EventLog, seconds_total: f64) -> Result<Self> {
        let accounts =
            outcome.reports.iter().map(|text| Account::from_text(text)).collect::<Result<Vec<Account>>>()?;
        let epoch = |epoch| Epoch::of(epoch, &outcome.work, &accounts);
        let config = &job.task.config;
        let epochs = if config.follow { files(&outcome.work) } else { config.epochs };
        let epochs: Vec<Option<Epoch>> = (0..epochs).map(epoch).collect::<Result<_>>()?;
        let Totals { worker: workers, server: servers, switch: switches } = Totals::of_outcome(outcome);
        let mut report = Self {
            samples: epochs.iter().flatten().map(|epoch| epoch.samples).sum(),
            samples_before: job.spec.work.as_ref().map_or(Ok(0), |work| samples_of(&work.done))?,
            epochs,
            repeated_chunks: outcome.repeated_chunks,
            events,
            stall_ms_max: accounts.iter().map(|account| account.stall_ms_max).fold(0.0, f64::max),
            workers,
            servers,
            switches,
            refusals: outcome.refusals.clone(),
            tags: outcome.tags,
            seconds_total,
            baselines: job.workload.baselines(),
        };
        if report.workers.packets == 0 {
            report.tags = TagKind::Off;
        }
        Ok(report)
    }

    fn seconds_train(&self) -> f64 {
        self.epochs.iter().flatten().map(|epoch| epoch.seconds_train).sum()
    }

    fn last(&self) -> Option<&Epoch> {
        self.epochs.iter().flatten().last()
    }

    /// The quality after the last epoch that was tested: behind the last file of data that are followed there is none to test on.
    fn measures(&self) -> &[Measure] {
        let mut tested = self.epochs.iter().flatten().filter(|epoch| !epoch.measures.is_empty());
        tested.next_back().map_or(&[], |epoch| &epoch.measures)
    }

    /// Number of epochs whose accounts do not hold all samples.
    fn epochs_short(&self, samples: u64) -> usize {
        let is_whole = |epoch: &&Option<Epoch>| epoch.as_ref().is_some_and(|epoch| epoch.samples >= samples);
        self.epochs.len() - self.epochs.iter().filter(is_whole).count()
    }

    fn samples_per_second(&self) -> f64 {
        self.samples.saturating_sub(self.samples_before) as f64 / self.seconds_train().max(1e-9)
    }

    fn hot_share(&self) -> f64 {
        self.workers.rows_hot as f64 / (self.workers.rows as f64).max(1.0)
    }

    /// Returns loss and quality of each epoch.
    pub fn epochs_json(&self) -> Value {
        self.epochs.iter().map(|epoch| epoch.as_ref().map(Epoch::json)).collect::<Vec<_>>().into()
    }

    /// Writes the report for machines. Fails if the file cannot be written.
    pub fn write_json(&self, path: &Path, job: &Job, configuration: Value) -> Result<()> {
        write_json(path, &self.json(job, configuration))
    }

    fn json(&self, job: &Job, configuration: Value) -> Value {
        let last = self.last();
        let (workers, servers, switches) = (&self.workers, &self.servers, &self.switches);
        let mut json = json!({
            "quality": {
                "loss": last.map(|epoch| epoch.loss),
                "untrained_loss": job.workload.untrained_loss(),
            },
            "epochs": self.epochs_json(),
            "pushes": {
                "count": workers.pushes,
                "rows": workers.rows,
                "rows_hot": workers.rows_hot,
                "rows_cold": workers.rows_cold,
                "rows_over_bound": workers.rows_too_large,
                "hot_share": self.hot_share(),
                "hot_share_predicted": job.plan().map(|plan| plan.predicted_share),
            },
            "pulls": { "rows": workers.rows_pulled, "rows_hot": workers.rows_pulled_hot },
            "server": {
                "row_updates": servers.row_updates,
                "row_updates_hot": servers.row_updates_hot,
                "row_reads": servers.row_reads,
                "rounds": servers.rounds,
                "duplicates": servers.duplicates,
                "dropped": servers.dropped,
                "pushes_rejected": servers.pushes_refused,
                "sums_rejected": servers.sums_refused,
                "rejected_gradients": refusals_json(&self.refusals),
                "rows": servers.rows,
                "rows_on_disk": servers.rows_on_disk,
                "disk_rows_read": servers.disk_rows_read,
                "disk_rows_written": servers.disk_rows_written,
                "shards_over_limit": servers.shards_over_limit,
            },
            "switch": {
                "packets": switches.packets,
                "pushes": switches.pushes,
                "pulls": switches.pulls,
                "duplicates": switches.duplicates,
                "nacks": switches.refused,
                "malformed": switches.malformed,
                "unknown_senders": switches.unknown_senders,
                "forged": switches.forged,
                "stale": switches.stale,
                "rounds": switches.rounds,
                "slots_drained": switches.slots_drained,
            },
            "transport": {
                "packets": workers.packets,
                "retransmits": workers.retransmits,
                "nacks": workers.refused,
                "dropped": workers.dropped,
                "forged": workers.forged,
                "packet_tags": self.tags,
                "round_trip_us": workers.round_trip_us,
                "stall_ms_max": self.stall_ms_max,
            },
            "failover": self.events.json(),
            "seconds": {
                "total": self.seconds_total,
                "train": self.seconds_train(),
                "evaluate": self.epochs.iter().flatten().map(|epoch| epoch.seconds_evaluate).sum::<f64>(),
            },
            "samples": self.samples,
            "data": {
                "repeated": self.repeated_chunks,
                "samples_before": self.samples_before,
                "requests": workers.training.reads.requests,
                "retries": workers.training.reads.retries,
                "bytes": workers.training.reads.bytes,
                "step_share": step_share(&workers.training),
            },
            "samples_per_second": self.samples_per_second(),
            "configuration": configuration,
        });
        extend(&mut json["quality"], values(self.measures().iter().chain(&self.baselines)));
        let growth = &job.task.config.embeddings.growth;
        if growth.admission.is_some() {
            json["server"]["gradients_not_admitted"] = servers.gradients_not_admitted.into();
        }
        if growth.eviction.is_some() {
            json["server"]["rows_evicted"] = servers.rows_evicted.into();
        }
        json
    }

    /// Prints the report for a person.
    pub fn print(&self, job: &Job) {
        let mut rows: Vec<(String, String, String)> = Vec::new();
        let sizes = job.spec.sizes;
        let config = &job.task.config;
        let (workers, servers, switches) = (&self.workers, &self.servers, &self.switches);
        let mut row = |name: &str, value: String, note: String| {
            rows.push((name.to_owned(), value, note));
        };
        row("job", job.workload.model(), format!("{}: {}", job.workload.data(), size(&*job.workload)));
        row(
            "cluster",
            cluster(sizes),
            format!(
                "batch {}, {} of training, seed {}, {}",
                config.batch,
                if config.follow {
                    format!("{} files", self.epochs.len())
                } else {
                    format!("{} epochs", config.epochs)
                },
                config.seed,
                config.mode
            ),
        );
        if let Some(last) = self.last() {
            let baselines = self.baselines.iter().map(|of| format!("{} {:.3}", of.name, of.value));
            let mut note = baselines.collect::<Vec<_>>().join(", ");
            for measure in self.measures() {
                row(&measure.name, format!("{:.4}", measure.value), std::mem::take(&mut note));
            }
            let untrained = job.workload.untrained_loss();
            row("loss", format!("{:.4}", last.loss), format!("untrained loss {untrained:.4}"));
        }
        if let Some(load) = job.spec.durability.resumed() {
            let note = format!("{} samples were trained before", group(self.samples_before));
            row("resumed", format!("checkpoint {}", load.number), note);
        }
        row(
            "speed",
            format!("{} samples/s", group(whole(self.samples_per_second()))),
            format!("{:.1} s training, {:.1} s in all", self.seconds_train(), self.seconds_total),
        );
        if let Some(plan) = job.plan() {
            let absorbed = workers.rows_hot.saturating_sub(servers.row_updates_hot);
            let without = servers.row_updates + absorbed;
            row(
                "hot rows",
                group(plan.rows.len() as u64),
                format!("found in {:.0}% of the data", 100.0 * plan.provenance.sample),
            );
            row(
                "hot share of pushed rows",
                percent(workers.rows_hot, workers.rows),
                format!(
                    "{} of {}; predicted {:.1}%",
                    group(workers.rows_hot),
                    group(workers.rows),
                    100.0 * plan.predicted_share
                ),
            );
            row(
                "switch",
                format!("{} pushes of rows absorbed", group(absorbed)),
                format!(
                    "{} hot rows pushed, {} sums of {} rounds sent to servers",
                    group(workers.rows_hot),
                    group(servers.row_updates_hot),
                    group(switches.rounds)
                ),
            );
            row(
                "server updates avoided",
                percent(absorbed, without),
                format!("{} row updates instead of {}", group(servers.row_updates), group(without)),
            );
            row(
                "server reads avoided",
                percent(workers.rows_pulled_hot, workers.rows_pulled),
                format!("{} row reads instead of {}", group(servers.row_reads), group(workers.rows_pulled)),
            );
            row(
                "hot path",
                format!("{} packets", group(workers.packets)),
                format!(
                    "{} sent again, {} duplicates not added",
                    group(workers.retransmits),
                    group(switches.duplicates)
                ),
            );
        }
        if let Some((value, note)) = data_read(&workers.training) {
            row("data read", value, note);
        }
        if let Some((value, note)) = packet_tags(self.tags, switches.forged + workers.forged) {
            row("packet tags", value, note);
        }
        let growth = &config.embeddings.growth;
        if growth.admission.is_some() {
            let value = format!("{} gradients", group(servers.gradients_not_admitted));
            row("not admitted", value, "they made no row, as --admission wants".to_owned());
        }
        if growth.eviction.is_some() {
            let value = format!("{} rows", group(servers.rows_evicted));
            let note =
                format!("--eviction let them go; {} are at the servers at the end", group(servers.rows));
            row("evicted", value, note);
        }
        if let Some((value, note)) = rows_on_disk(servers) {
            row("on disk", value, note);
        }
        let lines = refusal_lines(&self.refusals, switches.malformed);
        for (name, value, note) in lines.into_iter().chain(self.events.lines()) {
            row(name, value, note);
        }
        if self.repeated_chunks > 0 {
            let note =
                "they were begun by a worker that was lost, or before --resume, and done again".to_owned();
            row("repeated", format!("{} chunks", group(self.repeated_chunks)), note);
        }
        let samples = if config.follow { 1 } else { job.workload.samples_per_epoch() };
        let short = self.epochs_short(samples);
        if short > 0 {
            let epochs = format!("{short} of {} epochs", self.epochs.len());
            let note = "accounts of workers were lost, with the controller that had them".to_owned();
            row("incomplete", epochs, note);
        }
        if !self.events.lines().is_empty() {
            let note = "between two acknowledged pushes of a worker, while more were under way".to_owned();
            row("longest stall", format!("{:.1} ms", self.stall_ms_max), note);
        }
        println!("{}", summary(rows));
    }
}

/// Returns the number of files of data that were followed.
fn files(work: &[(u16, WorkRecord)]) -> u32 {
    let phases = work.iter().filter_map(|(_, record)| record.accounts.keys().next_back());
    phases.max().map_or(0, |last| epoch_of(*last) + 1)
}

/// Returns the share of the time of workers in which they read data.
fn step_share(training: &TrainingCounts) -> f64 {
    let StepTimes { data, pull, compute, push, clock } = training.step_us;
    data as f64 / ((data + pull + compute + push + clock) as f64).max(1.0)
}

/// Returns a line about data that are read while they are trained on.
fn data_read(training: &TrainingCounts) -> Option<(String, String)> {
    let ReadCounts { requests, retries, bytes } = training.reads;
    let share = 100.0 * step_share(training);
    let requests = if requests > 0 {
        format!("in {} requests, {} sent again; ", group(requests), group(retries))
    } else {
        String::new()
    };
    let value = format!("{} MB", group(bytes.div_ceil(1_000_000)));
    (bytes > 0).then(|| (value, format!("{requests}{share:.1}% of the time of workers")))
}

/// Rows of servers that a memory limit has moved to disk, as a value and a note; none if it has moved none.
pub fn rows_on_disk(servers: &ServerStatistics) -> Option<(String, String)> {
    let ServerStatistics { rows, rows_on_disk, disk_rows_read, disk_rows_written, shards_over_limit, .. } =
        servers;
    if disk_rows_written + shards_over_limit == 0 {
        return None;
    }
    let mut note = format!(
        "of {}; {} were written there, {} read from there",
        group(*rows),
        group(*disk_rows_written),
        group(*disk_rows_read)
    );
    if *shards_over_limit > 0 {
        note += &format!("; the disk is full, and {shards_over_limit} shards take more memory than they may");
    }
    Some((format!("{} rows", group(*rows_on_disk)), note))
}

/// The protection of the hot path, and the packets that it has kept out; none if there was no protection.
pub fn packet_tags(tags: TagKind, forged: u64) -> Option<(String, String)> {
    let value = match tags {
        TagKind::Off => return None,
        TagKind::Cookie => "cookies",
        TagKind::Mac => "MACs",
    };
    let mut note = match forged {
        0 => "no forged packets".to_owned(),
        forged => format!("{} forged packets dropped", group(forged)),
    };
    if tags == TagKind::Cookie {
        note += "; no protection against those who can read packets";
    }
    Some((value.to_owned(), note))
}

/// Gradients that are not finite, by worker and table. Of a sum there is no worker.
fn refusals_json(refusals: &[Refusal]) -> Vec<Value> {
    let json = |Refusal { server, worker, table, key, count }: &Refusal| json!({ "server": server, "worker": worker, "table": table, "first_row": key, "count": count });
    refusals.iter().map(json).collect()
}

/// Lines for a person about gradients that were not applied.
fn refusal_lines(refusals: &[Refusal], malformed: u64) -> Vec<Line> {
    let line = |Refusal { server, worker, table, key, count }: &Refusal| {
        let who = worker.map_or_else(|| "sums of rounds".to_owned(), |worker| format!("worker {worker}"));
        let note = format!("{who}, table \"{table}\", server {server}: not finite, the first in row {key}");
        ("rejected gradients", group(*count), note)
    };
    let of_switches = (malformed > 0).then(|| {
        (
            "malformed packets",
            group(malformed),
            "dropped by switches: not sound, or a value out of bounds".into(),
        )
    });
    refusals.iter().map(line).chain(of_switches).collect()
}

/// Measures by their names for machines.
fn values<'a>(measures: impl IntoIterator<Item = &'a Measure>) -> Map<String, Value> {
    measures.into_iter().map(|measure| (measure.key.to_string(), measure.value.into())).collect()
}

fn extend(json: &mut Value, fields: Map<String, Value>) {
    json.as_object_mut().expect("it was made as an object").extend(fields);
}

/// Returns a line about the quality of a model after an epoch of training, on the test data of one worker.
pub fn quality_line(epoch: u32, quality: &Quality) -> String {
    let measures: Vec<String> =
        quality.measures().iter().map(|of| format!("{} {:.4}", of.name, of.value)).collect();
    let (count, of_what) = quality.cases();
    format!("epoch {:>3}: {} on {} {of_what}", epoch + 1, measures.join(", "), group(count))
}

/// Returns a plan for a person: sentences about the whole, and a table of the model's tables.
pub fn plan_text(plan: &Plan) -> String {
    let of_plan = plan.summary();
    let numbers: Vec<usize> = (1..Summary::HEADER.len()).collect();
    format!("{}\n{}", paragraph(&of_plan.to_string()), table(&Summary::HEADER, &numbers, of_plan.rows()))
}

/// Returns the whole part of a rate, for a person.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is small and positive")]
pub fn whole(value: f64) -> u64 {
    value as u64
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / (whole as f64).max(1.0))
}

fn cluster(sizes: Sizes) -> String {
    let count =
        |count: u16, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let workers = count(sizes.workers, "worker", "workers");
    let servers = count(sizes.servers, "server", "servers");
    format!("{workers}, {servers}, {}", count(sizes.switches, "switch", "switches"))
}

/// Digits in groups of three.
pub fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_gradients_are_told_by_worker_and_table() {
        let of = |worker, count| Refusal { server: 0, worker, table: "item".into(), key: 17, count };
        let refusals = [of(Some(3), 1200), of(None, 1)];
        let lines = refusal_lines(&refusals, 0);
        let note = "worker 3, table \"item\", server 0: not finite, the first in row 17";
        assert_eq!(lines[0], ("rejected gradients", "1,200".to_owned(), note.to_owned()));
        assert!(lines[1].2.starts_with("sums of rounds, table \"item\""), "{lines:?}");
        assert_eq!(refusal_lines(&[], 0), []);
        assert_eq!(refusal_lines(&[], 5).len(), 1);
        let first = json!({ "server": 0, "worker": 3, "table": "item", "first_row": 17, "count": 1200 });
        assert_eq!(refusals_json(&refusals)[0], first);
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(
            ["1", "12", "123", "1,234", "1,234,567"],
            [1, 12, 123, 1234, 1_234_567].map(group).each_ref().map(String::as_str)
        );
    }
}
