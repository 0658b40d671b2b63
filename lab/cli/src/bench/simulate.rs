//! `libra-lab bench simulate`: what a cluster that is not there would do.

use core::time::Duration;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use libra_paper::Skew;
use libra_paper::switchml::Profile;
use libra_perfsim::{
    DenseReport, DenseSetting, Estimate, Host, LinkSpec, Model, PowerLaw, Replay, Report, Setting, System,
    Topology, dense_pairs_per_second, estimate,
};
use serde::Serialize;

use super::calibrate::load;
use super::recorded::Recorded;
use super::report::{Runs, million, print};
use libra_launch::arguments::clear;
use libra_launch::document::write_json;

/// Settings with more pairs a push than this, of all workers, are computed, not simulated, unless --by is given.
const SIMULATED_PAIRS_MAX: u64 = 1 << 20;

/// Simulates workers, servers and a switch on machines with links, and reports what limits them.
///
/// The roles are those that ship: windows, rounds, acknowledgements and flow control are not modelled, they run, in virtual time. What they take of processors
/// was measured, see `libra-lab bench calibrate`. By default the testbed of the paper: 8 machines with 64 cores and two ports of 100 Gbit/s each around a switch of
/// hardware, and one server. Workers are dealt to the machines from the first on, servers from the last on.
///
/// Settings that are too large to simulate are computed: for each resource the time that a push takes of it, and the longest of those (--by formula). If both can
/// be had, `--by both` prints one beside the other.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Method of aggregation
    #[arg(long, value_name = "SYSTEM", value_enum, default_value_t = Kind::Libra)]
    system: Kind,
    /// Numbers of workers, one run each
    #[arg(long, value_name = "N,N..", value_delimiter = ',', default_values_t = [8, 16, 32])]
    workers: Vec<u16>,
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    servers: u16,
    /// Machines of a rack
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    machines: u16,
    /// Racks, each with a switch that adds; only by formula
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    racks: u16,
    /// By how much the links of a rack to the others are slower than those of its machines together
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    oversubscription: f64,
    /// Bits a second of a machine, in Gbit/s, each way
    #[arg(long, value_name = "GBIT", default_value_t = 200.0)]
    gbits: f64,
    /// Cores of a machine
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    cores: u16,
    /// The switch is a process on a machine of its own, not hardware
    #[arg(long)]
    software_switch: bool,
    /// Skew of updates: as in the paper's online advertising (150 million rows) or search engine (9 million), or by --rows and --zipf
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Skewed::AdsLr)]
    skew: Skewed,
    /// Rows of the model
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1 << 48))]
    rows: Option<u64>,
    /// Exponent of the power law
    #[arg(long, value_name = "S")]
    zipf: Option<f64>,
    /// Values of a row
    #[arg(long = "embedding-dim", alias = "width", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=240))]
    width: u16,
    /// Distinct rows of a push
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Hot rows; for het those that each worker keeps
    #[arg(long, value_name = "K", default_value_t = 30_000)]
    hot: u64,
    /// Memory of the switch for a pool (switchml), in MB of 2^20 bytes
    #[arg(long, value_name = "MB", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    memory_mb: u16,
    /// With het: in how many pushes a row that is kept is pushed once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    staleness: u16,
    /// Pushes of a worker that are under way at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    open: u16,
    /// Pushes of a round
    #[arg(long = "pushes-per-round", alias = "pushes-per-epoch", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pushes_per_round: u32,
    /// Entries of a packet at most
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u8).range(1..))]
    entries: u8,
    /// Virtual time that is measured, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 40.0)]
    milliseconds: f64,
    /// Replays what `libra train --record DIR` has kept, once, in place of synthetic pushes: dealt in turn to the workers. With libra and ps-sparse
    #[arg(long, value_name = "DIR", conflicts_with_all = ["skew", "rows", "zipf", "width", "batch", "milliseconds", "racks"])]
    recording: Option<PathBuf>,
    /// Of a recording the first N pushes of each worker
    #[arg(long, value_name = "N", requires = "recording", value_parser = clap::value_parser!(u64).range(1..))]
    pushes: Option<u64>,
    /// Probability that a link loses a packet: a datagram is gone, a message on a stream comes a millisecond later
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    loss: f64,
    /// Source of the figures
    #[arg(long, value_name = "HOW", value_enum, default_value_t = By::Fitting)]
    by: By,
    /// Costs of the roles and their kernels: a file of `libra-lab bench calibrate --json`, or `built-in`
    #[arg(long, value_name = "FILE", default_value = "built-in")]
    costs: String,
    /// Seed of the pushes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Writes the figures to this file, for machines
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Hot rows in the switch, the others at the servers
    Libra,
    /// All rows at the servers
    PsSparse,
    /// All rows at the servers, but each worker keeps hot ones and pushes their sums now and then
    Het,
    /// Every parameter through a pool of the switch
    #[value(name = "switchml")]
    SwitchMl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Skewed {
    /// Online advertising: 30,000 of 150 million rows have half of all updates
    #[value(name = "ads-lr", alias = "oa")]
    AdsLr,
    /// Search engine: 30,000 of 9 million rows have 70%
    #[value(name = "search-lr", alias = "se")]
    SearchLr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// Simulates what fits, computes the rest, and marks which is which
    Fitting,
    /// Simulates
    Simulation,
    /// Computes
    Formula,
    /// Both
    Both,
}

