//! Report of a soak: a table for a person, JSON for a machine.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::Arguments;
use super::check::Verdict;
use super::controller::Event;
use super::history::{FaultKind, History, InjectedFault, lost};
use libra_launch::document::write_json;
use libra_launch::event_log::milliseconds;
use libra_launch::plane::SwitchPlane;
use libra_launch::report::{group, packet_tags, rows_on_disk};
use libra_launch::table::summary;
use libra_proto::TagKind;

/// The report for machines.
#[derive(Serialize)]
struct Document<'a> {
    equal: bool,
    differences: u64,
    /// The first of them, in words.
    differences_named: &'a [String],
    values_compared: u64,
    workers: Workers,
    pushes: Pushes,
    transport: Transport,
    server: Server,
    failover: Failover<'a>,
    configuration: Configuration,
}

#[derive(Serialize)]
struct Workers {
    ended: usize,
    left: usize,
    killed: usize,
}

#[derive(Serialize)]
struct Pushes {
    issued: u64,
    acknowledged: u64,
    open: u64,
    rows: u64,
    rows_hot: u64,
    rows_cold: u64,
    rows_over_bound: u64,
}

#[derive(Serialize)]
struct Transport {
    packets: u64,
    retransmits: u64,
    duplicates: u64,
    nacks: u64,
    packet_tags: TagKind,
    forged: u64,
    stall_ms_max: f64,
}

#[derive(Serialize)]
struct Server {
    rounds: u64,
    duplicates: u64,
    replays: u64,
    fenced: u64,
    lost_pushes: u64,
    lost_rounds: u64,
    checkpoints: usize,
    rows: u64,
    rows_on_disk: u64,
    disk_rows_read: u64,
    disk_rows_written: u64,
    shards_over_limit: u64,
}

#[derive(Serialize)]
struct Failover<'a> {
    views: usize,
    regions_moved: usize,
    recoveries: usize,
    /// Number of losses of each member.
    lost: BTreeMap<String, usize>,
    injected_faults: Vec<Injected<'a>>,
}

#[derive(Serialize)]
struct Injected<'a> {
    action: String,
    /// The process, in words.
    target: &'a str,
    /// From the start of the job.
    seconds: f64,
    recovery_ms: Option<f64>,
    stall_ms: Option<f64>,
}

#[derive(Serialize)]
struct Configuration {
    workers: u16,
    servers: u16,
    shards_per_server: u16,
    plane: SwitchPlane,
    switches: u16,
    standby: u16,
    seconds: u64,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    seed: u64,
    log: bool,
    /// Seconds.
    checkpoint_every: Option<f64>,
    /// Bytes of a server.
    memory_limit: Option<u64>,
    kill: Vec<String>,
    drain: Vec<String>,
}

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

    fn checkpoints(&self) -> usize {
        self.history.count(|event| matches!(event, Event::Checkpointed { .. }))
    }

    fn stall_ms_max(&self) -> f64 {
        self.history.stalls.first().map_or(0.0, |stall| milliseconds(stall.lasted()))
    }

    pub(super) fn write_json(&self, path: &Path) -> Result<()> {
        write_json(path, &self.document())
    }

    fn document(&self) -> Document<'_> {
        let Self { arguments, history, verdict } = self;
        let (workers, servers, switches) =
            (&history.counts.workers, &history.counts.servers, &history.counts.switches);
        let injected = history.injected.iter().map(|injected| Injected {
            action: action(injected),
            target: &injected.process,
            seconds: history.seconds(injected.at),
            recovery_ms: history.recovery(injected).map(milliseconds),
            stall_ms: history.stall_after(injected).map(milliseconds),
        });
        Document {
            equal: verdict.is_equal(),
            differences: verdict.differences,
            differences_named: &verdict.named,
            values_compared: verdict.values,
            workers: Workers {
                ended: verdict.workers_ended,
                left: verdict.workers_left,
                killed: verdict.workers_killed,
            },
            pushes: Pushes {
                issued: verdict.pushes_issued,
                acknowledged: verdict.pushes_acknowledged,
                open: verdict.pushes_open,
                rows: workers.rows,
                rows_hot: workers.rows_hot,
                rows_cold: workers.rows_cold,
                rows_over_bound: workers.rows_too_large,
            },
            transport: Transport {
                packets: workers.packets,
                retransmits: workers.retransmits,
                duplicates: switches.duplicates,
                nacks: workers.refused,
                packet_tags: history.counts.tags,
                forged: switches.forged + workers.forged,
                stall_ms_max: self.stall_ms_max(),
            },
            server: Server {
                rounds: servers.rounds,
                duplicates: servers.duplicates,
                replays: servers.replays,
                fenced: servers.fenced,
                lost_pushes: servers.lost_pushes,
                lost_rounds: servers.lost_rounds,
                checkpoints: self.checkpoints(),
                rows: servers.rows,
                rows_on_disk: servers.rows_on_disk,
                disk_rows_read: servers.disk_rows_read,
                disk_rows_written: servers.disk_rows_written,
                shards_over_limit: servers.shards_over_limit,
            },
            failover: Failover {
                views: self.views(),
                regions_moved: self.regions_moved(),
                recoveries: history.count(|event| matches!(event, Event::Recovered)),
                lost: lost(&history.entries),
                injected_faults: injected.collect(),
            },
            configuration: Configuration {
                workers: arguments.workers,
                servers: arguments.servers,
                shards_per_server: arguments.shards_per_server,
                plane: arguments.plane,
                switches: arguments.switches,
                standby: arguments.standby,
                seconds: arguments.seconds,
                loss: arguments.faults.loss,
                duplicate: arguments.faults.duplicate,
                reorder: arguments.faults.reorder,
                seed: arguments.seed,
                log: arguments.log,
                checkpoint_every: arguments.checkpoint_every.map(|every| every.as_secs_f64()),
                memory_limit: arguments.memory_limit,
                kill: arguments.kill.iter().map(ToString::to_string).collect(),
                drain: arguments.drain.iter().map(ToString::to_string).collect(),
            },
        }
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
                "{} workers, {} servers of {} shards, {} + {} switches; loss {}, duplication {}, reordering {}; seed {}",
                arguments.workers,
                arguments.servers,
                arguments.shards_per_server,
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
        if let Some((value, note)) = packet_tags(counts.tags, counts.switches.forged + counts.workers.forged)
        {
            row("packet tags", value, note);
        }
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
                self.checkpoints().to_string(),
                format!(
                    "{}; lost by servers: {} acknowledged pushes, {} rounds",
                    if arguments.log { "with a log" } else { "without a log" },
                    group(counts.lost_pushes),
                    group(counts.lost_rounds)
                ),
            );
        }
        if let Some((value, note)) = rows_on_disk(&counts.servers) {
            row("on disk", value, note);
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
                "{} values compared, {} differ; {} workers came to the end, {} left before, {} were killed",
                group(verdict.values),
                group(verdict.differences),
                verdict.workers_ended,
                verdict.workers_left,
                verdict.workers_killed
            ),
        );
        println!("{}", summary(rows));
    }
}

fn action(injected: &InjectedFault) -> String {
    match injected.kind {
        FaultKind::Killed(target) => format!("kill {target}"),
        FaultKind::Drained(target) => format!("drain {target}"),
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
        FaultKind::Drained(Switch) => "terminated until its regions had another owner",
        FaultKind::Drained(Worker) => "terminated until the others went on without it",
        FaultKind::Drained(Server) => "terminated until it was back with all it had",
        FaultKind::Drained(Controller) => "terminated until the next had taken over",
        FaultKind::Migrated => "relieved until its regions had another owner",
    }
}
