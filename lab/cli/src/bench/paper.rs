//! `libra-lab bench paper`: the evaluation of the paper, with our system, beside what the paper reports.
//!
//! Each item of the evaluation is a function that returns a [`Finding`], which is written to a file of its own. The report is made of these
//! files alone, so what it says can be looked up there.

mod chart;
mod finding;
mod float;
mod gradients;
mod jobs;
mod layout;
mod loss;
mod memory;
mod negotiation;
mod page;
mod precision;
mod quality;
mod resources;
mod skew;
mod tasks;
mod testbed;
mod throughput;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::finding::Finding;
use self::tasks::Tasks;
use libra_launch::arguments::clear;
use libra_launch::document::write_json;
use libra_launch::progress::Bars;

/// An item of the paper's evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Item {
    /// How uneven updates are: the figure of hot and cold parameters
    Skew,
    /// How fast gradients are added up, with three systems
    Throughput,
    /// What twice the memory of the switch brings
    Memory,
    /// What more hot parameters bring
    #[value(name = "topk")]
    TopK,
    /// How precisely a sample tells which parameters are hot
    Precision,
    /// How often packets go through the pipeline again
    Layout,
    /// How precise sums of floats are
    Float,
    /// What it takes to agree on a scaling factor in each iteration
    Negotiation,
    /// What lost packets cost
    Loss,
    /// What goes to servers, with a switch and without
    Traffic,
    /// What it takes of a switch
    Resources,
    /// Whether models are as good with a switch as without
    Quality,
}

impl Item {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn find(self, tasks: &Tasks, bars: Bars) -> Result<Finding> {
        match self {
            Self::Skew => skew::find(tasks, bars),
            Self::Throughput => throughput::find(tasks, bars),
            Self::Memory => memory::find(tasks, bars),
            Self::TopK => memory::find_top_k(tasks, bars),
            Self::Traffic => traffic::find(tasks, bars),
            Self::Precision => precision::find(tasks, bars),
            Self::Layout => layout::find(tasks),
            Self::Float => float::find(tasks, bars),
            Self::Negotiation => negotiation::find(tasks, bars),
            Self::Loss => loss::find(tasks, bars),
            Self::Resources => resources::find(),
            Self::Quality => quality::find(tasks, bars),
        }
    }
}

/// Repeats the paper's evaluation with this system, and shows what comes of it beside what the paper reports.
///
/// Without names all items are repeated. The report is one page that needs no network, DIR/index.html; beside it each item has a JSON file with every
/// number that the page shows.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// What to repeat; everything if not given
    #[arg(value_enum, value_name = "ITEM")]
    items: Vec<Item>,
    /// Where the report is written
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Where real data are: a directory with any of ml-1m, criteo-head10k and ptb. A task without takes built-in data, and the report says so
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Takes a small part of the data, to see whether everything works
    #[arg(long)]
    quick: bool,
    /// Decides what is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Prints nothing but errors
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let bars = Bars::new(arguments.quiet);
    let items = if arguments.items.is_empty() { Item::value_variants() } else { &arguments.items };
    if let Some(data) = &arguments.data {
        tasks::check(data)?;
    }
    let out = &arguments.out;
    fs::create_dir_all(out).with_context(|| format!("--out: cannot make {}", out.display()))?;
    let file = |item: &Item| out.join(item.name()).with_extension("json");
    for item in items {
        clear(&file(item))?;
    }
    let page = out.join("index.html");
    clear(&page)?;
    let tasks = Tasks::new(arguments.quick, arguments.seed, arguments.data.clone());
    for item in items {
        bars.line(&format!("{} ..", item.name()));
        let began = Instant::now();
        let mut finding = item.find(&tasks, bars).with_context(|| item.name())?;
        finding.seconds = began.elapsed().as_secs_f64();
        write_json(&file(item), &finding)?;
    }
    let findings = items.iter().map(|item| read(&file(item))).collect::<Result<Vec<_>>>()?;
    fs::write(&page, page::render(&findings, arguments.quick)?)
        .with_context(|| format!("cannot write {}", page.display()))?;
    if !arguments.quiet {
        println!("{}", page::scoreboard(&findings));
        println!("the whole report is {}", page.display());
    }
    Ok(())
}

/// What was found, as it is on the disk.
fn read(path: &Path) -> Result<Finding> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} holds no finding", path.display()))
}
