//! `libra p4`: what the program of a P4 switch is made of.

mod resources;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use libra_p4::{Generated, Sizes};

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
    Tables(tables::TablesArguments),
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
        Command::Resources(arguments) => resources::run(arguments),
        Command::Tables(arguments) => tables::run(arguments),
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
