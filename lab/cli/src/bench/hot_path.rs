//! `libra-lab bench hot-path`: workers and a switch in processes of their own, on a network path of their own if that is wanted.

mod program;
mod report;
mod topology;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use libra_dataplane::entries_in;
use libra_net::{ControllerNode, PacketTags};
use libra_plan::{
    Budget, DEFAULT_HEADROOM_BITS, HEADROOM_BITS_MAX, HotRow, Plan, Provenance, SLOT_BYTES, Scale,
    TableShape, bound,
};
use libra_proto::{Cluster, HotPath, Outcome, Sizes, ValueFormat};
use serde::Serialize;

use self::program::ProgramSampler;
use self::report::{Limits, Report};
use super::limits::{additions, memcpy};
use super::load::{Load, Operation};
use super::processes::{ClusterSpec, Processes, abort_on_interrupt, went};
use super::rows::{Fill, Kind, Rows};
use super::scraper::Scraper;
use super::usage::UsageMonitor;
use crate::security::{RunToken, StreamSecurity};
use libra_launch::arguments::{FaultArguments, clear};
use libra_launch::document::write_json;
use libra_launch::job::failure;
use libra_launch::network;
use libra_launch::parent_guard;
use libra_launch::plane::{PlaneKind, SwitchPlane};
use libra_launch::progress::Bars;

/// The cold path is measured for no longer: it is there to be compared with.
const COLD_SECONDS_MAX: f64 = 3.0;

/// Bytes of a packet that the parser of a Tofino reads (paper, section 3.4).
const TOFINO_BYTES: usize = 192;
/// No gradient of the workers is larger.
const GRADIENT_MAX: f32 = 1.0;

/// Pushes and pulls hot rows through a switch in a process or in the kernel, each member in a process of its own.
///
/// All rows have width 1 and a slot in the switch. Each worker keeps a few operations under way, of rows that it draws by Zipf's law, distinct and sorted
/// in each operation. A server gets the sums of rounds, as in a job. Afterwards the same workers push and pull the same rows without
/// the switch, at the server. Limits of the machine are measured in the same run.
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
    /// Data plane of the switch
    #[arg(long, value_name = "PLANE", value_enum, default_value_t)]
    plane: PlaneKind,
    /// Path between workers and switch; --plane xdp needs veth, and veth needs root
    #[arg(long, value_name = "PATH", value_enum)]
    path: Option<PathKind>,
    /// Size of packets
    #[arg(long, value_enum, default_value_t = Profile::Mtu1500)]
    profile: Profile,
    /// Lanes of the switch, as of one that wires each place of a packet to a register: a packet has an entry for each
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "profile", value_parser = clap::value_parser!(u8).range(1..))]
    lanes: u8,
    /// Operation of workers
    #[arg(long = "op", value_name = "OP", value_enum, default_value_t = Operation::Push)]
    operation: Operation,
    /// Operations of a worker that are under way at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    open: u16,
    /// Pushes that a bank takes before it is closed and its sums go to the server
    #[arg(long = "pushes-per-round", alias = "pushes-per-epoch", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pushes_per_round: u32,
    /// Tags of packets: MACs, or none
    #[arg(long, value_enum, default_value = "off")]
    auth: Tags,
    #[command(flatten)]
    faults: FaultArguments,
    /// Seed of the rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// The namespace of the switch: this process is in that of the others
    #[arg(long, hide = true)]
    switch_namespace: Option<String>,
    /// Scrapes the metrics of all members once a second meanwhile, as Prometheus does
    #[arg(long)]
    scraped: bool,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

/// Path between workers and switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum PathKind {
    /// The loopback interface
    Loopback,
    /// A veth pair between network namespaces
    Veth,
}

/// Tags of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Tags {
    /// None
    Off,
    /// MACs
    On,
}

/// Size of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Profile {
    /// 192 bytes, 27 entries: as long a packet as a switch of hardware parses
    Tofino,
    /// As many entries as an Ethernet frame holds
    Mtu1500,
    /// As many entries as a packet can have, 255, for paths with an MTU of 1,588 or more
    Mtu9000,
}

