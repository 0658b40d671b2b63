//! Contents of a vector, and the format of each of its lines.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddrV4;
use std::ops::Range;

use libra_dataplane::{Arithmetic, BankPackets, Counters, HEADER_BYTES, RegionConfig};

use crate::key::Key;
use crate::need::Need;

/// The version of the format of the files.
pub const VERSION: u32 = 1;

/// One scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// The name of its file, for messages.
    pub file: String,
    /// Abilities that a target must have beyond the minimum.
    pub needs: Vec<Need>,
    /// Steps, in this order.
    pub lines: Vec<Line>,
}

/// The vector as it is in its file, without comments.
impl fmt::Display for Vector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "conformance {VERSION}")?;
        self.needs.iter().try_for_each(|need| writeln!(formatter, "needs {need}"))?;
        self.lines.iter().try_for_each(|line| writeln!(formatter, "{}", line.step))
    }
}

/// A step, and where it is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    /// The step.
    pub step: Step,
}

/// A worker of a job, `w7.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName {
    /// The job.
    pub job: u16,
    /// The number of the worker, which is that of its flow.
    pub worker: u16,
}

impl fmt::Display for WorkerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "w{}.{}", self.job, self.worker)
    }
}

/// A region of a job, `r7.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName {
    /// The job.
    pub job: u16,
    /// The number of the region.
    pub region: u8,
}

impl RegionName {
    /// The name of the region that this describes.
    #[must_use]
    pub const fn of(config: &RegionConfig) -> Self {
        Self { job: config.job, region: config.region }
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "r{}.{}", self.job, self.region)
    }
}

/// Source of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// From the address of this worker.
    Worker(WorkerName),
    /// From an address of no worker.
    Stranger(SocketAddrV4),
    /// From the agent beside the pipeline, by a way that workers do not have.
    Agent,
}

impl fmt::Display for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(name) => name.fmt(formatter),
            Self::Stranger(address) => address.fmt(formatter),
            Self::Agent => formatter.pad("agent"),
        }
    }
}

/// Sequence numbers of one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowSeqs {
    /// The flow, which is that of the worker of this number.
    pub flow: u16,
    /// From the first one up to, and without, the end.
    pub seqs: Range<u32>,
}

/// Contents of slots; a slot that is not named holds zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slots(pub BTreeMap<u32, u32>);

impl Slots {
    /// These slots, without those that hold zero.
    #[must_use]
    pub fn of(slots: impl IntoIterator<Item = (u32, u32)>) -> Self {
        Self(slots.into_iter().filter(|&(_, value)| value != 0).collect())
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(formatter, self.0.iter().map(|(slot, value)| format!("{slot}:{value:08x}")))
    }
}

/// A datagram, and what comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Source of the datagram.
    pub from: Sender,
    /// Number of repetitions, with a sequence number higher by one each time, in question and answer.
    pub times: u32,
    /// The payload of the datagram.
    pub datagram: Vec<u8>,
    /// The payload of the answer, if there is one.
    pub answer: Option<Vec<u8>>,
}

impl Exchange {
    /// The datagram of time `n`, counted from 0.
    #[must_use]
    pub fn datagram(&self, n: u32) -> Vec<u8> {
        advanced(&self.datagram, n)
    }

    /// The answer to it.
    #[must_use]
    pub fn answer(&self, n: u32) -> Option<Vec<u8>> {
        self.answer.as_deref().map(|answer| advanced(answer, n))
    }
}

/// The bytes of `seq` in a packet.
const SEQ: Range<usize> = 18..22;

/// A packet with a sequence number that is higher by `n`.
fn advanced(packet: &[u8], n: u32) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if let Some(Ok(seq)) = packet.get(SEQ).map(<[u8; 4]>::try_from) {
        packet[SEQ].copy_from_slice(&u32::from_be_bytes(seq).wrapping_add(n).to_be_bytes());
    }
    packet
}

/// Verdict of a data plane below the IP stack on an IPv4 packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpVerdict {
    /// It is none of its business: what becomes of it is as if there were no data plane.
    Pass,
    /// It was for the data plane, which does not answer it.
    Drop,
    /// It is answered: of a vector the payload, of a target the whole IPv4 packet.
    Answer(Vec<u8>),
}

