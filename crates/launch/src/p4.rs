//! The way of `libra switch --plane p4` to its switch.

mod bmv2;
mod link;

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libra_net::PlaneThread;
use libra_p4::{P4Plane, Rooms, Setup, Sizes};
use libra_proto::{DeferredPlane, RegionConfig};

pub use self::bmv2::Bmv2;
use self::link::Bmv2Link;

/// Arithmetic of the lanes of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SumsName {
    /// Integers, in one pass
    Fixed,
    /// Floats by looking tables up: a push passes twice
    Table,
}

impl SumsName {
    /// The usual sizes of a program that adds so.
    pub fn sizes(self) -> Sizes {
        match self {
            Self::Fixed => Sizes::default(),
            Self::Table => Sizes::of_tables(),
        }
    }
}

/// A P4 switch that runs the program.
#[derive(Args, Debug)]
pub struct P4Arguments {
    /// With --plane p4: starts a bmv2 with this compiled program, for workers that come by --interface; without it the switch is
    /// there already, and --agent-interface leads to it
    #[arg(long, value_name = "FILE", conflicts_with = "agent_interface")]
    bmv2: Option<PathBuf>,
    /// With --plane p4: how the program of the switch adds, fixed for libra_v1model.p4 and table for libra_v1model_table.p4
    #[arg(long, value_enum, value_name = "HOW", default_value_t = SumsName::Fixed)]
    sums: SumsName,
    /// With --plane p4: two to the power of N cells a lane, as the program was generated with
    #[arg(long, value_name = "N", default_value_t = Sizes::default().cell_bits)]
    cell_bits: u8,
    /// With --plane p4: the interface that leads to the agent's port of the switch
    #[arg(long, value_name = "IF")]
    agent_interface: Option<String>,
    /// With --plane p4: the number that the switch has for that port
    #[arg(long, value_name = "N", default_value_t = 0)]
    agent_port: u16,
    /// With --plane p4: the numbers of all its ports
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "0,1,2,3")]
    switch_ports: Vec<u16>,
    /// With --plane p4: its hardware address
    #[arg(long, value_name = "MAC", default_value = "02:4c:00:00:00:01", value_parser = parse_mac)]
    switch_mac: [u8; 6],
    /// With --plane p4: where its bmv2 takes changes of tables
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9090")]
    thrift: SocketAddr,
}

/// A switch, and the way to it.
pub struct P4Switch {
    /// The data plane, as an agent drives it.
    pub plane: DeferredPlane<PlaneThread>,
    /// The address that workers send to.
    pub address: SocketAddrV4,
    /// Becomes readable when there is something to look at.
    pub wakes: OwnedFd,
    /// The process, if it was started for this.
    pub bmv2: Option<Bmv2>,
}

impl P4Arguments {
    /// Returns the option of a P4 switch that was given.
    pub const fn given(&self) -> Option<&'static str> {
        match (&self.bmv2, &self.agent_interface) {
            (Some(_), _) => Some("--bmv2"),
            (None, Some(_)) => Some("--agent-interface"),
            (None, None) => None,
        }
    }

    /// The switch at this address, reached by workers by an interface of this machine if it is to be here.
    pub fn attach(&self, listen: Option<SocketAddr>, workers_interface: Option<&str>) -> Result<P4Switch> {
        let Some(SocketAddr::V4(address)) = listen.filter(|address| address.port() != 0) else {
            bail!("--plane p4 needs --listen IP:PORT, the IPv4 address of the switch that workers send to");
        };
        let setup = Setup {
            address,
            mac: self.switch_mac,
            agent_port: self.agent_port,
            ports: self.switch_ports.clone(),
        };
        let sizes = Sizes { cell_bits: self.cell_bits, ..self.sums.sizes() };
        sizes.check().context("--cell-bits")?;
        let (link, bmv2) = match (&self.bmv2, &self.agent_interface, workers_interface) {
            (Some(program), _, Some(workers)) => {
                let bmv2 = Bmv2::start(program, workers, *address.ip())?;
                let setup = Setup { agent_port: bmv2::PORTS[0], ports: bmv2::PORTS.to_vec(), ..setup };
                (Bmv2Link::open(&bmv2.agent_interface, bmv2.thrift, sizes, &setup)?, Some(bmv2))
            }
            (Some(_), _, None) => bail!("--bmv2 needs --interface, the one that workers are reached by"),
            (None, _, Some(_)) => bail!("--interface goes with --plane xdp, and with --bmv2"),
            (None, Some(interface), None) => (Bmv2Link::open(interface, self.thrift, sizes, &setup)?, None),
            (None, None, None) => bail!(
                "--plane p4 needs --agent-interface, the one that leads to the agent's port of the switch, or --bmv2"
            ),
        };
        let check = move |config: &RegionConfig| {
            // Only when regions are opened it shows if all of them have room together.
            Rooms::new(sizes).take(config).map(drop).map_err(|error| error.to_string())
        };
        let (thread, wakes) = PlaneThread::start(P4Plane::new(link, sizes), check)
            .context("cannot start the thread of the agent")?;
        Ok(P4Switch { plane: DeferredPlane::new(thread), address, wakes, bmv2 })
    }
}

/// Reads a hardware address such as `02:4c:00:00:00:01`.
pub fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<Vec<_>>>();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no address such as 02:4c:00:00:00:01"))
}
