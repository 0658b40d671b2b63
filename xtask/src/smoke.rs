//! The first command of the README, as a new user would run it; in a pipeline without a release build, by the program of the tests.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, Running};
use crate::report::Report;
use crate::{Outcome, readme, shell};

/// Time that the README promises for the run after compiling, on two cores.
const PROMISED_SECONDS: f64 = 180.0;
/// A run that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(420);

pub(crate) fn run() -> Result<Outcome> {
    process::catch_interrupts()?;
    let commands = readme::read()?;
    let command = commands
        .iter()
        .find(|command| command.words.starts_with(&["cargo".into(), "run".into()]))
        .context("README.md has no sh block with a `cargo run` command")?;
    if command.libra_arguments().and_then(<[String]>::first).is_none_or(|subcommand| subcommand != "train") {
        bail!("README.md:{}: the first command must train, but is `{}`", command.line, command.text());
    }

    let folder = shell::target_directory()?.join("smoke");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let json = folder.join("report.json");
    drop(std::fs::remove_file(&json));

    let mut process = match shell::test_programs() {
        // Its release build would take ten minutes.
        Some(programs) => {
            let mut process = shell::program(programs.join("libra"), &[]);
            process.args(command.libra_arguments().unwrap_or_default());
            process
        }
        None => {
            let mut process = shell::cargo(&[]);
            process.args(&command.words[1..]);
            process
        }
    };
    process.args(["--quiet", "--json"]).arg(&json);
    println!("running `{}`", shell::line(&process));
    Running::start("smoke", process, folder.join("output.log"))?.finish(LIMIT)?;

    let report = Report::read(&json)?;
    println!("{}", report.summary());
    report.check_work()?;
    let seconds = report.number("seconds.total");
    if seconds > PROMISED_SECONDS {
        shell::loudly(&format!(
            "the first run took {seconds:.0} s; the README promises {PROMISED_SECONDS:.0} s"
        ));
    }
    Ok(Outcome::Passed)
}