impl Profile {
    fn entries(self) -> u8 {
        match self {
            Self::Tofino => entries_in(TOFINO_BYTES),
            Self::Mtu1500 => 240,
            Self::Mtu9000 => u8::MAX,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    SwitchPlane::from(arguments.plane).check_lanes(arguments.lanes)?;
    if let Some(network) = topology::needed(arguments)? {
        return topology::run_again_inside(&network);
    }
    if arguments.switch_namespace.is_some() {
        parent_guard::exit_with_parent(|_| ())?;
    }
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
    arguments.faults.rates()?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let bars = Bars::new(arguments.quiet);
    let spinner = bars.spinner("bench");
    spinner.set_message("limits of this machine");
    let limits = Limits {
        additions_per_second: additions(&load.rows.batches(0)?, usize::try_from(arguments.slots)?),
        memcpy_bytes_per_second: memcpy(),
    };
    spinner.set_message(format!("{} s through the switch", load.seconds));
    let hot = measure(arguments, &load, 1)?;
    let cold_load = Load { seconds: load.seconds.min(COLD_SECONDS_MAX), ..load.clone() };
    spinner.set_message(format!("{} s past it, to the server", cold_load.seconds));
    let cold = measure(arguments, &cold_load, 0)?;
    spinner.finish_and_clear();
    let report = Report::new(arguments, &load, hot, cold, limits)?;
    if !arguments.quiet {
        report.print();
    }
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

/// Result of a job, and the usage of its processes.
struct Measured {
    outcome: Outcome,
    switches: UsageMonitor,
    /// Time of the program in the kernel for each packet.
    program: Option<Duration>,
    workers: UsageMonitor,
    servers: UsageMonitor,
}

/// Runs the load with a switch or without one: without, all rows are cold.
fn measure(arguments: &Arguments, load: &Load, switches: u16) -> Result<Measured> {
    let sizes = Sizes { servers: 1, switches, workers: arguments.workers };
    let namespace = arguments.switch_namespace.as_ref();
    let host = namespace.map_or(Ipv4Addr::LOCALHOST, |_| network::HOSTS.into());
    let token = RunToken::new(StreamSecurity::Off)?;
    let tags = match arguments.auth {
        Tags::Off => PacketTags::Off,
        Tags::On => PacketTags::Mac,
    };
    let scraper = arguments.scraped.then(Scraper::start).transpose()?;
    let inspector = scraper.as_ref().map(Scraper::inspector);
    let controller = ControllerNode::bind(SocketAddr::from((host, 0)))?.with_packet_tags(tags);
    let controller = controller.with_inspector(inspector);
    let faults = arguments.faults.options();
    let options = [topology::switch_options(arguments), faults.clone()].concat();
    let switch = (options.as_slice(), namespace.map(String::as_str));
    let programs =
        (arguments.plane == PlaneKind::Xdp && switches > 0).then(ProgramSampler::start).transpose()?;
    let processes = Processes::start(
        ClusterSpec {
            sizes,
            shards_per_server: 1,
            token,
            switch,
            worker: &faults,
            state: None,
            is_scraped: arguments.scraped,
        },
        controller.address(),
    )?;
    let (switches, workers) = (processes.monitor_switches()?, processes.monitor_workers()?);
    let servers = processes.monitor_servers()?;
    let outcome = run_job(controller, sizes, arguments, load)?;
    if let Some(scraper) = scraper {
        Bars::new(arguments.quiet).line(&scraper.finish()?.line());
    }
    let program = programs.map(ProgramSampler::end).transpose()?.flatten();
    Ok(Measured { outcome, switches, program, workers, servers })
}

impl Arguments {
    /// Entries of a packet, at most.
    fn entries(&self) -> u8 {
        if self.lanes > 1 { self.lanes } else { self.profile.entries() }
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

    /// All rows are hot; those that are drawn most come first, as in every plan, in another order than keys.
    fn plan(&self, load: &Load) -> Plan {
        let table = load.rows.table();
        let shape = TableShape { name: table.name, keys: table.keys, width: 1, hot: true };
        // A bank that is half full is closed: it should not be by small packets before its pushes are there, or before
        // it has as many packets as end every round (rule E1).
        let packets = load.rows.batch.div_ceil(self.entries().into()) as u64;
        let round = (packets * u64::from(self.pushes_per_round)).next_power_of_two();
        let bits = u8::try_from(round.ilog2() + 2).unwrap_or(HEADROOM_BITS_MAX);
        let headroom_bits = bits.clamp(DEFAULT_HEADROOM_BITS, 20.min(HEADROOM_BITS_MAX));
        let scale = Scale::fit(GRADIENT_MAX, bound(headroom_bits));
        Plan {
            number: 1,
            provenance: Provenance { tool: "libra-lab bench hot-path".to_owned(), ..Provenance::default() },
            tables: vec![shape],
            budget: Budget { p: 1.0, c: 1.0, on_chip_bytes: self.slots * SLOT_BYTES },
            headroom_bits,
            predicted_share: 1.0,
            rows: (0..self.slots)
                .zip(load.rows.keys_of_ranks(0..self.slots))
                .map(|(rank, key)| HotRow { key, count: self.slots - rank, scale })
                .collect(),
        }
    }
}

fn run_job(controller: ControllerNode, sizes: Sizes, arguments: &Arguments, load: &Load) -> Result<Outcome> {
    let hot_path = HotPath {
        entries_max: arguments.entries(),
        pushes_per_round: arguments.pushes_per_round,
        ..HotPath::for_workers(sizes.workers)
    }
    .with_lanes(arguments.lanes);
    let plan = (sizes.switches > 0).then(|| arguments.plan(load));
    let mut cluster = Cluster::new(1, vec![load.rows.table()], plan, hot_path);
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
