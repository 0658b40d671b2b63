//! Diagnostics for developers: lines on stderr about streams, sockets and disks, which the crates that have these emit with `tracing`.
//!
//! Users have [events](crate::event_log) and metrics, whose names stay; names of diagnostics are those of the code.

use anyhow::{Context, Result, bail};
use tracing_subscriber::EnvFilter;

/// The variable with the crates, modules and levels that are wanted, as in `libra_net=debug,libra_storage=trace`. Without it there are none.
const FILTER: &str = "LIBRA_DIAGNOSTICS";
/// The variable with the format of lines: `text` or `json`.
const FORMAT: &str = "LIBRA_DIAGNOSTICS_FORMAT";

/// Prints what the environment asks for from now on.
///
/// # Errors
/// A variable has a value that means nothing.
pub fn begin() -> Result<()> {
    let Some(filter) = variable(FILTER)? else { return Ok(()) };
    let filter = EnvFilter::builder().parse(&filter).with_context(|| {
        format!("{FILTER} = {filter}: write modules and levels, as in libra_net=debug,libra_storage=trace")
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_thread_names(true);
    match variable(FORMAT)?.as_deref() {
        None | Some("text") => lines.with_ansi(false).init(),
        Some("json") => lines.json().init(),
        Some(other) => bail!("{FORMAT} = {other}: it is text or json"),
    }
    Ok(())
}

/// The value of a variable; none if it is empty.
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var_os(name).filter(|value| !value.is_empty()) {
        Some(value) => match value.into_string() {
            Ok(value) => Ok(Some(value)),
            Err(value) => bail!("{name} = {} is not UTF-8", value.display()),
        },
        None => Ok(None),
    }
}
