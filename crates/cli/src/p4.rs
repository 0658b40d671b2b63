//! `libra p4`: generated sources, resources and tables of the program of a P4 switch.

mod resources;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use libra_launch::p4::SumsName;
use libra_p4::{Generated, Sizes, Sums};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Writes the sizes, the codes and everything that is there once for each lane, from the constants of the data plane
    ///
    /// programs/p4 holds the rest of the program, and includes these files from its folder `generated`. With other sizes than the
    /// usual ones it is a program for a smaller or larger switch: generate into that folder, and compile again.
    Generate(GenerateArguments),
    /// Prints the resources of a Tofino that the program takes: registers, tables, memory, stages and headers
    ///
    /// An estimate from the sizes that generate the program. docs/operating/p4.md has what the compiler made of the usual ones.
    Resources(resources::ResourcesArguments),
    /// Prints what the tables of a switch hold, for its own command line
    ///
    /// They are the setup of the switch, and the workers and regions that are named. An agent makes these changes by itself.
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
    /// Arithmetic of the lanes
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
