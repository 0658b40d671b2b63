//! The tables of bmv2, as its `simple_switch_CLI` takes changes of them: lines in, text out. Who starts it hands both on.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use thiserror::Error;

use crate::packet::halves;
use crate::sizes::{Sizes, Sums};
use crate::tables::{Cookie, RegionEntry, TableChange};

/// Configuration of a switch, sent once, before anything else: what it holds of an agent that is gone is dropped with its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Address that workers send packets to. The switch answers ARP and ping for it.
    pub address: SocketAddrV4,
    /// Its own hardware address.
    pub mac: [u8; 6],
    /// The port of the agent.
    pub agent_port: u16,
    /// All ports, for frames whose destination is not known.
    pub ports: Vec<u16>,
}

pub(crate) const ADMISSION: &str = "LibraIngress.admission";
const INSIDE: [&str; 2] = ["LibraIngress.aggregate.cells_inside", "LibraIngress.aggregate.cells_again"];
const BANKS: &str = "LibraIngress.aggregate.cells_of_bank";
const REGIONS: &str = "LibraIngress.aggregate.cells_of_region";
pub(crate) const HOST: &str = "LibraIngress.host";

/// Operation of an ARP request (RFC 826).
pub const ARP_REQUEST: u16 = 1;
/// Type of an ICMP echo request (RFC 792).
pub const ECHO_REQUEST: u16 = 8;
pub(crate) const FLOOD_GROUP: u16 = 1;
/// Answers that may wait for a port: bursts of workers are longer than what bmv2 keeps by itself.
const QUEUE_PACKETS: u32 = 4096;

/// Registers beside those of lanes, in the control that has them.
const REGISTERS: [&str; 8] = [
    "clock.clocks",
    "conditions.conditions",
    "room.arrivals",
    "window.generations",
    "window_bank.banks",
    "taken.counts",
    "acked_bits.words",
    "acked_next.next",
];

/// Lines that leave of an agent that is gone nothing in the switch.
fn forget(sizes: &Sizes) -> Vec<String> {
    let of_admission = ["addresses", "workers", "agents", "regions", "ownerships"]
        .map(|table| format!("{ADMISSION}.{table}"));
    let inside = INSIDE.map(|control| format!("{control}.masks"));
    let bases = match sizes.sums {
        Sums::Fixed { .. } => BANKS,
        Sums::Table => REGIONS,
    };
    let others = [format!("{bases}.bases"), format!("{HOST}.names"), format!("{HOST}.pings")];
    let tables = of_admission.into_iter().chain(inside).chain(others);
    let lanes = (0..sizes.lanes)
        .flat_map(|lane| ["sums", "values"].map(|register| format!("lanes.lane{lane}.{register}")));
    let turns = (0..if sizes.sums == Sums::Table { sizes.lanes } else { 0 })
        .map(|lane| format!("turns.turn{lane}.turns"));
    let registers = REGISTERS.into_iter().map(str::to_owned).chain(lanes).chain(turns);
    tables
        .map(|table| format!("table_clear {table}"))
        .chain(registers.map(|register| format!("register_reset LibraIngress.aggregate.{register}")))
        .collect()
}

impl Setup {
    /// Returns the lines of this configuration; they also delete the entries of an agent before.
    #[must_use]
    pub fn lines(&self, sizes: &Sizes) -> Vec<String> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let [a, b, c, d, e, f] = self.mac;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let entries = [
            format!("set_queue_depth {QUEUE_PACKETS}"),
            format!("table_add {ADMISSION}.addresses {ADMISSION}.ours {ip} {port} =>"),
            format!("table_add {ADMISSION}.agents {ADMISSION}.agent {} =>", self.agent_port),
            format!("table_add {HOST}.names {HOST}.answer_arp {ARP_REQUEST} {ip} => {mac:#x}"),
            format!("table_add {HOST}.pings {HOST}.answer_ping {ECHO_REQUEST} {ip} =>"),
        ];
        forget(sizes).into_iter().chain(entries).collect()
    }

    /// Returns the lines for frames whose destination is not known. A switch that has them already refuses them.
    #[must_use]
    pub fn flood_lines(&self) -> Vec<String> {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        vec![
            format!("mc_mgrp_create {FLOOD_GROUP}"),
            format!("mc_node_create 0 {}", ports.join(" ")),
            format!("mc_node_associate {FLOOD_GROUP} 0"),
        ]
    }
}

/// A table, and the key of an entry in it.
pub(crate) type Entry = (String, String);

/// One change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Add(Entry, String),
    Delete(Entry),
}

