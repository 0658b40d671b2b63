//! The manual as a book, by mdBook.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::{Outcome, shell};

/// Builds the book into the folder `book` of the target directory. mdBook is installed beside it where it is missing.
pub(crate) fn run() -> Result<Outcome> {
    let target = shell::target_directory()?;
    let tools = target.join("tools");
    let installed = tools.join("bin/mdbook");
    if !starts(Path::new("mdbook")) && !starts(&installed) {
        println!("installing mdbook into {}", tools.display());
        // Neither its server nor its speed is needed here, and a release build takes minutes.
        let lean = ["--debug", "--no-default-features"];
        let mut install =
            shell::cargo(&["install", "--quiet", "mdbook", "--version", "^0.5", "--locked", "--root"]);
        install.arg(&tools).args(lean);
        if let Err(error) = shell::run(install) {
            return Ok(Outcome::Skipped(format!("there is no mdbook: {error:#}")));
        }
    }
    let program = if starts(&installed) { installed } else { "mdbook".into() };
    let mut build = shell::program(program, &["build", "docs", "--dest-dir"]);
    build.arg(target.join("book"));
    shell::run(build)?;
    Ok(Outcome::Passed)
}

/// Tells if the program is there and can be run.
fn starts(program: &Path) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}