/// Figures for so many workers.
#[derive(Serialize)]
struct Figures {
    workers: u16,
    system: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<Replayed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Simulated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    computed: Option<Computed>,
}

#[derive(Serialize)]
struct Replayed {
    #[serde(flatten)]
    report: Report,
    pushes: u64,
    /// Values of these pushes, gradients of layers and all.
    values: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Simulated {
    Dense(DenseReport),
    Sparse(Report),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Computed {
    /// Of a dense method.
    Rate {
        rows_per_second: f64,
    },
    Estimate(Estimate),
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    if let Some(path) = &arguments.json {
        clear(path)?;
    }
    let recorded = arguments.recorded()?;
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for &workers in &arguments.workers {
        let setting = arguments.setting(workers)?;
        let fits =
            u64::from(workers) * u64::from(arguments.batch) <= SIMULATED_PAIRS_MAX && arguments.racks == 1;
        let (simulates, computes) = match arguments.by {
            By::Fitting => (fits, !fits),
            By::Simulation => (true, false),
            By::Formula => (false, true),
            By::Both => (true, true),
        };
        let mut figures =
            Figures { workers, system: arguments.system, replayed: None, simulated: None, computed: None };
        if let Some(recorded) = &recorded {
            figures.replayed = Some(arguments.replay(workers, &setting, recorded, &mut lines)?);
            all.push(figures);
            continue;
        }
        if computes && arguments.loss > 0.0 {
            bail!("--loss {}: the formula does not model losses; use --by simulation", arguments.loss);
        }
        if simulates {
            figures.simulated = Some(arguments.simulate(workers, &setting, &mut lines)?);
        }
        if computes {
            figures.computed = Some(arguments.compute(workers, &setting, &mut lines));
        }
        all.push(figures);
    }
    let lines = lines.iter().map(|(rate, note)| ("", rate.clone(), note.clone())).collect();
    let of_what = recorded.map_or_else(|| format!("{:?}", arguments.skew), |recorded| recorded.of_what);
    print(&format!("{:?}, {of_what}: rows a second", arguments.system), lines);
    if let Some(path) = &arguments.json {
        write_json(path, &Runs { runs: &all })?;
    }
    Ok(())
}

impl Arguments {
    fn check(&self) -> Result<()> {
        if self.workers.contains(&0) {
            bail!("--workers: expected numbers from 1 up");
        }
        if !(0.0..1.0).contains(&self.loss) {
            bail!("--loss {}: expected a number from 0 up to, not including, 1", self.loss);
        }
        if self.recording.is_some() {
            if !matches!(self.system, Kind::Libra | Kind::PsSparse) {
                bail!("--recording: only libra and ps-sparse replay one");
            }
            if !matches!(self.by, By::Fitting | By::Simulation) {
                bail!("--recording: a formula replays nothing");
            }
        }
        let rows = self.model_rows();
        if u64::from(self.batch) > rows / 2 {
            bail!("--batch {}: a push has at most half of the {rows} rows", self.batch);
        }
        if self.hot > rows {
            bail!("--hot {}: there are {rows} rows", self.hot);
        }
        for (name, number) in [
            ("gbits", self.gbits),
            ("oversubscription", self.oversubscription),
            ("milliseconds", self.milliseconds),
        ] {
            if !(number > 0.0 && number <= 1e6) {
                bail!("--{name} {number}: expected a number above 0");
            }
        }
        if self.zipf.is_some_and(|zipf| !(0.0..=4.0).contains(&zipf)) {
            bail!("--zipf: expected a number from 0 to 4");
        }
        if self.racks > 1 && matches!(self.by, By::Simulation | By::Both) {
            bail!("--racks {}: one rack is simulated, several are computed", self.racks);
        }
        Ok(())
    }

    fn model_rows(&self) -> u64 {
        self.rows.unwrap_or(if self.skew == Skewed::AdsLr { 150_000_000 } else { 9_000_000 })
    }

    fn setting(&self, workers: u16) -> Result<Setting> {
        let rows = self.model_rows();
        let skew = match self.skew {
            Skewed::AdsLr => Skew::online_advertising(),
            Skewed::SearchLr => Skew::search_engine(),
        };
        let law = PowerLaw::new(rows, self.zipf.unwrap_or_else(|| skew.exponent()));
        let measured = Duration::from_secs_f64(self.milliseconds / 1e3);
        Ok(Setting {
            system: match self.system {
                Kind::Libra => System::Libra,
                Kind::Het => System::Het(self.staleness.into()),
                Kind::PsSparse | Kind::SwitchMl => System::PsSparse,
            },
            workers,
            servers: self.servers,
            topology: Topology::Rack {
                machines: self.machines.into(),
                host: Host { cores: self.cores.into(), speed: 1.0, polls: true },
                link: self.link(),
                forwarding: Duration::from_micros(1),
                hardware: !self.software_switch,
            },
            model: Model { rows, width: self.width.into(), law, batch: usize::try_from(self.batch)? },
            hot: self.hot,
            open: self.open.into(),
            pushes_per_round: self.pushes_per_round,
            entries_max: self.entries,
            costs: load(&self.costs)?,
            warm_up: measured,
            measured,
            // Some for each worker: no two workers push the same.
            drawn: (512 / usize::from(workers)).clamp(8, 64),
            seed: self.seed,
        })
    }

    fn link(&self) -> LinkSpec {
        LinkSpec { bits_per_second: self.gbits * 1e9, loss: self.loss, ..LinkSpec::DUAL_100G }
    }

    fn profile(&self) -> Profile {
        Profile { memory_bytes: u64::from(self.memory_mb) << 20, chunk: 32 }
    }

    fn simulate(
        &self,
        workers: u16,
        setting: &Setting,
        lines: &mut Vec<(String, String)>,
    ) -> Result<Simulated> {
        if self.system == Kind::SwitchMl {
            let dense = DenseSetting {
                workers,
                machines: self.machines.into(),
                link: self.link(),
                forwarding: Duration::from_micros(1),
                profile: self.profile(),
                parameters: setting.model.rows * u64::from(self.width),
                batch: self.batch.into(),
                packet_ns: 0.0,
                rounds: 8,
            };
            let report = dense.run();
            let note = format!(
                "{workers} workers, simulated {} of {} rounds: an iteration takes {:.1} ms, the busiest link is busy {:.0}%",
                report.rounds_simulated,
                report.rounds,
                report.iteration_seconds * 1e3,
                report.link_most * 100.0
            );
            lines.push((million(report.pairs_per_second), note));
            return Ok(Simulated::Dense(report));
        }
        let report = setting.run().map_err(|reason| anyhow!("{workers} workers: {reason}"))?;
        let note = format!("{workers} workers, simulated: {}", limits(&report));
        lines.push((million(report.pairs_per_second), note));
        Ok(Simulated::Sparse(report))
    }

    fn recorded(&self) -> Result<Option<Recorded>> {
        let pushes_max = self.pushes.unwrap_or(u64::MAX);
        let recorded =
            self.recording.as_ref().map(|directory| Recorded::open(directory, pushes_max)).transpose()?;
        recorded.iter().flat_map(|recorded| &recorded.notes).for_each(|note| eprintln!("{note}"));
        Ok(recorded)
    }

    fn replay(
        &self,
        workers: u16,
        setting: &Setting,
        recorded: &Recorded,
        lines: &mut Vec<(String, String)>,
    ) -> Result<Replayed> {
        let replay = Replay { frequencies: recorded.frequencies.clone(), pushes: recorded.deal(workers)? };
        let report = setting.replay(replay).map_err(|reason| anyhow!("{workers} workers: {reason}"))?;
        if report.pairs != recorded.pairs {
            bail!(
                "--recording: {} of {} updates were replayed: its files have changed meanwhile",
                report.pairs,
                recorded.pairs
            );
        }
        let note = format!(
            "{workers} workers, {} pushes replayed in {:.1} ms: {}",
            recorded.frequencies.pushes(),
            report.seconds * 1e3,
            limits(&report)
        );
        lines.push((million(report.pairs_per_second), note));
        Ok(Replayed { report, pushes: recorded.frequencies.pushes(), values: recorded.values })
    }

    fn compute(&self, workers: u16, setting: &Setting, lines: &mut Vec<(String, String)>) -> Computed {
        let racks = usize::from(self.racks);
        if self.system == Kind::SwitchMl {
            let rate = dense_pairs_per_second(setting, &self.profile(), racks);
            lines.push((
                million(rate),
                format!("{workers} workers, computed: links or round trips of the pool"),
            ));
            return Computed::Rate { rows_per_second: rate };
        }
        let estimate = estimate(setting, racks, self.oversubscription);
        let mut limits: Vec<_> = estimate.limits.iter().collect();
        limits.sort_by(|one, other| one.1.total_cmp(other.1));
        let limits: Vec<String> =
            limits.iter().take(4).map(|(name, rate)| format!("{name} {}", million(**rate))).collect();
        lines.push((
            million(estimate.pairs_per_second),
            format!("{workers} workers, computed: {}", limits.join(", ")),
        ));
        Computed::Estimate(estimate)
    }
}

/// Describes the utilization of processes and links in a simulation.
fn limits(report: &Report) -> String {
    let busy = |kind| report.roles.get(kind).map_or(0.0, |role| role.most * 100.0);
    format!(
        "busy at most: workers {:.0}%, servers {:.0}%, agent of the switch {:.0}%, links up {:.0}% and down {:.0}%; {} streams to servers; push {:.0} us; {} bytes dropped, {} packets lost",
        busy("worker"),
        busy("server"),
        busy("switch"),
        report.up.most * 100.0,
        report.down.most * 100.0,
        report.connections,
        report.latency_us[0],
        report.bytes_dropped,
        report.up.packets_lost + report.down.packets_lost
    )
}