/// A switch has not carried out its commands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("bmv2 has not changed its tables: {0}")]
pub struct Refused(String);

/// The entries that a bmv2 has: it deletes them by a number that it gave them.
#[derive(Debug, Clone)]
pub struct Bmv2Tables {
    sizes: Sizes,
    handles: BTreeMap<Entry, u64>,
}

impl Bmv2Tables {
    /// Those of a switch that was just started.
    #[must_use]
    pub const fn new(sizes: Sizes) -> Self {
        Self { sizes, handles: BTreeMap::new() }
    }

    /// The lines that make these changes.
    #[must_use]
    pub fn lines(&self, changes: &[TableChange]) -> Vec<String> {
        let line = |operation| match operation {
            Operation::Add((table, key), action) => {
                format!("table_add {table} {} {key} => {}", name_of(&table, &action), parameters_of(&action))
            }
            Operation::Delete(entry) => {
                let handle = self.handles.get(&entry).copied().unwrap_or(u64::MAX);
                format!("table_delete {} {handle}", entry.0)
            }
        };
        changes.iter().flat_map(|change| operations(change, &self.sizes)).map(line).collect()
    }

    /// Evaluates the output of the switch for these lines.
    ///
    /// # Errors
    /// It has not made all of the changes.
    pub fn on_output(&mut self, changes: &[TableChange], said: &str) -> Result<(), Refused> {
        let numbers =
            said.lines().filter_map(|line| line.split_once("added with handle ")?.1.trim().parse().ok());
        let mut numbers = numbers.collect::<Vec<u64>>().into_iter();
        let is_sound = !said.contains("Invalid") && !said.contains("Error");
        let refused = || Refused(without_keys(said));
        for operation in changes.iter().flat_map(|change| operations(change, &self.sizes)) {
            match operation {
                Operation::Add(entry, _) => {
                    let handle = numbers.next().filter(|_| is_sound).ok_or_else(refused)?;
                    self.handles.insert(entry, handle);
                }
                Operation::Delete(entry) => {
                    self.handles.remove(&entry).filter(|_| is_sound).ok_or_else(refused)?;
                }
            }
        }
        Ok(())
    }
}

/// The output without the keys of entries, among which are cookies.
fn without_keys(said: &str) -> String {
    said.lines().filter(|line| !line.starts_with("match key")).collect::<Vec<_>>().join("\n")
}

/// An action is written as its name, then its parameters. Its full name begins with that of the control that has the table.
fn name_of(table: &str, action: &str) -> String {
    let control = table.rsplit_once('.').map_or("", |(control, _)| control);
    let name = action.split(' ').next().unwrap_or_default();
    format!("{control}.{name}")
}

fn parameters_of(action: &str) -> &str {
    action.split_once(' ').map_or("", |(_, parameters)| parameters)
}

/// Returns the operations of a change. The conditions that packets must meet come last and go first: without them no packet is taken.
pub(crate) fn operations(change: &TableChange, sizes: &Sizes) -> Vec<Operation> {
    let entry = |address: SocketAddrV4, job: u16, worker: u16, Cookie(cookie): Cookie| {
        let ((ip, port), (high, low)) = ((address.ip(), address.port()), halves(cookie));
        (format!("{ADMISSION}.workers"), format!("{ip} {port} {job} {worker} {high} {low}"))
    };
    match *change {
        TableChange::AddWorker { address, job, worker, cookie } => {
            vec![Operation::Add(entry(address, job, worker, cookie), "worker".to_owned())]
        }
        TableChange::RemoveWorker { address, job, worker, cookie } => {
            vec![Operation::Delete(entry(address, job, worker, cookie))]
        }
        TableChange::AddRegion(entry) => entries_of(&entry, sizes)
            .into_iter()
            .map(|(entry, action)| Operation::Add(entry, action))
            .collect(),
        TableChange::RemoveRegion { job, region, index, plan, view } => {
            let nothing =
                RegionEntry { job, region, index, plan, view, base: 0, cells: 1, flows: 0, room: 0 };
            let entries = entries_of(&nothing, sizes).into_iter().rev();
            entries.map(|(entry, _)| Operation::Delete(entry)).collect()
        }
    }
}

