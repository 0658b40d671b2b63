//! The tables of a Tofino, as a script for the Python shell of its driver (`bfshell -b`). What a table holds is as bmv2 has it; how it is
//! written is not: values have names, and a program is reached by its name.

use std::net::Ipv4Addr;

use thiserror::Error;

use crate::bmv2::{ADMISSION, ARP_REQUEST, ECHO_REQUEST, FLOOD_GROUP, HOST, Operation, Setup, operations};
use crate::sizes::{Sizes, Sums};
use crate::tables::TableChange;

/// A table that the agent fills, with the names of the fields of its key and of what its action is given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) key: &'static [&'static str],
    pub(crate) action: &'static str,
    pub(crate) data: &'static [&'static str],
}

/// All of them, named from the control `Ingress` on. Of the two of bases a program has one: that of banks where it adds integers, that of
/// regions where it adds floats.
pub(crate) const TABLES: [Table; 12] = [
    Table { name: "admission.addresses", key: &["address", "udp_port"], action: "ours", data: &[] },
    Table {
        name: "admission.workers",
        key: &["address", "udp_port", "job", "worker", "tag_high", "tag_low"],
        action: "worker",
        data: &[],
    },
    Table { name: "admission.agents", key: &["port"], action: "agent", data: &[] },
    Table {
        name: "admission.regions",
        key: &["job", "region"],
        action: "region",
        data: &["index", "plan", "view", "flows", "room"],
    },
    Table { name: "admission.ownerships", key: &["job", "region", "plan", "view"], action: "fit", data: &[] },
    Table { name: "aggregate.cells_inside.masks", key: &["job", "region"], action: "keep", data: &["mask"] },
    Table { name: "aggregate.cells_again.masks", key: &["job", "region"], action: "keep", data: &["mask"] },
    Table {
        name: "aggregate.cells_of_bank.bases",
        key: &["index", "bank"],
        action: "place",
        data: &["base"],
    },
    Table {
        name: "aggregate.cells_of_region.bases",
        key: &["job", "region"],
        action: "place",
        data: &["base"],
    },
    Table { name: "host.names", key: &["operation", "address"], action: "answer_arp", data: &["mac"] },
    Table { name: "host.pings", key: &["kind", "address"], action: "answer_ping", data: &[] },
    Table { name: "forward.stations", key: &["station"], action: "to", data: &["destination"] },
];

/// Name of the control that has all tables, in bmv2 and in a Tofino.
const INGRESS: [&str; 2] = ["LibraIngress.", "ingress."];

const STATIONS: &str = "LibraIngress.forward.stations";

fn table(name: &str) -> &'static Table {
    TABLES.iter().find(|table| table.name == name).expect("all tables that change are among these")
}

/// The ports of a Tofino are below this; a pipe has as many as seven bits count.
const PORTS: u16 = 512;
const PIPE_BITS: u32 = 7;
/// The pipe of the port by which a push of floats passes again, `RECIRCULATION_PORT` of the program.
const RECIRCULATION_PIPE: u16 = 68 >> PIPE_BITS;

/// A port that does not belong to the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WrongPort {
    /// No Tofino has it.
    #[error("port {port} does not exist: ports of a Tofino are below {PORTS}")]
    Missing {
        /// The port.
        port: u16,
    },
    /// Its pipe has registers of its own.
    #[error(
        "port {port} is in pipe {found} and the agent's port {agent_port} in pipe {pipe} (pipe = port >> 7): every pipe of a Tofino has its \
         own copy of each register, so regions that the agent opens in pipe {pipe} do not exist for packets of pipe {found}, and \
         every push is refused. All ports of one switch, the agent's included, must be in one pipe"
    )]
    OtherPipe {
        /// The port.
        port: u16,
        /// Its pipe.
        found: u16,
        /// The port of the agent.
        agent_port: u16,
        /// The pipe of that.
        pipe: u16,
    },
    /// Floats pass again in another pipe.
    #[error(
        "port {port} is in pipe {found} (pipe = port >> 7): with --sums table a push passes a second time by port 68, so all ports must be \
         in pipe {RECIRCULATION_PIPE}"
    )]
    NotRecirculated {
        /// The port.
        port: u16,
        /// Its pipe.
        found: u16,
    },
}

/// Checks that ports are those of one switch: a pipe of a Tofino cannot access the registers of another.
///
/// # Errors
/// The first port that may not.
pub fn check_ports(
    agent_port: u16,
    ports: impl IntoIterator<Item = u16>,
    sums: Sums,
) -> Result<(), WrongPort> {
    let pipe = agent_port >> PIPE_BITS;
    for port in std::iter::once(agent_port).chain(ports) {
        let found = port >> PIPE_BITS;
        if port >= PORTS {
            return Err(WrongPort::Missing { port });
        }
        if found != pipe {
            return Err(WrongPort::OtherPipe { port, found, agent_port, pipe });
        }
        if sums == Sums::Table && found != RECIRCULATION_PIPE {
            return Err(WrongPort::NotRecirculated { port, found });
        }
    }
    Ok(())
}

