//! `libra p4 tables`: the setup of a switch before its agent connects, as text for the switch's own command line.

use std::net::SocketAddrV4;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use libra_dataplane::{Arithmetic, RegionConfig};
use libra_p4::{Bmv2Tables, Cookie, Rooms, Setup, Sums, TableChange, bfrt};

use libra_launch::p4::parse_mac;

use super::SizeArguments;

#[derive(Args)]
pub(crate) struct TablesArguments {
    /// The switch
    #[arg(long, value_enum)]
    target: Target,
    /// Address that workers send packets to
    #[arg(long, value_name = "IP:PORT")]
    address: SocketAddrV4,
    /// The switch's own hardware address
    #[arg(long, value_name = "MAC", value_parser = parse_mac, default_value = "02:4c:00:00:00:01")]
    mac: [u8; 6],
    /// The port of the agent. All ports of a Tofino that is one switch are in one pipe (port >> 7)
    #[arg(long, value_name = "PORT")]
    agent_port: u16,
    /// All ports, for frames whose destination is not known
    #[arg(long, value_name = "PORT,..", value_delimiter = ',', required = true)]
    ports: Vec<u16>,
    /// Hardware address behind a port, so that frames for it are not flooded
    #[arg(long, value_name = "MAC=PORT", value_parser = station)]
    station: Vec<([u8; 6], u16)>,
    /// A worker: its job, its number, and where it sends from
    #[arg(long, value_name = "JOB/WORKER=IP:PORT", value_parser = worker)]
    worker: Vec<TableChange>,
    /// A region: its job, its number, its plan and its view, and how many cells and flows it has
    #[arg(long, value_name = "JOB/REGION/PLAN/VIEW=CELLS/FLOWS")]
    region: Vec<String>,
    /// The most packets that a bank of a region takes
    #[arg(long, value_name = "N", default_value_t = 4096)]
    bank_packets: u32,
    #[command(flatten)]
    sizes: SizeArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Target {
    /// Lines for `simple_switch_CLI`
    Bmv2,
    /// A script for `bfshell -b`
    Tofino,
}

pub(super) fn run(arguments: &TablesArguments) -> Result<()> {
    for line in lines(arguments)? {
        println!("{line}");
    }
    Ok(())
}

fn lines(arguments: &TablesArguments) -> Result<Vec<String>> {
    let sizes = arguments.sizes.sizes();
    let setup = Setup {
        address: arguments.address,
        mac: arguments.mac,
        agent_port: arguments.agent_port,
        ports: arguments.ports.clone(),
    };
    let mut changes = arguments.worker.clone();
    let mut rooms = Rooms::new(sizes);
    for text in &arguments.region {
        let config = region(text, arguments).with_context(|| format!("`--region {text}`"))?;
        changes.push(TableChange::AddRegion(rooms.take(&config)?));
    }
    let stations = arguments.station.iter().copied();
    Ok(match arguments.target {
        Target::Bmv2 => {
            let tables = Bmv2Tables::new(sizes);
            let stations = stations.map(|(mac, port)| bfrt::bmv2_station(mac, port));
            [setup.lines(&sizes), setup.flood_lines(), stations.collect(), tables.lines(&changes)].concat()
        }
        Target::Tofino => {
            let stations_of = arguments.station.iter().map(|&(_, port)| port);
            let ports = arguments.ports.iter().copied().chain(stations_of);
            bfrt::check_ports(arguments.agent_port, ports, sizes.sums)?;
            let stations = stations.map(|(mac, port)| bfrt::station(mac, port));
            let changes = changes.iter().flat_map(|change| bfrt::change(change, &sizes));
            let entries = bfrt::setup(&setup).into_iter().chain(stations).chain(changes);
            bfrt::head(&sizes).into_iter().chain(entries).chain(bfrt::tail()).collect()
        }
    })
}

fn station(text: &str) -> Result<([u8; 6], u16), String> {
    let (address, port) = text.split_once('=').ok_or("a station is like 02:4c:00:00:00:07=132")?;
    Ok((parse_mac(address)?, port.parse().map_err(|_| format!("`{port}` is no port"))?))
}

fn worker(text: &str) -> Result<TableChange, String> {
    let parse = || {
        let (name, address) = text.split_once('=')?;
        let (job, worker) = name.split_once('/')?;
        Some(TableChange::AddWorker {
            address: address.parse().ok()?,
            job: job.parse().ok()?,
            worker: worker.parse().ok()?,
            cookie: Cookie::default(),
        })
    };
    parse().ok_or_else(|| "a worker is like 1/0=10.0.0.2:5000".to_owned())
}

fn region(text: &str, arguments: &TablesArguments) -> Result<RegionConfig> {
    let (name, sizes) = text.split_once('=').context("a region is like 1/0/1/1=2048/8")?;
    let numbers = |text: &str| text.split('/').map(str::parse).collect::<Result<Vec<u16>, _>>();
    let (name, sizes) = (numbers(name)?, numbers(sizes)?);
    ensure!(name.len() == 4 && sizes.len() == 2, "a region is like 1/0/1/1=2048/8");
    let program = arguments.sizes.sizes();
    Ok(RegionConfig {
        job: name[0],
        region: u8::try_from(name[1]).context("a region's number is below 256")?,
        plan: name[2],
        view: name[3].into(),
        lanes: program.lanes,
        cells: sizes[0],
        flows: sizes[1],
        bank_packets_max: arguments.bank_packets,
        arithmetic: match program.sums {
            Sums::Fixed { bound_bits } => Arithmetic::Fixed { bound: (1 << bound_bits) - 1 },
            Sums::Table => Arithmetic::Table,
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        tables: TablesArguments,
    }

    fn lines_of(target: &str) -> Vec<String> {
        lines_for(target, "192", "192,132,133").unwrap()
    }

    fn lines_for(target: &str, agent_port: &str, ports: &str) -> Result<Vec<String>> {
        let line = [
            "tables",
            "--target",
            target,
            "--address",
            "10.0.0.1:4700",
            "--agent-port",
            agent_port,
            "--ports",
            ports,
            "--station",
            "02:00:00:00:00:07=132",
            "--worker",
            "1/0=10.0.0.2:5000",
            "--region",
            "1/0/1/1=2048/8",
        ];
        lines(&CommandLine::parse_from(line).tables)
    }

    #[test]
    fn a_tofino_refuses_ports_of_several_pipes() {
        // The station is at port 132, which is in pipe 1.
        for (agent_port, ports, pipe) in
            [("64", "64,132,140", 0), ("192", "192,132,64", 1), ("64", "64,0", 0)]
        {
            let error = lines_for("tofino", agent_port, ports).unwrap_err().to_string();
            assert!(error.contains(&format!("agent's port {agent_port} in pipe {pipe}")), "{error}");
            assert!(error.contains("must be in one pipe"), "{error}");
            assert!(lines_for("bmv2", agent_port, ports).is_ok(), "bmv2 has one pipe");
        }
    }

    #[test]
    fn both_targets_have_the_same_number_of_entries() {
        let (bmv2, tofino) = (lines_of("bmv2"), lines_of("tofino"));
        let count = |lines: &[String], what: &str| lines.iter().filter(|line| line.contains(what)).count();
        assert_eq!(count(&bmv2, "table_add"), count(&tofino, ".add_with_"));
        assert!(tofino.contains(
            &"ingress.admission.workers.add_with_worker(address=0x0a000002, udp_port=5000, job=1, worker=0, tag_high=0, tag_low=0)".to_owned()
        ));
    }

    #[test]
    fn malformed_options_are_refused_with_an_example() {
        assert!(station("02:00=1").unwrap_err().contains("02:4c"));
        assert!(worker("1=10.0.0.2:5000").unwrap_err().contains("1/0=10.0.0.2:5000"));
    }
}
