//! `libra p4`: what the program of a P4 switch is made of. And what `libra switch --plane p4` is told.

mod bmv2;
mod link;

mod resources;
mod tables;

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use self::bmv2::Bmv2;
use self::link::Bmv2Link;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use libra_net::PlaneThread;
use libra_p4::{Generated, P4Plane, Rooms, Setup, Sizes, Sums};
use libra_proto::{DeferredPlane, RegionConfig};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Writes the sizes, the codes and everything that is there once for each lane, from the constants of the data plane
    ///
    /// programs/p4 holds the rest of the program, and includes these files from its folder `generated`. With other sizes than the
    /// usual ones it is a program for a smaller or larger switch: generate into that folder, and compile again.
    Generate(GenerateArguments),
    /// What the program takes of a Tofino: registers, tables, memory, stages and headers, next to what the paper's takes
    ///
    /// An estimate from the sizes that generate the program. docs/p4.md has what the compiler made of the usual ones.
    Resources(resources::ResourcesArguments),
    /// Prints what the tables of a switch hold, for its own command line
    ///
    /// That is what the switch is told once, and the workers and regions that are named. An agent makes these changes by itself.
    /// For bmv2 the first lines clear its tables and registers.
    Tables(tables::TablesArguments),
}

#[derive(Args)]
pub(crate) struct GenerateArguments {
    /// The folder [default: programs/p4/generated, and for --sums table the folder `table` in it]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Writes nothing, and fails if a file is not what would be written
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    sizes: SizeArguments,
}

#[derive(Args)]
struct SizeArguments {
    /// How lanes add
    #[arg(long, value_enum, default_value_t = SumsName::Fixed)]
    sums: SumsName,
    /// Entries of a packet, and registers of sums that it passes [default: 16, and for --sums table 2]
    #[arg(long, value_name = "N")]
    lanes: Option<u8>,
    /// Two to the power of N cells a lane: with 16 lanes and 11 there are 32,768 slots, with 14, which a Tofino has room for, 262,144
    #[arg(long, value_name = "N", default_value_t = Sizes::default().cell_bits)]
    cell_bits: u8,
    /// Two to the power of N flows: workers times regions
    #[arg(long, value_name = "N", default_value_t = Sizes::default().flow_bits)]
    flow_bits: u8,
    /// Regions at once, of all jobs together
    #[arg(long, value_name = "N", default_value_t = Sizes::default().regions)]
    regions: u16,
    /// With --sums fixed: values of a push are below two to the power of N
    #[arg(long, value_name = "N", default_value_t = 19)]
    bound_bits: u8,
}

/// How the lanes of a program add.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SumsName {
    /// Integers, in one pass
    Fixed,
    /// Floats by looking tables up: a push passes twice
    Table,
}

impl SumsName {
    /// The usual sizes of a program that adds so.
    fn sizes(self) -> Sizes {
        match self {
            Self::Fixed => Sizes::default(),
            Self::Table => Sizes::of_tables(),
        }
    }
}

impl SizeArguments {
    fn sizes(&self) -> Sizes {
        let usual = self.sums.sizes();
        let sums = match usual.sums {
            Sums::Fixed { .. } => Sums::Fixed { bound_bits: self.bound_bits },
            Sums::Table => Sums::Table,
        };
        let Self { cell_bits, flow_bits, regions, .. } = *self;
        Sizes { lanes: self.lanes.unwrap_or(usual.lanes), cell_bits, flow_bits, regions, sums }
    }
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Generate(arguments) => generate(arguments),
        Command::Resources(arguments) => resources::run(arguments),
        Command::Tables(arguments) => tables::run(arguments),
    }
}

fn generate(arguments: &GenerateArguments) -> Result<()> {
    let files = libra_p4::generate(&arguments.sizes.sizes())?;
    let usual = match arguments.sizes.sums {
        SumsName::Fixed => "programs/p4/generated",
        SumsName::Table => "programs/p4/generated/table",
    };
    let out = arguments.out.as_deref().unwrap_or_else(|| Path::new(usual));
    if arguments.check {
        return check(out, &files);
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for Generated { name, text } in &files {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn check(folder: &Path, files: &[Generated]) -> Result<()> {
    for Generated { name, text } in files {
        let path = folder.join(name);
        let found = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if found != *text {
            bail!("{} is stale: run `libra p4 generate`, and look at what it changes", path.display());
        }
    }
    println!("{} is what would be generated", folder.display());
    Ok(())
}

/// A P4 switch that runs the program.
#[derive(Args, Debug)]
pub(crate) struct P4Arguments {
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
pub(crate) struct P4Switch {
    pub(crate) plane: DeferredPlane<PlaneThread>,
    pub(crate) address: SocketAddrV4,
    /// Becomes readable when there is something to look at.
    pub(crate) wakes: OwnedFd,
    /// The process, if it was started for this.
    pub(crate) bmv2: Option<Bmv2>,
}

impl P4Arguments {
    /// What was said of a P4 switch.
    pub(crate) const fn given(&self) -> Option<&'static str> {
        match (&self.bmv2, &self.agent_interface) {
            (Some(_), _) => Some("--bmv2"),
            (None, Some(_)) => Some("--agent-interface"),
            (None, None) => None,
        }
    }

    /// The switch at this address, reached by workers by an interface of this machine if it is to be here.
    pub(crate) fn attach(
        &self,
        listen: Option<SocketAddr>,
        workers_interface: Option<&str>,
    ) -> Result<P4Switch> {
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
            // Whether all regions have room together is known when they are opened.
            Rooms::new(sizes).take(config).map(drop).map_err(|error| error.to_string())
        };
        let (thread, wakes) = PlaneThread::start(P4Plane::new(link, sizes), check)
            .context("cannot start the thread of the agent")?;
        Ok(P4Switch { plane: DeferredPlane::new(thread), address, wakes, bmv2 })
    }
}

fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<Vec<_>>>();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no address such as 02:4c:00:00:00:01"))
}