/// The first lines of a script: where its tables are.
#[must_use]
pub fn head(sizes: &Sizes) -> Vec<String> {
    let program = match sizes.sums {
        Sums::Fixed { .. } => "libra_tna",
        Sums::Table => "libra_tna_table",
    };
    vec!["# Written by `libra p4 tables`.".to_owned(), format!("ingress = bfrt.{program}.pipe.Ingress")]
}

/// Returns the lines that configure a switch once.
#[must_use]
pub fn setup(setup: &Setup) -> Vec<String> {
    let (ip, port) = (setup.address.ip(), setup.address.port());
    let mac = number_of(setup.mac);
    let ports: Vec<String> = setup.ports.iter().map(u16::to_string).collect();
    let host = |name: &str| format!("{HOST}.{name}");
    let admission = |name: &str| format!("{ADMISSION}.{name}");
    vec![
        add(&admission("addresses"), &format!("{ip} {port}"), ""),
        add(&admission("agents"), &setup.agent_port.to_string(), ""),
        add(&host("names"), &format!("{ARP_REQUEST} {ip}"), &mac),
        add(&host("pings"), &format!("{ECHO_REQUEST} {ip}"), ""),
        format!(
            "bfrt.pre.node.add(MULTICAST_NODE_ID={FLOOD_GROUP}, MULTICAST_RID={FLOOD_GROUP}, MULTICAST_LAG_ID=[], DEV_PORT=[{}])",
            ports.join(", ")
        ),
        format!(
            "bfrt.pre.mgid.add(MGID={FLOOD_GROUP}, MULTICAST_NODE_ID=[{FLOOD_GROUP}], MULTICAST_NODE_L1_XID_VALID=[False], MULTICAST_NODE_L1_XID=[0])"
        ),
    ]
}

/// The lines that make a change.
#[must_use]
pub fn change(change: &TableChange, sizes: &Sizes) -> Vec<String> {
    let line = |operation| match operation {
        Operation::Add((table, key), action) => {
            // An action is written as its name, then its parameters.
            add(&table, &key, action.split_once(' ').map_or("", |(_, parameters)| parameters))
        }
        Operation::Delete((table, key)) => delete(&table, &key),
    };
    operations(change, sizes).into_iter().map(line).collect()
}

/// Returns the line for the port of a station.
#[must_use]
pub fn station(mac: [u8; 6], port: u16) -> String {
    add(STATIONS, &number_of(mac), &port.to_string())
}

/// The same for bmv2.
#[must_use]
pub fn bmv2_station(mac: [u8; 6], port: u16) -> String {
    format!("table_add {STATIONS} LibraIngress.forward.to {} => {port}", number_of(mac))
}