/// One operation on a target, with the expected result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The address of the switch.
    Switch(SocketAddrV4),
    /// A worker, and the address that its datagrams come from.
    Worker(WorkerName, SocketAddrV4),
    /// A worker, and the key that its packets and their answers have tags of.
    Key(WorkerName, Key),
    /// A region is opened.
    Open {
        /// Its configuration.
        config: RegionConfig,
        /// Its newest round that is durable; it takes packets for the next one.
        after: u16,
        /// Packets that were accepted before.
        seen: Vec<FlowSeqs>,
    },
    /// A region is closed and its memory forgotten.
    Close(RegionName),
    /// A datagram.
    Exchange(Exchange),
    /// An IPv4 packet.
    Ip {
        /// All of it.
        packet: Vec<u8>,
        /// Its verdict.
        verdict: IpVerdict,
    },
    /// The banks are swapped; the round that was closed by that, or `None` if the idle bank was not drained.
    Flip(RegionName, Option<u16>),
    /// The idle bank is emptied; what was in it.
    Drain(RegionName, Slots),
    /// The agent writes these values.
    Install(RegionName, Slots),
    /// The values that workers read.
    Values(RegionName, Slots),
    /// The agent sets the round that is committed and installed.
    Durable(RegionName, u16),
    /// The agent permits or forbids reads of values.
    Readable(RegionName, bool),
    /// The agent permits or forbids pushes.
    Active(RegionName, bool),
    /// All that was accepted of a flow.
    Acked(RegionName, u16, Vec<Range<u32>>),
    /// The packets that the active bank has taken.
    Bank(RegionName, BankPackets),
    /// The counters of all datagrams of workers and the agent so far.
    Counters(Counters),
}

/// One of the counters.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Its name in a file.
    pub name: &'static str,
    /// Accessor of the counter.
    pub of: fn(&mut Counters) -> &mut u64,
}

/// All counters.
pub const COUNTERS: [Counter; 19] = [
    Counter { name: "packets", of: |counters| &mut counters.packets },
    Counter { name: "pushes", of: |counters| &mut counters.pushes },
    Counter { name: "duplicates", of: |counters| &mut counters.duplicates },
    Counter { name: "retransmits", of: |counters| &mut counters.retransmits },
    Counter { name: "pulls", of: |counters| &mut counters.pulls },
    Counter { name: "installs", of: |counters| &mut counters.installs },
    Counter { name: "drains", of: |counters| &mut counters.drains },
    Counter { name: "bank_full", of: |counters| &mut counters.bank_full },
    Counter { name: "stale_plan", of: |counters| &mut counters.stale_plan },
    Counter { name: "not_installed", of: |counters| &mut counters.not_installed },
    Counter { name: "unknown_flow", of: |counters| &mut counters.unknown_flow },
    Counter { name: "inactive", of: |counters| &mut counters.inactive },
    Counter { name: "stale_view", of: |counters| &mut counters.stale_view },
    Counter { name: "malformed", of: |counters| &mut counters.malformed },
    Counter { name: "unexpected", of: |counters| &mut counters.unexpected },
    Counter { name: "foreign", of: |counters| &mut counters.foreign },
    Counter { name: "throttled", of: |counters| &mut counters.throttled },
    Counter { name: "forged", of: |counters| &mut counters.forged },
    Counter { name: "stale", of: |counters| &mut counters.stale },
];

