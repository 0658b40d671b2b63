//! `libra bench hot-path`: workers and a switch in processes of their own, over UDP.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libra_net::ControllerNode;
use libra_plan::{
    Budget, DEFAULT_HEADROOM_BITS, HotRow, Plan, Provenance, SLOT_BYTES, Scale, TableShape, bound,
};
use libra_proto::{
    Cluster, HotPath, Outcome, Sizes, Statistics, SwitchStatistics, ValueFormat, WorkerStatistics,
};
use serde::Serialize;

use super::latency::Latency;
use super::limits::{RandomAccesses, TIME, memcpy};
use super::load::{Load, Operation};
use super::processes::{Cast, Processes, abort_on_interrupt, went};
use super::report::{million, print};
use super::rows::{Fill, Kind, Rows};
use super::usage::Watch;
use super::worker::{Account, Together};
use crate::arguments::{clear, write_json};
use crate::job::failure;
use crate::progress::Bars;

/// No gradient of the workers is larger.
const GRADIENT_MAX: f32 = 1.0;

/// Pushes and pulls hot rows through a software switch over UDP, each member in a process of its own.
///
/// All rows have width 1 and a slot in the switch. Each worker keeps a few operations under way, of rows that it draws by Zipf's law, distinct and sorted
/// in each operation. A server gets the sums of epochs, as in a job. Limits of the machine are measured in the same run.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Hot rows, a slot each
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    slots: u64,
    /// Rows of one operation; without it a third of the slots, but no more than 10,000
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Exponent of Zipf's law: 0 makes all rows equally likely
    #[arg(long, value_name = "S", default_value_t = 1.05)]
    zipf: f64,
    /// How large packets are
    #[arg(long, value_enum, default_value_t = Profile::Mtu1500)]
    profile: Profile,
    /// What workers do
    #[arg(long = "op", value_name = "OP", value_enum, default_value_t = Operation::Push)]
    operation: Operation,
    /// Operations of a worker that are under way at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    open: u16,
    /// Pushes that a bank takes before it is closed and its sums go to the server
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pushes_per_epoch: u32,
    /// Decides which rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

/// How large packets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Profile {
    /// 16 entries: what a switch of hardware has lanes for
    Tofino,
    /// As many entries as an Ethernet frame holds
    Mtu1500,
}