fn number_of([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{:#014x}", u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// The last lines of a script: what is under way is done.
#[must_use]
pub fn tail() -> Vec<String> {
    vec!["bfrt.complete_operations()".to_owned()]
}

/// An entry, by the name that bmv2 has for its table and by its values in order, with spaces between them.
fn add(of_bmv2: &str, key: &str, data: &str) -> String {
    let Table { name, key: fields, action, data: parameters } = table(name_of(of_bmv2));
    let values = named(fields, key).into_iter().chain(named(parameters, data)).collect::<Vec<_>>();
    format!("{}{name}.add_with_{action}({})", INGRESS[1], values.join(", "))
}

fn delete(of_bmv2: &str, key: &str) -> String {
    let Table { name, key: fields, .. } = table(name_of(of_bmv2));
    format!("{}{name}.delete({})", INGRESS[1], named(fields, key).join(", "))
}

fn name_of(of_bmv2: &str) -> &str {
    of_bmv2.strip_prefix(INGRESS[0]).expect("all tables are in ingress")
}

fn named(fields: &[&str], values: &str) -> Vec<String> {
    let values: Vec<&str> = values.split(' ').filter(|value| !value.is_empty()).collect();
    assert_eq!(values.len(), fields.len(), "a value for each field");
    fields.iter().zip(values).map(|(field, value)| format!("{field}={}", number(value))).collect()
}

/// Fields of a table are numbers, addresses too.
fn number(value: &str) -> String {
    value.parse::<Ipv4Addr>().map_or_else(|_| value.to_owned(), |ip| format!("{:#010x}", ip.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::RegionEntry;

    const SETUP: Setup = Setup {
        address: std::net::SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4700),
        mac: [2, 0x4c, 0, 0, 0, 1],
        agent_port: 64,
        ports: Vec::new(),
    };

    #[test]
    fn a_switch_is_told_where_it_is_and_who_its_agent_is() {
        let lines = setup(&Setup { ports: vec![64, 132], ..SETUP });
        assert_eq!(
            lines,
            [
                "ingress.admission.addresses.add_with_ours(address=0x0a000001, udp_port=4700)",
                "ingress.admission.agents.add_with_agent(port=64)",
                "ingress.host.names.add_with_answer_arp(operation=1, address=0x0a000001, mac=0x024c00000001)",
                "ingress.host.pings.add_with_answer_ping(kind=8, address=0x0a000001)",
                "bfrt.pre.node.add(MULTICAST_NODE_ID=1, MULTICAST_RID=1, MULTICAST_LAG_ID=[], DEV_PORT=[64, 132])",
                "bfrt.pre.mgid.add(MGID=1, MULTICAST_NODE_ID=[1], MULTICAST_NODE_L1_XID_VALID=[False], MULTICAST_NODE_L1_XID=[0])",
            ]
        );
        assert_eq!(
            station([2, 0, 0, 0, 0, 7], 132),
            "ingress.forward.stations.add_with_to(station=0x020000000007, destination=132)"
        );
    }

    #[test]
    fn ports_of_one_switch_are_in_one_pipe() {
        let fixed = Sizes::default().sums;
        let check = |agent, ports: &[u16], sums| check_ports(agent, ports.iter().copied(), sums);
        assert_eq!(check(64, &[64, 0, 60], fixed), Ok(()));
        assert_eq!(check(192, &[192, 128, 188], fixed), Ok(()));
        // What the documents recommended.
        let error = check(64, &[64, 132, 140], fixed).unwrap_err();
        assert_eq!(error, WrongPort::OtherPipe { port: 132, found: 1, agent_port: 64, pipe: 0 });
        assert!(error.to_string().contains("own copy of each register"), "{error}");
        assert_eq!(check(320, &[512], fixed), Err(WrongPort::Missing { port: 512 }));
        let floats = Sums::Table;
        assert_eq!(check(64, &[0, 68], floats), Ok(()));
        assert_eq!(check(192, &[192], floats), Err(WrongPort::NotRecirculated { port: 192, found: 1 }));
    }

    /// The text of the program stands in for a compiler.
    #[test]
    fn names_are_those_of_the_text_of_the_program() {
        let of_admission = include_str!("../program/admission.p4").split("    table ").skip(1);
        let found: Vec<(&str, Vec<&str>)> = of_admission
            .map(|text| {
                let (name, rest) = text.split_once(" {").expect("a table has fields");
                let names =
                    rest.split("@name(\"").skip(1).map(|text| text.split('"').next().expect("a name"));
                (name, names.collect())
            })
            .collect();
        let tables = TABLES
            .iter()
            .filter_map(|table| Some((table.name.strip_prefix("admission.")?, table.key.to_vec())));
        assert_eq!(found, tables.collect::<Vec<_>>());
    }

    /// The tables of the program as p4c describes them to a driver. `cargo xtask p4 test` sets the path of that file.
    #[test]
    fn names_are_those_that_the_compiler_gave() {
        let Some(path) = std::env::var_os("LIBRA_P4_BFRT") else {
            println!("SKIPPED: no names of a compiler, see docs/operating/p4.md");
            return;
        };
        let schema: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let names = |fields: &serde_json::Value| -> Vec<String> {
            let fields = fields.as_array().map(Vec::as_slice).unwrap_or_default();
            fields.iter().map(|field| field["name"].as_str().unwrap().to_owned()).collect()
        };
        let tables = schema["tables"].as_array().unwrap();
        let found = |name: &str| {
            let full = format!("pipe.Ingress.{name}");
            tables.iter().find(|table| table["name"] == full.as_str())
        };
        let bases = ["aggregate.cells_of_bank.bases", "aggregate.cells_of_region.bases"];
        let other = if found(bases[0]).is_some() { bases[1] } else { bases[0] };
        for Table { name, key, action, data } in TABLES.into_iter().filter(|table| table.name != other) {
            let table = found(name).expect(name);
            assert_eq!(names(&table["key"]), key, "{name}");
            let control = name.rsplit_once('.').unwrap().0;
            let action = format!("Ingress.{control}.{action}");
            let actions = table["action_specs"].as_array().unwrap();
            let found = actions.iter().find(|found| found["name"] == action.as_str()).expect(&action);
            assert_eq!(names(&found["data"]), data, "{name}");
        }
    }

    #[test]
    fn the_fit_of_a_region_is_added_last_and_removed_first() {
        let entry = RegionEntry {
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
        let sizes = Sizes::default();
        assert_eq!(
            change(&TableChange::AddRegion(entry), &sizes),
            [
                "ingress.aggregate.cells_inside.masks.add_with_keep(job=7, region=2, mask=15)",
                "ingress.aggregate.cells_again.masks.add_with_keep(job=7, region=2, mask=15)",
                "ingress.aggregate.cells_of_bank.bases.add_with_place(index=1, bank=0, base=16)",
                "ingress.aggregate.cells_of_bank.bases.add_with_place(index=1, bank=1, base=2064)",
                "ingress.admission.regions.add_with_region(job=7, region=2, index=1, plan=3, view=9, flows=4, room=4096)",
                "ingress.admission.ownerships.add_with_fit(job=7, region=2, plan=3, view=9)",
            ]
        );
        let remove = TableChange::RemoveRegion { job: 7, region: 2, index: 1, plan: 3, view: 9 };
        let lines = change(&remove, &sizes);
        assert_eq!(lines[0], "ingress.admission.ownerships.delete(job=7, region=2, plan=3, view=9)");
        assert_eq!(lines.len(), 6);
    }
}
