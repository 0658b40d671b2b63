//! `cargo xtask stores`: checkpoints at URLs and exports, at real servers of every kind of store that is installed.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::findings::{Finding, Findings, StepOptions};
use crate::{Outcome, process, shell};

mod checks;
mod server;

pub(crate) use server::{BUCKET, Kind, Store};

#[derive(Args, Default)]
pub(crate) struct Options {
    #[command(flatten)]
    step: StepOptions,
    /// Stores, if not all: file, moto, s3s-fs, azurite
    #[arg(value_name = "STORE")]
    stores: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if !shell::starts("rclone") {
        return options.step.skip("there is no rclone: apt-get install rclone".to_owned());
    }
    process::catch_interrupts()?;
    let libra = options.step.binary()?;
    let folder = shell::target_directory()?.join("stores");
    shell::remove_directory(&folder)?;
    checks::write_data(&folder.join("data"))?;
    let mut findings = Findings::default();
    for kind in Kind::ALL {
        if options.stores.is_empty() || options.stores.iter().any(|name| name == kind.name()) {
            check(kind, &libra, &folder, &mut findings)?;
        }
    }
    // No emulator of Google's storage that registries have answers the requests of our client, in XML.
    findings.note("gs:// is not run", Ok(Finding::Passed("no server of it can be installed".to_owned())));
    findings.outcome(options.step.required)
}

/// Makes all checks at one store, up to the first that fails.
fn check(kind: Kind, libra: &Path, folder: &Path, findings: &mut Findings) -> Result<()> {
    let Some(store) = Store::start(kind, folder, "127.0.0.1")? else {
        shell::loudly(&format!("{} is not installed: {}", kind.name(), kind.installation()));
        findings.note(kind.name(), Ok(Finding::Skipped(kind.installation().to_owned())));
        return Ok(());
    };
    let begin = Instant::now();
    let own = folder.join(format!("jobs-{}", kind.name()));
    fs::create_dir_all(&own)?;
    store.make_bucket()?;
    let bench = checks::Bench { store, libra: libra.to_owned(), folder: own };
    println!("--- {}", kind.name());
    for (name, made) in checks::CHECKS {
        let finding = made(&bench).map_err(|error| match bench.store.tail() {
            tail if tail.is_empty() => error,
            tail => error.context(tail),
        });
        let has_failed = finding.is_err();
        findings.note(name, finding);
        if has_failed {
            return Ok(());
        }
    }
    println!("--- {} in {:.1} s", kind.name(), begin.elapsed().as_secs_f64());
    Ok(())
}
