//! `libra-lab bench controller`: the time of one controller to start a cluster and to send it a new view, and the cost of a view for a switch.

mod harness;
mod region;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use self::harness::{ControllerHarness, Cost};
use self::region::RegionCost;
use super::report::{Runs, print};
use libra_launch::arguments::clear;
use libra_launch::document::write_json;

/// Views sent after the start; the median counts.
const VIEWS: u16 = 5;
/// Regions are numbered by a byte, and each shard has one.
const SERVERS_MAX: u16 = 256;

/// Drives the controller of a cluster of so many members, without sockets.
///
/// The controller is the role that ships, on one thread; each message that it sends is encoded as for the wire and answered as its receiver would.
/// First all members join and are started, then switches join as standbys, one after the other, and each makes a view that is sent to all. Of the members
/// one in 16 is a server (256 at most), one in 512 a switch (2 at least), and the others are workers. Times are those of the processor.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Members of the cluster, one run for each number
    #[arg(long, value_name = "N,N..", value_delimiter = ',', default_values_t = [256, 1024], value_parser = clap::value_parser!(u16).range(16..=8192))]
    members: Vec<u16>,
    /// Hot rows of the plan, of one value each
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(256..=1 << 20))]
    hot_rows: u64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

/// Members of each kind in a cluster of this size.
#[derive(Debug, Clone, Copy, Serialize)]
struct Crowd {
    members: u16,
    servers: u16,
    switches: u16,
    workers: u16,
}

impl Crowd {
    fn of(members: u16) -> Self {
        let servers = (members / 16).clamp(1, SERVERS_MAX);
        let switches = (members / 512).max(2);
        Self { members, servers, switches, workers: members - servers - switches }
    }
}

#[derive(Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    crowd: Crowd,
    /// From the first join to the last `Start`.
    start: Cost,
    /// The median of several.
    view: Cost,
    /// At a switch.
    region: RegionCost,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { members, hot_rows, json, quiet } = arguments;
    if let Some(path) = json {
        clear(path)?;
    }
    let mut figures = Vec::new();
    for &members in members {
        let crowd = Crowd::of(members);
        let mut harness = ControllerHarness::new(crowd, *hot_rows);
        let start = harness.start()?;
        let mut views = Vec::new();
        for _ in 0..VIEWS {
            views.push(harness.change_view()?);
        }
        views.sort_by(|one, other| one.milliseconds.total_cmp(&other.milliseconds));
        let Some(view) = views.into_iter().nth(usize::from(VIEWS / 2)) else { bail!("no view was sent") };
        let region = RegionCost::measure(crowd, *hot_rows)?;
        let figure = Figures { crowd, start, view, region };
        if !quiet {
            figure.print();
        }
        figures.push(figure);
    }
    if let Some(path) = json {
        write_json(path, &Runs { runs: &figures })?;
    }
    Ok(())
}

impl Figures {
    fn print(&self) {
        let Crowd { members, servers, switches, workers } = self.crowd;
        let title = format!("{members} members: {servers} servers, {switches} switches, {workers} workers");
        let mut lines = Vec::new();
        for (name, cost) in [("start", self.start), ("view", self.view)] {
            lines.push((
                name,
                format!("{:.1} ms", cost.milliseconds),
                "of one core, messages encoded".to_owned(),
            ));
            let [server, switch, worker] = [cost.server_bytes, cost.switch_bytes, cost.worker_bytes];
            let remark = format!("a server {server} bytes, a switch {switch}, a worker {worker}");
            lines.push(("", megabytes(cost.bytes), remark));
            lines.push(("", megabytes(cost.waiting_bytes), "wait to be written at once, at most".to_owned()));
            let remark = "memory of this process beyond that before the cluster, at most".to_owned();
            lines.push(("", megabytes(cost.resident_bytes), remark));
        }
        let RegionCost { memory_bytes, senders, full_round_bytes, round_bytes } = self.region;
        lines.push(("region", megabytes(memory_bytes), "of a switch in software, for one region".to_owned()));
        let remark = format!("a round with a packet of each of {senders} workers");
        lines.push(("", format!("{full_round_bytes} bytes"), remark));
        lines.push((
            "",
            format!("{round_bytes} bytes"),
            "the next, with one packet of one worker".to_owned(),
        ));
        print(&title, lines);
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
