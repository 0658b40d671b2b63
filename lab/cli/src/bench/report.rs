//! The figures of a run: a table for a person, JSON for a machine.

use anyhow::Result;
use libra_launch::table::table;
use serde::Serialize;

use super::durability::CheckpointFigures;
use super::latency::Latency;
use super::limits::Limits;
use super::load::Load;
use super::usage::UsageMonitor;
use super::worker::{Account, Aggregate};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    load: Load,
    servers: u16,
    shards_per_server: u16,
    rows_per_second: f64,
    /// Of messages, in both directions, without TCP's own.
    bytes_per_row: f64,
    server: Server,
    /// From the beginning of an operation to its answer.
    latency_us: Latency,
    limits: Limits,
    /// Cost of a checkpoint, if one was written.
    checkpoint: Option<CheckpointFigures>,
}

/// All servers together.
#[derive(Debug, Serialize)]
struct Server {
    /// Processor time, user and system.
    cpu_ns_per_row: f64,
    resident_bytes: u64,
    /// Of all rows. Unknown if not all were made beforehand: those that pushes have made are not counted.
    resident_bytes_per_row: Option<f64>,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    pub(super) fn new(
        servers: u16,
        shards_per_server: u16,
        load: &Load,
        accounts: &[Account],
        monitor: UsageMonitor,
        limits: Limits,
        checkpoint: Option<CheckpointFigures>,
    ) -> Result<Self> {
        let Aggregate { begun, ended, rows_per_second, rows: rows_between } = Aggregate::of(accounts)?;
        let usage = monitor.between(begun, ended)?;
        let rows: u64 = accounts.iter().map(|account| account.rows).sum();
        let bytes: u64 = accounts.iter().map(|account| account.bytes).sum();
        let latencies = accounts.iter().flat_map(|account| account.latencies.iter().copied()).collect();
        Ok(Self {
            load: load.clone(),
            servers,
            shards_per_server,
            rows_per_second,
            bytes_per_row: bytes as f64 / rows as f64,
            server: Server {
                cpu_ns_per_row: usage.cpu_ns as f64 / rows_between,
                resident_bytes: usage.resident_bytes,
                resident_bytes_per_row: (load.rows.made() == load.rows.keys)
                    .then(|| usage.resident_bytes as f64 / load.rows.keys as f64),
            },
            latency_us: Latency::of(latencies)?,
            limits,
            checkpoint,
        })
    }

    pub(super) fn print(&self) {
        let Self { load, servers, shards_per_server, server, latency_us, limits, .. } = self;
        let random = limits.random_accesses_per_second;
        let stream = limits.tcp_bytes_per_second;
        let rows = &load.rows;
        let title = format!(
            "{} workers, {servers} servers of {shards_per_server} shards; {} rows of width {} ({}), {}{}; {} of {} rows, {} under way; Zipf {}; {} s",
            load.workers,
            rows.keys,
            rows.width,
            load.wire,
            rows.optimizer.name(),
            if rows.sparse { ", keys of 64 bits" } else { "" },
            load.operation.name(),
            rows.batch,
            load.open,
            rows.zipf,
            load.seconds
        );
        let ratio = self.rows_per_second / random;
        let mut lines = vec![
            (
                "rows",
                million(self.rows_per_second),
                format!("{:.2} of the random accesses of one core", ratio),
            ),
            (
                "server CPU",
                format!("{:.1} ns/row", server.cpu_ns_per_row),
                "user and system, all servers".to_owned(),
            ),
            (
                "bytes",
                format!("{:.2} a row", self.bytes_per_row),
                format!(
                    "{:.2} of what one TCP stream carries",
                    self.bytes_per_row * self.rows_per_second / stream
                ),
            ),
            (
                "memory",
                format!("{:.0} MB", megabytes(server.resident_bytes)),
                server.resident_bytes_per_row.map_or_else(
                    || "of all servers; the number of rows is not known".to_owned(),
                    |bytes| {
                        let payload = rows.payload_bytes();
                        format!("{bytes:.2} bytes a row, of which {payload} are values and state")
                    },
                ),
            ),
            latency_us.line(),
            (
                "limits",
                million(random),
                "random accesses to as much memory as values and state have, one core".to_owned(),
            ),
            ("", format!("{:.1} GB/s", limits.memcpy_bytes_per_second / 1e9), "memcpy".to_owned()),
            ("", format!("{:.1} GB/s", stream / 1e9), "one TCP stream on loopback".to_owned()),
        ];
        if let Some(figures) = &self.checkpoint {
            let CheckpointFigures { seconds, during, otherwise } = figures;
            let note = format!(
                "{:.2} of the pace otherwise; longest stall {:.1} ms, otherwise {:.1} ms; written in {seconds:.2} s",
                figures.ratio(),
                during.stall_ms_max,
                otherwise.stall_ms_max
            );
            lines.push(("checkpoint", million(during.rows_per_second), note));
        }
        print(&title, lines);
    }
}

/// The document of a benchmark with several runs.
#[derive(Debug, Serialize)]
pub(super) struct Runs<'a, T> {
    pub(super) runs: &'a [T],
}

/// Prints figures, each with a name and a remark.
pub(super) fn print(title: &str, lines: Vec<(&str, String, String)>) {
    let rows = lines.into_iter().map(|(name, figure, remark)| vec![name.to_owned(), figure, remark]);
    println!("{}", table(&["bench", "", title], &[1], rows));
}

pub(super) fn million(rate: f64) -> String {
    format!("{:.2} M/s", rate / 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
