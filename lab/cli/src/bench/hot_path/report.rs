//! Report of `libra-lab bench hot-path`.

use anyhow::{Result, bail};
use libra_proto::{Outcome, Statistics, SwitchStatistics, WorkerStatistics};
use serde::Serialize;

use super::{Arguments, Measured, PathKind, Profile};
use crate::bench::latency::Latency;
use crate::bench::load::Load;
use crate::bench::report::{million, print};
use crate::bench::usage::UsageMonitor;
use crate::bench::worker::{Account, Aggregate};
use libra_launch::plane::PlaneKind;

/// Each value counts once, however often its packet was sent.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    plane: PlaneKind,
    path: PathKind,
    /// None if lanes determine the size of packets.
    profile: Option<Profile>,
    lanes: u8,
    entries_max: u8,
    #[serde(rename = "pushes_per_round")]
    pushes_per_round: u32,
    /// Probability that a datagram is lost, each way.
    loss: f64,
    load: Load,
    goodput: Goodput,
    switch: Switch,
    /// Without the program of a switch in the kernel, which is counted as the switch's.
    workers: Processor,
    server: Processor,
    /// Workers, switch and server.
    total: Processor,
    /// From the beginning of an operation to its answer.
    latency_us: Latency,
    /// Packets that workers sent again, of the whole job.
    retransmits: u64,
    /// The same values without a switch.
    cold: Cold,
    limits: Limits,
}

#[derive(Debug, Serialize)]
struct Goodput {
    values_per_second: f64,
    /// From workers to the switch.
    packets_per_second: f64,
    /// The least that a worker got, of its fair share.
    min_fair_share: f64,
}

/// All processes of a kind.
#[derive(Debug, Clone, Copy, Serialize)]
struct Processor {
    /// User and system.
    cpu_ns_per_value: f64,
}

#[derive(Debug, Serialize)]
struct Switch {
    /// User and system, of rounds and of the program in the kernel as well.
    cpu_ns_per_value: f64,
    /// Of it what the program in the kernel took, without what the kernel does to receive and send.
    program_ns_per_value: Option<f64>,
    values_per_second_per_core: f64,
    /// Of the additions that a core can do in memory.
    share_of_limit: f64,
}

#[derive(Debug, Serialize)]
struct Cold {
    values_per_second: f64,
    workers: Processor,
    server: Processor,
    /// Workers and server.
    total: Processor,
    /// Speedup by the switch.
    gain: f64,
}

/// Of one core each.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Limits {
    /// Values added into as many slots, streamed from memory.
    pub(super) additions_per_second: f64,
    pub(super) memcpy_bytes_per_second: f64,
}

impl Processor {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    fn of(monitor: UsageMonitor, aggregate: Aggregate) -> Result<Self> {
        let usage = monitor.between(aggregate.begun, aggregate.ended)?;
        Ok(Self { cpu_ns_per_value: usage.cpu_ns as f64 / aggregate.rows })
    }

