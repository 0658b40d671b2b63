//! Processes that another one has started end with it, however it ends: they read its end of a pipe.

use std::io::{BufRead, stdin};
use std::thread;

use anyhow::Result;

use crate::interrupt;

/// Hands the lines of standard input to `take`, and ends this process with its input.
pub(crate) fn hold(mut take: impl FnMut(&str) + Send + 'static) -> Result<()> {
    let read = move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            take(&line);
        }
        std::process::exit(interrupt::EXIT_CODE.into());
    };
    thread::Builder::new().name("leash".to_owned()).spawn(read)?;
    Ok(())
}