impl Profile {
    fn entries(self) -> u8 {
        match self {
            Self::Tofino => 16,
            Self::Mtu1500 => 240,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let load = arguments.load();
    let batch = load.rows.batch;
    if batch == 0 || batch as u64 > arguments.slots / 2 {
        bail!(
            "--batch {batch}: an operation has at least 1 row and at most half of the --slots {}",
            arguments.slots
        );
    }
    load.rows.check()?;
    super::check_seconds(arguments.seconds)?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let bars = Bars::new(arguments.quiet);
    let spinner = bars.spinner("bench");
    spinner.set_message("limits of this machine");
    let limits = Limits {
        random_accesses_per_second: RandomAccesses::new(&load.rows)?.per_second(TIME),
        memcpy_bytes_per_second: memcpy(),
    };
    spinner.set_message(format!("{} s are measured", load.seconds));
    let controller = ControllerNode::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let cast = Cast { sizes: arguments.sizes(), state: None };
    let processes = Processes::start(cast, controller.address())?;
    let watches = [processes.watch_switches()?, processes.watch_workers()?, processes.watch_servers()?];
    let outcome = run_job(controller, arguments, &load);
    spinner.finish_and_clear();
    let report = Report::new(arguments, &load, &outcome?, watches, limits)?;
    if !arguments.quiet {
        report.print();
    }
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

impl Arguments {
    fn sizes(&self) -> Sizes {
        Sizes { servers: 1, switches: 1, workers: self.workers }
    }

    fn load(&self) -> Load {
        let third = usize::try_from(self.slots / 3).unwrap_or(usize::MAX).clamp(1, 10_000);
        let rows = Rows {
            keys: self.slots,
            sparse: false,
            width: 1,
            optimizer: Kind::Sgd,
            fill: Fill::All,
            batch: self.batch.unwrap_or(third),
            zipf: self.zipf,
            seed: self.seed,
        };
        Load {
            operation: self.operation,
            rows,
            wire: ValueFormat::F32,
            open: self.open.into(),
            seconds: self.seconds,
            workers: self.workers,
        }
    }

    /// All rows are hot.
    fn plan(&self, load: &Load) -> Plan {
        let table = load.rows.table();
        let shape = TableShape { name: table.name, keys: table.keys, width: 1, hot: true };
        let scale = Scale::fit(GRADIENT_MAX, bound(DEFAULT_HEADROOM_BITS));
        Plan {
            number: 1,
            provenance: Provenance { tool: "libra bench hot-path".to_owned(), ..Provenance::default() },
            tables: vec![shape],
            budget: Budget { p: 1.0, c: 1.0, on_chip_bytes: self.slots * SLOT_BYTES },
            headroom_bits: DEFAULT_HEADROOM_BITS,
            predicted_share: 1.0,
            rows: (0..self.slots).map(|key| HotRow { key, count: self.slots - key, scale }).collect(),
        }
    }
}

fn run_job(controller: ControllerNode, arguments: &Arguments, load: &Load) -> Result<Outcome> {
    let sizes = arguments.sizes();
    let hot_path = HotPath {
        entries_max: arguments.profile.entries(),
        pushes_per_epoch: arguments.pushes_per_epoch,
        ..HotPath::for_workers(sizes.workers)
    };
    let mut cluster = Cluster::new(1, vec![load.rows.table()], Some(arguments.plan(load)), hot_path);
    cluster.task = load.to_text()?;
    let (ask, commands) = tokio::sync::mpsc::unbounded_channel();
    abort_on_interrupt(ask);
    let mut ended = None;
    let outcome = controller.run(sizes, cluster, commands, |event| {
        ended = ended.take().or_else(|| went(event));
    });
    match ended {
        Some(ended) => bail!("{ended}: what the others did is no figure"),
        None => outcome.map_err(failure),
    }
}

#[derive(Debug, Serialize)]
struct Report {
    plane: &'static str,
    profile: Profile,
    load: Load,
    /// A pair is a slot and a value; each counts once, however often its packet was sent.
    pairs_per_second: f64,
    /// From workers to the switch.
    packets_per_second: f64,
    /// Of those packets, the share that was sent again.
    sent_again: f64,
    switch: Processor,
    workers: Processor,
    server: Processor,
    /// From the beginning of an operation to its answer.
    latency_us: Latency,
    limits: Limits,
}

/// All processes of a kind.
#[derive(Debug, Serialize)]
struct Processor {
    /// User and system.
    cpu_ns_per_pair: f64,
}

#[derive(Debug, Serialize)]
struct Limits {
    random_accesses_per_second: f64,
    memcpy_bytes_per_second: f64,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    fn new(
        arguments: &Arguments,
        load: &Load,
        outcome: &Outcome,
        watches: [Watch; 3],
        limits: Limits,
    ) -> Result<Self> {
        let accounts = Account::of(outcome)?;
        let Together { begun, ended, pairs_per_second, pairs } = Together::of(&accounts)?;
        let mut usage = watches.into_iter().map(|watch| {
            let cpu_ns = watch.between(begun, ended)?.cpu_ns;
            anyhow::Ok(Processor { cpu_ns_per_pair: cpu_ns as f64 / pairs })
        });
        let mut next = || usage.next().context("three kinds are watched")?;
        let (switch, workers, server) = (next()?, next()?, next()?);
        let (of_workers, of_switch) = counts(outcome);
        if of_workers.rows_cold > 0 || of_switch.packets == 0 {
            bail!("{} rows went past the switch: this is no figure of the hot path", of_workers.rows_cold);
        }
        // Of the whole job, with what comes before the measurement.
        let packets_per_row =
            of_workers.packets as f64 / (of_workers.rows_hot + of_workers.rows_pulled_hot) as f64;
        let latencies = accounts.iter().flat_map(|account| account.latencies.iter().copied()).collect();
        Ok(Self {
            plane: "udp",
            profile: arguments.profile,
            load: load.clone(),
            pairs_per_second,
            packets_per_second: pairs_per_second * packets_per_row,
            sent_again: of_workers.retransmits as f64 / of_workers.packets as f64,
            switch,
            workers,
            server,
            latency_us: Latency::of(latencies)?,
            limits,
        })
    }

    fn print(&self) {
        let Self { load, latency_us, limits, .. } = self;
        let title = format!(
            "{} workers, 1 UDP switch; {} slots; {} of {} rows, {} under way; at most {} entries a packet; Zipf {}; {} s",
            load.workers,
            load.rows.keys,
            load.operation.name(),
            load.rows.batch,
            load.open,
            self.profile.entries(),
            load.rows.zipf,
            load.seconds
        );
        let processor = |processor: &Processor| format!("{:.1} ns/pair", processor.cpu_ns_per_pair);
        let random = limits.random_accesses_per_second;
        print(
            title,
            vec![
                (
                    "pairs",
                    million(self.pairs_per_second),
                    format!("{:.2} of the random accesses of one core", self.pairs_per_second / random),
                ),
                (
                    "packets",
                    million(self.packets_per_second),
                    format!("from workers; {:.3}% of them were sent again", 100.0 * self.sent_again),
                ),
                ("switch CPU", processor(&self.switch), "user and system".to_owned()),
                ("worker CPU", processor(&self.workers), "user and system, all workers".to_owned()),
                ("server CPU", processor(&self.server), "user and system".to_owned()),
                latency_us.line(),
                (
                    "limits",
                    million(random),
                    "random additions to as many values as there are slots".to_owned(),
                ),
                ("", format!("{:.1} GB/s", limits.memcpy_bytes_per_second / 1e9), "memcpy".to_owned()),
            ],
        );
    }
}

fn counts(outcome: &Outcome) -> (WorkerStatistics, SwitchStatistics) {
    let (mut workers, mut switches) = (WorkerStatistics::default(), SwitchStatistics::default());
    for (_, statistics) in &outcome.statistics {
        match statistics {
            Statistics::Worker(worker) => workers += *worker,
            Statistics::Switch(switch) => switches += *switch,
            Statistics::Server(_) => {}
        }
    }
    (workers, switches)
}
