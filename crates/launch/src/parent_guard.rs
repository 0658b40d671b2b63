//! Processes that another one has started end with it, however it ends: they read its end of a pipe.

use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result};

use crate::{exit, interrupt, privileges};

/// Returns the program to start: such processes are of this program.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the path of this program")
}

/// Hands the lines of standard input to `take`, and ends this process with its input.
pub fn exit_with_parent(mut take: impl FnMut(&str) + Send + 'static) -> Result<()> {
    interrupt::report_elsewhere();
    let read = move || {
        // It only reads, so it has no use for what the process was started with.
        let _ = privileges::keep_none();
        for line in stdin().lock().lines().map_while(Result::ok) {
            take(&line);
        }
        exit::at_once(exit::INTERRUPTED);
    };
    thread::Builder::new().name("parent-guard".to_owned()).spawn(read)?;
    Ok(())
}
