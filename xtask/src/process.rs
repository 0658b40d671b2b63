//! Processes that run beside this one, and never outlive it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::shell;

/// Between two looks at processes that run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks at what a process prints: this can be part of a measurement.
const LOOK_FOR_TEXT_EVERY: Duration = Duration::from_millis(1);
/// Of a log, what an error message shows.
const TAIL_LINES: usize = 15;

/// Set by a signal, once it is watched for.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on Ctrl-C and SIGTERM no longer end this process: [`check_interrupt`] reports them, so that what was
/// begun is removed first.
pub(crate) fn catch_interrupts() -> Result<()> {
    let interrupted = Arc::<AtomicBool>::default();
    if INTERRUPTED.set(Arc::clone(&interrupted)).is_ok() {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&interrupted)).context("cannot watch for Ctrl-C")?;
        }
    }
    Ok(())
}

/// An error once Ctrl-C was pressed.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.get().is_some_and(|interrupted| interrupted.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// An address of loopback that was free a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port")?;
    listener.local_addr().context("a socket has no address")
}

/// A process in a process group of its own; dropping it kills the group.
pub(crate) struct Running {
    pub(crate) name: String,
    log: PathBuf,
    child: Child,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts it; what it prints goes to the file `log`.
    pub(crate) fn start(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let both = file.try_clone().context("cannot duplicate a file descriptor")?;
        command.stdin(Stdio::null()).stdout(file).stderr(both).process_group(0);
        let line = shell::line(&command);
        let child = command.spawn().with_context(|| format!("{name}: cannot start `{line}`"))?;
        Ok(Self { name: name.to_owned(), log, child, status: None })
    }

    /// Its process id, and that of its group.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its exit status, or `None` while it runs.
    pub(crate) fn status(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status =
                self.child.try_wait().with_context(|| format!("cannot look after {}", self.name))?;
        }
        Ok(self.status)
    }

    /// Sends it a signal, as `-TERM`.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        shell::run(shell::program("kill", &[signal, &self.id().to_string()]))
    }

    pub(crate) fn has_printed(&self, text: &str) -> bool {
        std::fs::read_to_string(&self.log).is_ok_and(|printed| printed.contains(text))
    }

    /// Waits until it has printed this; that it ends before, and not to print it within `limit`, are errors.
    pub(crate) fn wait_for(&mut self, text: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !self.has_printed(text) {
            check_interrupt()?;
            if self.status()?.is_some() || Instant::now() >= deadline {
                bail!("no line with {text:?}\n{}", self.tail());
            }
            std::thread::sleep(LOOK_FOR_TEXT_EVERY);
        }
        Ok(())
    }

    /// The end of what it printed, indented.
    pub(crate) fn tail(&self) -> String {
        let printed = std::fs::read(&self.log).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let lines: Vec<_> = printed.lines().collect();
        let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        let body: String = last.iter().map(|line| format!("\n    {line}")).collect();
        format!("{} (all of it: {}):{}", self.name, self.log.display(), body)
    }

    /// Waits until it has ended well; anything else, and not to end within `limit`, is an error.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        wait(std::slice::from_mut(&mut self), deadline)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_some() || !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Not yet waited for, so the id is still that of our child, and its group is the one we made.
        let group = format!("kill -s KILL -- -{}", self.child.id());
        let killed = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
        if !killed.is_ok_and(|status| status.success()) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// KiB of memory of a process, as /proc has them by name: `VmRSS` now, `VmHWM` the most so far.
pub(crate) fn memory(id: u32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("a process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.context("a process is gone")?.trim().trim_end_matches(" kB");
    kib.parse().context("/proc has no number of KiB")
}

/// Waits until all have ended well. The first that has not, the deadline and Ctrl-C are errors that show what the
/// processes printed last.
pub(crate) fn wait(processes: &mut [Running], deadline: Instant) -> Result<()> {
    loop {
        check_interrupt()?;
        let mut running = Vec::new();
        for process in &mut *processes {
            match process.status()? {
                Some(status) if !status.success() => {
                    bail!("{} failed ({status})\n{}", process.name, process.tail())
                }
                Some(_) => {}
                None => running.push(process.name.clone()),
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let tails: Vec<_> = processes.iter().map(Running::tail).collect();
            bail!(
                "{} still run at the deadline; what was printed last:\n{}",
                running.join(", "),
                tails.join("\n")
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(name: &str, script: &str) -> Running {
        let log = std::env::temp_dir().join(format!("libra-xtask-{}-{name}.log", std::process::id()));
        Running::start(name, shell::program("sh", &["-c", script]), log).unwrap()
    }

    #[test]
    fn a_failure_shows_what_was_printed() {
        let process = sh("loser", "echo the reason; exit 3");
        let log = process.log.clone();
        let error = process.finish(Duration::from_secs(60)).unwrap_err();
        std::fs::remove_file(log).unwrap();
        let text = format!("{error:#}");
        assert!(text.contains("loser failed") && text.contains("exit status: 3"), "{text}");
        assert!(text.contains("the reason"), "{text}");
    }

    #[test]
    fn a_text_is_awaited() {
        let mut process = sh("speaker", "sleep 0.1; echo the text; sleep 0.2");
        let limit = Duration::from_secs(60);
        process.wait_for("the text", limit).unwrap();
        assert!(process.status().unwrap().is_none());
        let error = process.wait_for("another", limit).unwrap_err();
        assert!(format!("{error:#}").contains("no line with \"another\"\nspeaker"), "{error:#}");
        std::fs::remove_file(&process.log).unwrap();
    }

    #[test]
    fn the_deadline_kills_the_process_and_its_children() {
        let mut process = sh("sleeper", "sleep 600 & echo $!; wait");
        while std::fs::read(&process.log).unwrap().is_empty() {
            std::thread::sleep(LOOK_EVERY);
        }
        let error = wait(std::slice::from_mut(&mut process), Instant::now()).unwrap_err();
        assert!(format!("{error:#}").contains("sleeper still run at the deadline"));

        let grandchild = std::fs::read_to_string(&process.log).unwrap();
        let state = format!("/proc/{}/stat", grandchild.trim());
        std::fs::remove_file(&process.log).unwrap();
        drop(process);
        // The parent of an orphaned process may be slow to reap it: a zombie counts as dead.
        let dead = || std::fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !dead() && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
        assert!(dead(), "{state} is still there");
    }
}
