//! `libra top`: a job while it runs, on a terminal.
//!
//! ```text
//!  controller ──▶ source ──▶ model ──▶ board ──▶ view ──▶ terminal, text
//!   (HTTP)       (thread)   (rates, events)  └──────────▶ JSON
//! ```
//!
//! Only `source` and `screen` know clocks, threads and terminals.

mod columns;
mod events;
mod history;
mod model;
pub(crate) mod rates;
mod screen;
mod source;
#[cfg(test)]
pub(crate) mod testing;
mod view;

use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use libra_launch::table;
use serde::Serialize;

use self::model::{Board, Model, Order};
use self::source::Source;
use self::view::{Screen, text};
use crate::http::ControllerArguments;
use crate::output::print;

/// Time between the two looks of `--once`: members send their counts twice in it.
const ONCE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows a job that runs: its members, their rates and what happens.
///
/// It prints one screen as text where the output is no terminal.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  libra top                                          the job of the controller on this machine
  libra top --controller ps-0.rack3:7700             of another one
  libra top --once                                   one screen, as text
  libra top --json --interval 1000                   a line of JSON each second")]
pub(crate) struct Arguments {
    #[command(flatten)]
    controller: ControllerArguments,
    /// Milliseconds between two looks
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
    /// Prints one screen as text, or with --json one line, and ends. It looks twice, a second apart
    #[arg(long)]
    once: bool,
    /// Prints a line of JSON for each look, with rates
    #[arg(long)]
    json: bool,
}

/// A line of `--json`.
#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    /// Seconds since when the controller does not answer; the rest is what was seen last.
    outage_seconds: Option<f64>,
    #[serde(flatten)]
    board: &'a Board,
    /// Events since the line before, oldest first.
    events: Vec<&'a str>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let controller = arguments.controller.controller()?;
    let interval = Duration::from_millis(arguments.interval);
    let mut source = Source::new(controller);
    let mut model = Model::default();
    let begun = Instant::now();
    // A controller that was never reached is an error, one that goes away is waited for.
    let first = source.look()?;
    model.observe(begun.elapsed().as_secs_f64(), first);
    if arguments.once || (!arguments.json && !stdout().is_terminal()) {
        return once(arguments, source, model, begun);
    }
    if arguments.json {
        stream(source, model, begun, interval)
    } else {
        screen::run(source, model, begun, interval)
    }
}

/// One line or one screen.
fn once(arguments: &Arguments, mut source: Source, mut model: Model, begun: Instant) -> Result<()> {
    std::thread::sleep(ONCE_INTERVAL);
    let document = source.look()?;
    let now = begun.elapsed().as_secs_f64();
    model.observe(now, document);
    if arguments.json {
        return print(&json_line(&model, now, 0)?);
    }
    let board = model.board(Order::Number);
    let screen = Screen {
        now,
        controller: &source.name(),
        board: board.as_ref(),
        outage: model.outage(),
        events: model.events().collect(),
        order: Order::Number,
        shows_help: false,
    };
    print(&text(&screen, table::width()))
}

/// A line for each look.
fn stream(mut source: Source, mut model: Model, begun: Instant, interval: Duration) -> Result<()> {
    let mut told = 0;
    loop {
        let now = begun.elapsed().as_secs_f64();
        print(&json_line(&model, now, told)?)?;
        told = model.event_count();
        std::thread::sleep(interval);
        let found = source.look();
        let now = begun.elapsed().as_secs_f64();
        match found {
            Ok(document) => model.observe(now, document),
            Err(error) => model.fail(now, format!("{error:#}")),
        }
    }
}

fn json_line(model: &Model, now: f64, told: u64) -> Result<String> {
    let board = model.board(Order::Number).expect("it begins with a document");
    let new = usize::try_from(model.event_count() - told).unwrap_or(usize::MAX);
    let mut events: Vec<_> = model.events().take(new).map(|event| event.text.as_str()).collect();
    events.reverse();
    let outage_seconds = model.outage().map(|outage| now - outage.since);
    let line = JsonLine { time: Timestamp::now().to_string(), outage_seconds, board: &board, events };
    Ok(serde_json::to_string(&line)?)
}
