//! The end of a process: its exit code, and the one line that names the reason.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Error, Result};
use clap::Args;
use libra_client::ClientError;
use libra_models::TrainError;
use libra_monitor::HttpError;
use libra_net::{NodeError, Notice};
use thiserror::Error as ThisError;

use crate::interrupt;
use crate::state_directory;

/// Done: a member's job is over, too.
pub const DONE: u8 = 0;
/// Failed, and started again it would fail again; one line on stderr names the error.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const COMMAND_LINE: u8 = 2;
/// Start it again: it was terminated by SIGTERM before the job was done, has lost the cluster or not found it in time, its address or its data directory is in use, or the controller that it asks does not answer.
pub const AGAIN: u8 = 75;
/// Interrupted by SIGINT.
pub const INTERRUPTED: u8 = 130;
/// Terminated by a second SIGTERM, before it had left the cluster.
pub const TERMINATED: u8 = 143;

/// The file for the reason.
static LOG: Mutex<Option<File>> = Mutex::new(None);

/// A process that this one asks does not answer.
#[derive(Debug, ThisError)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// Options of processes that an engine starts, which looks at their end.
#[derive(Args, Debug, Clone, Default)]
pub struct ExitArguments {
    /// File for the reason of the end: the last line on stderr. It is empty if there is none
    #[arg(long, value_name = "FILE")]
    termination_log: Option<PathBuf>,
}

impl ExitArguments {
    /// Makes the file: from now on, each reason is written to it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&self) -> Result<()> {
        let Some(path) = &self.termination_log else { return Ok(()) };
        let file = open(path).with_context(|| format!("cannot write {}", path.display()))?;
        *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

/// Prints the reason why this process ends. The last one is in its termination log.
pub fn report(program: &str, reason: &str) {
    eprintln!("{program}: {reason}");
    if let Some(log) = LOG.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        // The reason is on stderr, too, and there is no other place for a second error.
        let _ = rewrite(log, reason);
    }
}

fn rewrite(log: &mut File, reason: &str) -> io::Result<()> {
    // A pipe has no length.
    if log.metadata()?.is_file() {
        log.set_len(0)?;
        log.rewind()?;
    }
    writeln!(log, "{reason}")
}

/// Reports the result of a command, and returns the exit code for it.
pub fn end(program: &str, result: Result<()>) -> ExitCode {
    Notice::Stopping.send();
    let code = match result {
        _ if interrupt::happened() => INTERRUPTED,
        Ok(()) => DONE,
        Err(error) => {
            report(program, &format!("{error:#}"));
            code_of(&error)
        }
    };
    ExitCode::from(code)
}

fn code_of(error: &Error) -> u8 {
    let is_transient = error.chain().any(|cause| {
        cause.downcast_ref::<NodeError>().is_some_and(NodeError::is_transient)
            || cause.is::<Unreachable>()
            || client_error(cause).is_some_and(ClientError::is_transient)
            || cause.downcast_ref::<HttpError>().is_some_and(HttpError::is_in_use)
    });
    if is_transient { AGAIN } else { FAILED }
}

/// Ends this process from any thread, without its temporary directories.
pub(crate) fn at_once(code: u8) -> ! {
    state_directory::remove_temporary();
    std::process::exit(code.into())
}

/// Returns true if a worker stopped since it was asked to end.
pub fn is_drained(error: &Error) -> bool {
    error.chain().any(|cause| client_error(cause) == Some(&ClientError::Drained))
}

/// The error of a worker, as it is or as a training stops with it.
fn client_error<'a>(cause: &'a (dyn core::error::Error + 'static)) -> Option<&'a ClientError> {
    match cause.downcast_ref::<TrainError>() {
        Some(TrainError::Client(error)) => Some(error),
        _ => cause.downcast_ref::<ClientError>(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use libra_proto::EndCause;

    use super::*;

    fn bind(kind: ErrorKind) -> Error {
        let address = ([127, 0, 0, 1], 7700).into();
        NodeError::Bind { address, source: kind.into() }.into()
    }

    fn ended(cause: EndCause) -> NodeError {
        NodeError::Ended { reason: String::new(), cause }
    }

    #[test]
    fn the_exit_code_says_whether_to_start_it_again() {
        assert_eq!(code_of(&bind(ErrorKind::AddrInUse)), AGAIN);
        assert_eq!(code_of(&bind(ErrorKind::PermissionDenied)), FAILED);
        assert_eq!(code_of(&ended(EndCause::Lost).into()), AGAIN);
        assert_eq!(code_of(&ended(EndCause::Failed).into()), FAILED);
        let lost = ClientError::Ended { reason: String::new(), cause: EndCause::Lost };
        assert_eq!(code_of(&Error::from(lost.clone()).context("epoch 3")), AGAIN);
        assert_eq!(code_of(&TrainError::Client(lost).into()), AGAIN);
        assert_eq!(code_of(&NodeError::Drained { unsaved: None }.into()), AGAIN);
        assert!(is_drained(&TrainError::Client(ClientError::Drained).into()));
        assert_eq!(code_of(&Unreachable("no answer".to_owned()).into()), AGAIN);
        assert_eq!(code_of(&anyhow::anyhow!("the data are damaged")), FAILED);
    }
}
