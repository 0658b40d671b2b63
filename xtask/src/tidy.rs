//! `cargo xtask tidy`: rules of this project that neither the compiler nor clippy checks.
//!
//! Each rule is a function from what is there to [`Complaint`]s; its test plants a violation and sees it caught.

mod arrows;
mod drift;
mod lexed;
mod links;
mod names;
mod promises;
mod register;
mod rules;
mod size;
mod source;
mod text;
mod tree;
mod typed;

use std::fmt;

use anyhow::{Result, bail};

use crate::{Outcome, readme, shell};
use source::Module;
pub(crate) use tree::{File, Tree};

/// Finding of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// The file, and the line where there is one.
    at: String,
    what: String,
    /// It is only worth a look.
    warning: bool,
}

impl Complaint {
    fn new(at: impl Into<String>, what: impl Into<String>) -> Self {
        Self { at: at.into(), what: what.into(), warning: false }
    }

    fn warning(at: impl Into<String>, what: impl Into<String>) -> Self {
        Self { warning: true, ..Self::new(at, what) }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        write!(f, "tidy {kind}: {}: {}", self.at, self.what)
    }
}

pub(crate) fn run() -> Result<Outcome> {
    let tree = Tree::read()?;
    let modules = Module::all(&tree);
    let packages = arrows::packages(&shell::metadata()?)?;
    let (sources, not_rust) = lexed::sources(&tree);
    let register = register::rules(&tree, &sources);
    let size = size::rules(&modules);
    let complaints = [
        arrows::directions(&packages),
        arrows::dependencies(&packages),
        drift::message_version(&tree),
        drift::crate_table(&tree, &packages),
        drift::page_of_errors(&tree),
        drift::sockets_and_threads(&tree, &modules, &packages),
        links::lead_somewhere(&tree),
        links::manual_is_whole(&tree),
        names::crates(&packages),
        names::items(&modules),
        promises::lints(&tree, &packages),
        promises::no_unsafe(&modules),
        promises::dataplane(&modules),
        promises::pure(&modules),
        not_rust,
        register.iter().chain(&size).flat_map(|rule| rule.complaints.clone()).collect(),
        rules::citations(&tree, &modules),
        text::length(&tree),
        text::unfinished(&tree, &modules),
        text::machine_paths(&tree),
        text::prose_width(&tree),
        typed::documents(&tree),
        typed::commands(&readme::read().unwrap_or_default(), &typed::subcommands(&modules)),
    ]
    .concat();

    for complaint in &complaints {
        println!("{complaint}");
    }
    for (name, rules) in [("register", &register), ("size", &size)] {
        println!("tidy: {}", register::Summary { name, rules });
    }
    let errors = complaints.iter().filter(|complaint| !complaint.warning).count();
    let warnings = complaints.len() - errors;
    if errors > 0 {
        bail!("tidy: {errors} errors, {warnings} warnings");
    }
    println!("tidy: {} files, no errors, {warnings} warnings", tree.files.len());
    Ok(Outcome::Passed)
}
