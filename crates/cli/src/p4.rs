//! `libra p4`: what the program of a P4 switch is made of. And what `libra switch --plane p4` is told.

mod link;

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use libra_p4::{Generated, P4Plane, Setup, Sizes};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use self::link::Bmv2Link;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Writes the sizes, the codes and everything that is there once for each lane, from the constants of the data plane
    ///
    /// programs/p4 holds the rest of the program, and includes these files from its folder `generated`. With other sizes than the
    /// usual ones it is a program for a smaller or larger switch: generate into that folder, and compile again.
    Generate(GenerateArguments),
}

#[derive(Args)]
pub(crate) struct GenerateArguments {
    /// The folder
    #[arg(long, value_name = "DIR", default_value = "programs/p4/generated")]
    out: PathBuf,
    /// Writes nothing, and fails if a file is not what would be written
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    sizes: SizeArguments,
}

#[derive(Args)]
struct SizeArguments {
    /// Entries of a packet, and registers of sums that it passes
    #[arg(long, value_name = "N", default_value_t = Sizes::default().lanes)]
    lanes: u8,
    /// Two to the power of N cells a lane: with 16 lanes and 11, there are 32,768 slots
    #[arg(long, value_name = "N", default_value_t = Sizes::default().cell_bits)]
    cell_bits: u8,
    /// Two to the power of N flows: workers times regions
    #[arg(long, value_name = "N", default_value_t = Sizes::default().flow_bits)]
    flow_bits: u8,
    /// Regions at once, of all jobs together
    #[arg(long, value_name = "N", default_value_t = Sizes::default().regions)]
    regions: u16,
    /// Values of a push are below two to the power of N
    #[arg(long, value_name = "N", default_value_t = Sizes::default().bound_bits)]
    bound_bits: u8,
}

impl SizeArguments {
    const fn sizes(&self) -> Sizes {
        let Self { lanes, cell_bits, flow_bits, regions, bound_bits } = *self;
        Sizes { lanes, cell_bits, flow_bits, regions, bound_bits }
    }
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Generate(arguments) => generate(arguments),
    }
}

fn generate(arguments: &GenerateArguments) -> Result<()> {
    let files = libra_p4::generate(&arguments.sizes.sizes())?;
    if arguments.check {
        return check(&arguments.out, &files);
    }
    fs::create_dir_all(&arguments.out).with_context(|| format!("cannot make {}", arguments.out.display()))?;
    for Generated { name, text } in &files {
        let path = arguments.out.join(name);
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

/// How often an agent asks its switch what it has taken: nothing there wakes it.
const ASKS_EVERY: Duration = Duration::from_millis(2);

/// A P4 switch that runs the program.
#[derive(Args, Debug)]
pub(crate) struct P4Arguments {
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

impl P4Arguments {
    /// Whether it was said by which interface the agent reaches its switch.
    pub(crate) const fn are_given(&self) -> bool {
        self.agent_interface.is_some()
    }

    /// The switch at this address, and what wakes its agent.
    pub(crate) fn attach(
        &self,
        listen: Option<SocketAddr>,
    ) -> Result<(P4Plane<Bmv2Link>, SocketAddrV4, OwnedFd)> {
        let Some(interface) = &self.agent_interface else {
            bail!("--plane p4 needs --agent-interface, the one that leads to the agent's port of the switch");
        };
        let Some(SocketAddr::V4(address)) = listen.filter(|address| address.port() != 0) else {
            bail!("--plane p4 needs --listen IP:PORT, the IPv4 address of the switch that workers send to");
        };
        let setup = Setup {
            address,
            mac: self.switch_mac,
            agent_port: self.agent_port,
            ports: self.switch_ports.clone(),
        };
        let sizes = Sizes::default();
        let link = Bmv2Link::open(interface, self.thrift, sizes, &setup)?;
        Ok((P4Plane::new(link, sizes), address, ticks().context("cannot make a timer")?))
    }
}

/// Becomes readable again and again.
fn ticks() -> Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let every = Timespec { tv_sec: 0, tv_nsec: ASKS_EVERY.subsec_nanos().into() };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: every, it_value: every })?;
    Ok(timer)
}

fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<Vec<_>>>();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no address such as 02:4c:00:00:00:01"))
}