    fn without(self, cpu_ns_per_value: f64) -> Self {
        Self { cpu_ns_per_value: self.cpu_ns_per_value - cpu_ns_per_value }
    }
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "figures have fewer digits than an f64")]
    pub(super) fn new(
        arguments: &Arguments,
        load: &Load,
        hot: Measured,
        cold: Measured,
        limits: Limits,
    ) -> Result<Self> {
        let (of_workers, of_switch) = counts(&hot.outcome);
        if of_workers.rows_cold > 0 || of_switch.packets == 0 {
            bail!("{} rows went past the switch: this is no figure of the hot path", of_workers.rows_cold);
        }
        let accounts = Account::of(&hot.outcome)?;
        let aggregate = Aggregate::of(&accounts)?;
        let values_per_second = aggregate.rows_per_second;
        // Of the whole job, with what comes before the measurement.
        let packets_per_row =
            of_workers.packets as f64 / (of_workers.rows_hot + of_workers.rows_pulled_hot) as f64;
        let least = accounts.iter().map(Account::rows_per_second).fold(f64::INFINITY, f64::min);
        // The program in the kernel runs on the time of the process that sent the packet.
        let program = hot.program.map(|packet| packet.as_nanos() as f64 * packets_per_row);
        let process = Processor::of(hot.switches, aggregate)?.cpu_ns_per_value;
        let cpu_ns_per_value = process + program.unwrap_or(0.0);
        let per_core = 1e9 / cpu_ns_per_value;
        let workers = Processor::of(hot.workers, aggregate)?.without(program.unwrap_or(0.0));
        let server = Processor::of(hot.servers, aggregate)?;
        Ok(Self {
            plane: arguments.plane,
            path: if arguments.switch_namespace.is_some() { PathKind::Veth } else { PathKind::Loopback },
            profile: (arguments.lanes == 1).then_some(arguments.profile),
            lanes: arguments.lanes,
            entries_max: arguments.entries(),
            pushes_per_round: arguments.pushes_per_round,
            loss: arguments.faults.loss,
            load: load.clone(),
            goodput: Goodput {
                values_per_second,
                packets_per_second: values_per_second * packets_per_row,
                min_fair_share: least * accounts.len() as f64 / values_per_second,
            },
            switch: Switch {
                cpu_ns_per_value,
                program_ns_per_value: program,
                values_per_second_per_core: per_core,
                share_of_limit: per_core / limits.additions_per_second,
            },
            workers,
            server,
            total: Processor {
                cpu_ns_per_value: cpu_ns_per_value + workers.cpu_ns_per_value + server.cpu_ns_per_value,
            },
            latency_us: Latency::of(
                accounts.iter().flat_map(|account| account.latencies.iter().copied()).collect(),
            )?,
            retransmits: of_workers.retransmits,
            cold: Cold::new(cold, values_per_second)?,
            limits,
        })
    }

    pub(super) fn print(&self) {
        let Self { load, goodput, switch, cold, latency_us, limits, .. } = self;
        let title = format!(
            "{} workers, 1 {} switch, {}; {} slots; {} of {} rows, {} under way; at most {} entries a packet, {} pushes a round; Zipf {}; {} s",
            load.workers,
            if self.plane == PlaneKind::Udp { "UDP" } else { "XDP" },
            if self.path == PathKind::Veth { "veth" } else { "loopback" },
            load.rows.keys,
            load.operation.name(),
            load.rows.batch,
            load.open,
            self.entries_max,
            self.pushes_per_round,
            load.rows.zipf,
            load.seconds
        );
        let cpu = |ns: f64| format!("{ns:.1} ns/value");
        print(
            &title,
            vec![
                (
                    "values",
                    million(goodput.values_per_second),
                    format!("the slowest worker got {:.2} of its fair share", goodput.min_fair_share),
                ),
                (
                    "packets",
                    million(goodput.packets_per_second),
                    format!("from workers; {} were sent again", self.retransmits),
                ),
                (
                    "switch CPU",
                    cpu(switch.cpu_ns_per_value),
                    format!(
                        "user and system: {} a core, {:.2} of what memory allows{}",
                        million(switch.values_per_second_per_core),
                        switch.share_of_limit,
                        switch
                            .program_ns_per_value
                            .map_or_else(String::new, |ns| format!("; {ns:.2} ns in the XDP program"))
                    ),
                ),
                ("worker CPU", cpu(self.workers.cpu_ns_per_value), "all workers".to_owned()),
                ("server CPU", cpu(self.server.cpu_ns_per_value), String::new()),
                (
                    "total CPU",
                    cpu(self.total.cpu_ns_per_value),
                    format!(
                        "workers, switch and server; {} without a switch",
                        cpu(cold.total.cpu_ns_per_value)
                    ),
                ),
                latency_us.line(),
                (
                    "no switch",
                    million(cold.values_per_second),
                    format!(
                        "the same values at the server: the switch makes it {:.2} times that; workers {}, server {}",
                        cold.gain,
                        cpu(cold.workers.cpu_ns_per_value),
                        cpu(cold.server.cpu_ns_per_value)
                    ),
                ),
                (
                    "limits",
                    million(limits.additions_per_second),
                    "additions to as many slots, of values from memory".to_owned(),
                ),
                ("", format!("{:.1} GB/s", limits.memcpy_bytes_per_second / 1e9), "memcpy".to_owned()),
            ],
        );
    }
}

impl Cold {
    fn new(measured: Measured, hot: f64) -> Result<Self> {
        let aggregate = Aggregate::of(&Account::of(&measured.outcome)?)?;
        let workers = Processor::of(measured.workers, aggregate)?;
        let server = Processor::of(measured.servers, aggregate)?;
        Ok(Self {
            values_per_second: aggregate.rows_per_second,
            workers,
            server,
            total: Processor { cpu_ns_per_value: workers.cpu_ns_per_value + server.cpu_ns_per_value },
            gain: hot / aggregate.rows_per_second,
        })
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