fn entries_of(entry: &RegionEntry, sizes: &Sizes) -> Vec<(Entry, String)> {
    let RegionEntry { job, region, index, plan, view, base, cells, flows, room } = *entry;
    let name = format!("{job} {region}");
    let mut entries = Vec::new();
    for control in INSIDE {
        entries.push(((format!("{control}.masks"), name.clone()), format!("keep {}", cells - 1)));
    }
    match sizes.sums {
        Sums::Fixed { .. } => {
            for (bank, bit) in [(0, 0), (1, 1 << sizes.cell_bits)] {
                let base = u32::from(base) | bit;
                entries
                    .push(((format!("{BANKS}.bases"), format!("{index} {bank}")), format!("place {base}")));
            }
        }
        Sums::Table => entries.push(((format!("{REGIONS}.bases"), name.clone()), format!("place {base}"))),
    }
    entries.push((
        (format!("{ADMISSION}.regions"), name.clone()),
        format!("region {index} {plan} {view} {flows} {room}"),
    ));
    entries.push(((format!("{ADMISSION}.ownerships"), format!("{name} {plan} {view}")), "fit".to_owned()));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: RegionEntry = RegionEntry {
        job: 7,
        region: 2,
        index: 1,
        plan: 3,
        view: 9,
        base: 16,
        cells: 16,
        flows: 4,
        room: 4096,
    };

    #[test]
    fn a_region_is_deleted_by_the_numbers_that_the_switch_gave() {
        let mut tables = Bmv2Tables::new(Sizes::default());
        let add = [TableChange::AddRegion(ENTRY)];
        assert_eq!(
            tables.lines(&add)[2..],
            [
                "table_add LibraIngress.aggregate.cells_of_bank.bases LibraIngress.aggregate.cells_of_bank.place 1 0 => 16",
                "table_add LibraIngress.aggregate.cells_of_bank.bases LibraIngress.aggregate.cells_of_bank.place 1 1 => 2064",
                "table_add LibraIngress.admission.regions LibraIngress.admission.region 7 2 => 1 3 9 4 4096",
                "table_add LibraIngress.admission.ownerships LibraIngress.admission.fit 7 2 3 9 => ",
            ]
        );
        let said: String =
            (10..16).map(|number| format!("Entry has been added with handle {number}\n")).collect();
        tables.on_output(&add, &said).unwrap();
        let remove = [TableChange::RemoveRegion { job: 7, region: 2, index: 1, plan: 3, view: 9 }];
        let lines = tables.lines(&remove);
        assert_eq!(lines[0], "table_delete LibraIngress.admission.ownerships 15");
        assert_eq!(lines.len(), 6);
        tables.on_output(&remove, "").unwrap();
        assert!(tables.handles.is_empty());
    }

    const WORKER: TableChange = TableChange::AddWorker {
        address: SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 5000),
        job: 7,
        worker: 1,
        cookie: Cookie(0x0123_4567_89ab_cdef),
    };

    // rule A5
    #[test]
    fn the_cookie_of_a_worker_is_in_the_key_of_its_entry() {
        let mut tables = Bmv2Tables::new(Sizes::default());
        assert_eq!(
            tables.lines(&[WORKER]),
            [
                "table_add LibraIngress.admission.workers LibraIngress.admission.worker 10.0.0.2 5000 7 1 19088743 2309737967 => "
            ]
        );
        assert_eq!(
            crate::bfrt::change(&WORKER, &Sizes::default()),
            [
                "ingress.admission.workers.add_with_worker(address=0x0a000002, udp_port=5000, job=7, worker=1, tag_high=19088743, tag_low=2309737967)"
            ]
        );
        tables.on_output(&[WORKER], "Entry has been added with handle 3").unwrap();
        let TableChange::AddWorker { address, job, worker, cookie } = WORKER else { unreachable!() };
        let remove = TableChange::RemoveWorker { address, job, worker, cookie };
        assert_eq!(tables.lines(&[remove]), ["table_delete LibraIngress.admission.workers 3"]);
    }

    #[test]
    fn cookies_are_not_printed() {
        let said =
            "Adding entry to exact match table\nmatch key:  EXACT-01:23:45:67\nInvalid table operation";
        let error = Bmv2Tables::new(Sizes::default()).on_output(&[WORKER], said).unwrap_err();
        let printed = format!("{error} {error:?} {WORKER:?}");
        assert!(printed.contains("Invalid table") && printed.contains("Cookie(secret)"), "{printed}");
        assert!(!printed.contains("01:23") && !printed.contains("81985529216486895"), "{printed}");
    }

    #[test]
    fn a_switch_that_refuses_is_heard() {
        let mut tables = Bmv2Tables::new(Sizes::default());
        let error = tables.on_output(&[WORKER], "Invalid table operation (DUPLICATE_ENTRY)").unwrap_err();
        assert!(error.to_string().contains("DUPLICATE_ENTRY"));
    }
}