/// The step as it is in a file: one line, or those that belong together.
impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(address) => write!(formatter, "switch {address}"),
            Self::Worker(name, address) => write!(formatter, "worker {name} {address}"),
            Self::Key(name, key) => write!(formatter, "key {name} {key}"),
            Self::Open { config, after, seen } => write_open(formatter, config, *after, seen),
            Self::Close(region) => write!(formatter, "close {region}"),
            Self::Exchange(exchange) => {
                if exchange.times != 1 {
                    writeln!(formatter, "times {}", exchange.times)?;
                }
                write!(formatter, "< {} {}\n> ", exchange.from, Hex(&exchange.datagram))?;
                match &exchange.answer {
                    Some(answer) => write!(formatter, "{}", Hex(answer)),
                    None => write!(formatter, "none"),
                }
            }
            Self::Ip { packet, verdict } => {
                write!(formatter, "< ip ")?;
                packet.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))?;
                match verdict {
                    IpVerdict::Pass => write!(formatter, "\n> pass"),
                    IpVerdict::Drop => write!(formatter, "\n> drop"),
                    IpVerdict::Answer(answer) => write!(formatter, "\n> {}", Hex(answer)),
                }
            }
            Self::Flip(region, Some(round)) => write!(formatter, "flip {region} = {round}"),
            Self::Flip(region, None) => write!(formatter, "flip {region} = refused"),
            Self::Drain(region, sums) => write!(formatter, "drain {region} = {sums}"),
            Self::Install(region, values) => write!(formatter, "install {region} {values}"),
            Self::Values(region, values) => write!(formatter, "values {region} = {values}"),
            Self::Durable(region, round) => write!(formatter, "durable {region} {round}"),
            Self::Readable(region, is) => write!(formatter, "readable {region} {}", yes_or_no(*is)),
            Self::Active(region, is) => write!(formatter, "active {region} {}", yes_or_no(*is)),
            Self::Acked(region, flow, ranges) => {
                write!(formatter, "acked {region} flow {flow} = ")?;
                write_list(formatter, ranges.iter().map(|Range { start, end }| format!("{start}..{end}")))
            }
            Self::Bank(region, BankPackets { pushes, last }) => {
                write!(formatter, "bank {region} = pushes {pushes} last {last}")
            }
            Self::Counters(counters) => {
                let mut counters = *counters;
                let counted = COUNTERS.iter().map(|Counter { name, of }| (name, *of(&mut counters)));
                let counted: Vec<_> = counted.filter(|&(_, count)| count > 0).collect();
                write!(formatter, "counters = ")?;
                write_list(formatter, counted.iter().map(|(name, count)| format!("{name} {count}")))
            }
        }
    }
}

fn write_open(
    formatter: &mut fmt::Formatter<'_>,
    config: &RegionConfig,
    after: u16,
    seen: &[FlowSeqs],
) -> fmt::Result {
    let name = RegionName::of(config);
    let &RegionConfig { plan, view, lanes, cells, flows, bank_packets_max, arithmetic, .. } = config;
    write!(formatter, "region {name} plan {plan} view {view} lanes {lanes} cells {cells} flows {flows} ")?;
    write!(formatter, "bank {bank_packets_max} ")?;
    match arithmetic {
        Arithmetic::Fixed { bound } => write!(formatter, "fixed {bound} ")?,
        Arithmetic::F32 => write!(formatter, "f32 ")?,
        Arithmetic::Table => write!(formatter, "table ")?,
    }
    write!(formatter, "after {after}")?;
    seen.iter().try_for_each(|FlowSeqs { flow, seqs }| {
        write!(formatter, "\nseen {name} flow {flow} {}..{}", seqs.start, seqs.end)
    })
}

/// One after the other, or `none`.
fn write_list(formatter: &mut fmt::Formatter<'_>, items: impl Iterator<Item = String>) -> fmt::Result {
    let items: Vec<_> = items.collect();
    formatter.write_str(if items.is_empty() { "none" } else { "" })?;
    formatter.write_str(&items.join(" "))
}

const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// The payload of a datagram in hexadecimal, with a blank before each field of a packet.
struct Hex<'a>(&'a [u8]);

/// Offsets of the fields, in the order of bytes; behind the header each entry has a cell and a value.
const FIELDS: [usize; 13] = [1, 2, 3, 4, 6, 8, 10, 12, 13, 14, 16, 18, 22];

impl fmt::Display for Hex<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("empty");
        }
        for (at, byte) in self.0.iter().enumerate() {
            let entry = at.checked_sub(HEADER_BYTES).map(|at| at % 6);
            let begins = FIELDS.contains(&at) || matches!(entry, Some(0 | 2));
            formatter.write_str(if begins { " " } else { "" })?;
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}
