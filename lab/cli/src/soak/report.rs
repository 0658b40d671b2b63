//! Report of a soak: a table for a person, JSON for a machine.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::Arguments;
use super::check::Verdict;
use super::controller::Event;
use super::history::{FaultKind, History, InjectedFault, lost};
use libra_launch::document::write_json;
use libra_launch::event_log::milliseconds;
use libra_launch::report::group;
use libra_launch::table::summary;

pub(super) struct Report<'a> {
    arguments: &'a Arguments,
    history: &'a History,
    verdict: &'a Verdict,
}

impl<'a> Report<'a> {
    pub(super) fn new(arguments: &'a Arguments, history: &'a History, verdict: &'a Verdict) -> Self {
        Self { arguments, history, verdict }
    }

    fn views(&self) -> usize {
        self.history.count(|event| matches!(event, Event::Started | Event::Settled { .. }))
    }

    fn regions_moved(&self) -> usize {
        let moved = self.history.entries.iter().map(|entry| match entry.event {
            Event::Settled { moved, .. } => moved,
            _ => 0,
        });
        moved.sum()
    }

    fn stall_ms_max(&self) -> f64 {
        self.history.stalls.first().map_or(0.0, |stall| milliseconds(stall.lasted()))
    }

    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        write_json(path, &self.json())
    }

    fn json(&self) -> Value {
        let Self { arguments, history, verdict } = self;
        let counts = &history.counts;
        let injected = history.injected.iter().map(|injected| {
            json!({
                "action": kind(injected),
                "target": injected.process,
                "seconds": history.seconds(injected.at),
                "recovery_ms": history.recovery(injected).map(milliseconds),
                "stall_ms": history.stall_after(injected).map(milliseconds),
            })
        });
        json!({
            "equal": verdict.is_equal(),
            "differences": verdict.differences,
            "differences_named": verdict.named,
            "values_compared": verdict.values,
            "workers": { "ended": verdict.workers_ended, "killed": verdict.workers_killed },
            "pushes": {
                "issued": verdict.pushes_issued,
                "acknowledged": verdict.pushes_acknowledged,
                "open": verdict.pushes_open,
                "rows": counts.workers.rows,
                "rows_hot": counts.workers.rows_hot,
                "rows_cold": counts.workers.rows_cold,
                "rows_over_bound": counts.workers.rows_too_large,
            },
            "transport": {
                "packets": counts.workers.packets,
                "retransmits": counts.workers.retransmits,
                "duplicates": counts.switches.duplicates,
                "nacks": counts.workers.refused,
                "stall_ms_max": self.stall_ms_max(),
            },
            "server": {
                "rounds": counts.servers.rounds,
                "duplicates": counts.servers.duplicates,
                "replays": counts.servers.replays,
                "fenced": counts.servers.fenced,
                "lost_pushes": counts.servers.lost_pushes,
                "lost_rounds": counts.servers.lost_rounds,
                "checkpoints": history.count(|event| matches!(event, Event::Checkpointed { .. })),
            },
            "failover": {
                "views": self.views(),
                "regions_moved": self.regions_moved(),
                "recoveries": history.count(|event| matches!(event, Event::Recovered)),
                "lost": lost(&history.entries),
                "injected_faults": injected.collect::<Vec<_>>(),
            },
            "configuration": {
                "workers": arguments.workers,
                "servers": arguments.servers,
                "plane": arguments.plane,
                "switches": arguments.switches,
                "standby": arguments.standby,
                "seconds": arguments.seconds,
                "loss": arguments.faults.loss,
                "duplicate": arguments.faults.duplicate,
                "reorder": arguments.faults.reorder,
                "seed": arguments.seed,
                "log": arguments.log,
                "checkpoint_every": arguments.checkpoint_every.map(|every| every.as_secs_f64()),
                "kill": arguments.kill.iter().map(ToString::to_string).collect::<Vec<_>>(),
            },
        })
    }

    pub(super) fn print(&self) {
        let Self { arguments, history, verdict } = self;
        let counts = &history.counts;
        let mut rows: Vec<(String, String, String)> = Vec::new();
        let mut row = |name: &str, value: String, note: String| rows.push((name.to_owned(), value, note));
        let percent = |rate: f64| format!("{}%", 100.0 * rate);
        let faults = &arguments.faults;
        row(
            "soak",
            format!("{} s", arguments.seconds),
            format!(
                "{} workers, {} servers, {} + {} switches; loss {}, duplication {}, reordering {}; seed {}",
                arguments.workers,
                arguments.servers,
                arguments.switches,
                arguments.standby,
                percent(faults.loss),
                percent(faults.duplicate),
                percent(faults.reorder),
                arguments.seed
            ),
        );
        row(
            "pushes",
            group(verdict.pushes_issued),
            format!(
                "{} acknowledged, {} open when their worker was killed",
                group(verdict.pushes_acknowledged),
                verdict.pushes_open
            ),
        );
        row(
            "rows pushed",
            group(counts.workers.rows),
            format!(
                "{} hot, {} of the others over the bound of the plan",
                group(counts.workers.rows_hot),
                group(counts.workers.rows_too_large)
            ),
        );
        row(
            "hot path",
            format!("{} packets", group(counts.workers.packets)),
            format!(
                "{} sent again, {} duplicates not added, {} refused for a while",
                group(counts.workers.retransmits),
                group(counts.switches.duplicates),
                group(counts.workers.refused)
            ),
        );
        row(
            "rounds",
            group(counts.servers.rounds),
            format!(
                "{} replays to shards, {} messages fenced, {} duplicates",
                counts.servers.replays, counts.servers.fenced, counts.servers.duplicates
            ),
        );
        if arguments.log || arguments.checkpoint_every.is_some() {
            let counts = &counts.servers;
            row(
                "checkpoints",
                history.count(|event| matches!(event, Event::Checkpointed { .. })).to_string(),
                format!(
                    "{}; lost by servers: {} acknowledged pushes, {} rounds",
                    if arguments.log { "with a log" } else { "without a log" },
                    group(counts.lost_pushes),
                    group(counts.lost_rounds)
                ),
            );
        }
        row("views", self.views().to_string(), format!("{} regions moved", self.regions_moved()));
        for injected in &history.injected {
            let took = history.recovery(injected);
            let stall = history.stall_after(injected).map_or(0.0, milliseconds);
            row(
                &format!("{:.1} s", history.seconds(injected.at)),
                took.map_or_else(|| "never".to_owned(), |took| format!("{:.0} ms", milliseconds(took))),
                format!("{} {}; pushes stalled for {stall:.0} ms", injected.process, outcome(injected)),
            );
        }
        row(
            "longest stall",
            format!("{:.0} ms", self.stall_ms_max()),
            "between two acknowledged pushes of a worker, while more were under way".to_owned(),
        );
        row(
            "verdict",
            match (verdict.is_equal(), arguments.may_lose()) {
                (true, _) => "equal to the bit",
                (false, true) => "not equal, as expected",
                (false, false) => "NOT EQUAL",
            }
            .to_owned(),
            format!(
                "{} values compared, {} differ; {} workers came to the end, {} were killed",
                group(verdict.values),
                group(verdict.differences),
                verdict.workers_ended,
                verdict.workers_killed
            ),
        );
        println!("{}", summary(rows));
    }
}

fn kind(injected: &InjectedFault) -> String {
    match injected.kind {
        FaultKind::Killed(target) => format!("kill {target}"),
        FaultKind::Migrated => "migrate".to_owned(),
    }
}

/// Describes how the cluster recovered from a fault.
fn outcome(injected: &InjectedFault) -> &'static str {
    use libra_launch::fault_schedule::Target::{Controller, Server, Switch, Worker};
    match injected.kind {
        FaultKind::Killed(Switch) => "killed until its regions had another owner",
        FaultKind::Killed(Worker) => "killed until the others went on without it",
        FaultKind::Killed(Server) => "killed until it was back with what it had",
        FaultKind::Killed(Controller) => "killed until the next had taken over",
        FaultKind::Migrated => "relieved until its regions had another owner",
    }
}
