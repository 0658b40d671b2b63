//! `libra job`: the status of a job, and commands to its controller.

mod summary;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use libra_monitor::HttpToken;
use serde_json::{Value, json};

use self::summary::summary;
use crate::http::ControllerArguments;
use crate::output::print;

/// Shows the status of a job, or commands it.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Shows the status of the job
    Status(StatusArguments),
    /// Begins a checkpoint now
    Checkpoint(CommandArguments),
    /// Asks a member to end in order, as SIGTERM does: a worker ends its step, a switch hands its regions over, a server saves
    Drain(DrainArguments),
    /// Hands the regions of a switch over to a standby
    Migrate(MigrateArguments),
    /// Changes the number of workers
    Scale(ScaleArguments),
    /// Ends the job for all members, as failed
    Abort(AbortArguments),
}

#[derive(Args, Debug)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    controller: ControllerArguments,
    /// Prints the status as JSON, as the controller answers it
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CommandArguments {
    #[command(flatten)]
    controller: ControllerArguments,
    /// File with the token that the controller has in its own --http-token-file
    #[arg(long, value_name = "FILE", required = true)]
    http_token_file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct DrainArguments {
    /// The member, as in `switch 0`
    #[arg(value_name = "MEMBER", required = true, num_args = 1..=2)]
    member: Vec<String>,
    #[command(flatten)]
    command: CommandArguments,
}

#[derive(Args, Debug)]
pub(crate) struct MigrateArguments {
    /// The switch, as in `switch 0`, or its number alone
    #[arg(value_name = "SWITCH", required = true, num_args = 1..=2)]
    switch: Vec<String>,
    #[command(flatten)]
    command: CommandArguments,
}

#[derive(Args, Debug)]
pub(crate) struct ScaleArguments {
    /// The number of workers, as in `workers=5`
    #[arg(value_name = "workers=N", value_parser = parse_workers)]
    workers: u16,
    #[command(flatten)]
    command: CommandArguments,
}

#[derive(Args, Debug)]
pub(crate) struct AbortArguments {
    /// The reason, which all members report
    #[arg(long, value_name = "TEXT", default_value = "aborted by `libra job abort`")]
    reason: String,
    #[command(flatten)]
    command: CommandArguments,
}

impl CommandArguments {
    fn send(&self, name: &str, body: &Value) -> Result<()> {
        let token = HttpToken::read(&self.http_token_file)?;
        println!("{}", self.controller.controller()?.command(name, body, &token)?);
        Ok(())
    }
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Status(arguments) => status(arguments),
        Command::Checkpoint(command) => command.send("checkpoint", &json!({})),
        Command::Drain(DrainArguments { member, command }) => {
            command.send("drain", &json!({ "member": member.join(" ") }))
        }
        Command::Migrate(MigrateArguments { switch, command }) => {
            command.send("migrate", &json!({ "switch": switch_number(switch)? }))
        }
        Command::Scale(ScaleArguments { workers, command }) => {
            command.send("scale", &json!({ "workers": workers }))
        }
        Command::Abort(AbortArguments { reason, command }) => {
            command.send("abort", &json!({ "reason": reason }))
        }
    }
}

fn status(arguments: &StatusArguments) -> Result<()> {
    let (text, job) = arguments.controller.controller()?.status()?;
    print(&if arguments.json { text.trim_end().to_owned() } else { summary(&job) })
}

fn switch_number(words: &[String]) -> Result<u16> {
    let number = match words {
        [number] => number.parse(),
        [kind, number] if kind == "switch" => number.parse(),
        _ => bail!("{} is no switch: write `switch 0`, or 0", words.join(" ")),
    };
    number.map_err(|_| anyhow::anyhow!("{} is no switch: write `switch 0`, or 0", words.join(" ")))
}

fn parse_workers(text: &str) -> Result<u16, String> {
    let number = text.strip_prefix("workers=").and_then(|number| number.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| "a number of workers, as in workers=5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_named_by_its_number() {
        let number = |words: &[&str]| {
            switch_number(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok()
        };
        assert_eq!(number(&["3"]), Some(3));
        assert_eq!(number(&["switch", "0"]), Some(0));
        assert_eq!(number(&["worker", "0"]), None);
        assert_eq!(number(&["switch"]), None);
    }

    #[test]
    fn a_scale_says_what_it_scales() {
        assert_eq!(parse_workers("workers=5"), Ok(5));
        for bad in ["5", "workers=0", "workers=", "servers=2"] {
            assert!(parse_workers(bad).is_err(), "{bad}");
        }
    }
}
