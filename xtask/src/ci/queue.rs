//! Commands that run beside the steps of CI, one after another.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{failed, in_seconds};
use crate::process::{self, Running};
use crate::shell;

/// Between two looks at the command that runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Its name, and what makes it.
type Named = (&'static str, fn() -> Result<Command>);

/// Commands that get the time of processors that nothing else wants. Dropping it ends the one that runs.
pub(super) struct Queue {
    thread: Option<JoinHandle<Result<()>>>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// No other command begins.
    rests: bool,
    is_running: bool,
    is_dropped: bool,
}

impl Queue {
    pub(super) fn start(commands: Vec<Named>) -> Result<Self> {
        let logs = shell::target_directory()?.join("ci");
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || run_all(&commands, &logs, &shared));
        Ok(Self { thread: Some(thread), state })
    }

    /// Waits for the command that runs; the next one begins after [`Self::go_on`]. Fails if a command has failed.
    pub(super) fn rest(&mut self) -> Result<()> {
        change(&self.state, |state| state.rests = true);
        while change(&self.state, |state| *state).is_running {
            thread::sleep(LOOK_EVERY);
        }
        self.check()
    }

    /// Lets commands begin. Fails if one has failed.
    pub(super) fn go_on(&mut self) -> Result<()> {
        change(&self.state, |state| state.rests = false);
        self.check()
    }

    /// Waits for the last command.
    pub(super) fn finish(mut self) -> Result<()> {
        self.go_on()?;
        self.join()
    }

    fn check(&mut self) -> Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) { self.join() } else { Ok(()) }
    }

    fn join(&mut self) -> Result<()> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("it does not panic"))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        change(&self.state, |state| state.is_dropped = true);
        drop(self.join());
    }
}

fn change<T>(state: &Mutex<State>, change: impl FnOnce(&mut State) -> T) -> T {
    change(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

fn run_all(commands: &[Named], logs: &Path, state: &Mutex<State>) -> Result<()> {
    for (name, command) in commands {
        while !change(state, |state| {
            state.is_running = !state.rests || state.is_dropped;
            state.is_running
        }) {
            thread::sleep(LOOK_EVERY);
        }
        let log = logs.join(name.replace(' ', "-")).with_extension("log");
        let begin = Instant::now();
        let ended = command().and_then(|command| run(name, &command, log.clone(), state));
        change(state, |state| state.is_running = false);
        let printed = fs::read(&log).unwrap_or_default();
        let (printed, seconds) = (String::from_utf8_lossy(&printed), in_seconds(begin.elapsed()));
        ended.with_context(|| format!("{}\n{printed}", failed(name, &seconds)))?;
        println!("=== {name}, beside\n{printed}=== {name} passed in {seconds}, beside others");
    }
    Ok(())
}

fn run(name: &str, command: &Command, log: PathBuf, state: &Mutex<State>) -> Result<()> {
    let mut running = Running::start(name, idle(command), log)?;
    loop {
        match running.status()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("{status}"),
            None if change(state, |state| state.is_dropped) => bail!("not needed any more"),
            None => process::check_interrupt()?,
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The same command at a priority below that of all others.
fn idle(command: &Command) -> Command {
    let of_system: &[&str] =
        if shell::starts("chrt") { &["chrt", "--idle", "0"] } else { &["nice", "-n", "19"] };
    let program = [command.get_program()];
    let words: Vec<&OsStr> =
        of_system.iter().map(OsStr::new).chain(program).chain(command.get_args()).collect();
    let mut idle = shell::program(words[0], &[]);
    idle.args(&words[1..]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => idle.env(name, value),
            None => idle.env_remove(name),
        };
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        shell::program("sh", &["-c", script])
    }

    #[test]
    fn commands_run_one_after_another_with_their_variables() {
        let folder = std::env::temp_dir().join(format!("libra-xtask-queue-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let first: Named = ("the first", || {
            let mut command = sh("echo $LIBRA_OF_QUEUE; sleep 0.3; date +%s%N");
            command.env("LIBRA_OF_QUEUE", "has it");
            Ok(command)
        });
        let second: Named = ("second", || Ok(sh("date +%s%N")));
        run_all(&[first, second], &folder, &Mutex::default()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let (first, second) = (read("the-first.log"), read("second.log"));
        let lines: Vec<&str> = first.lines().collect();
        assert_eq!(lines[0], "has it");
        assert!(lines[1].parse::<u128>().unwrap() < second.trim().parse().unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failure_is_reported_with_what_was_printed() {
        let mut queue = Queue::start(vec![("loser", || Ok(sh("echo the reason; exit 3")))]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = loop {
            match queue.go_on() {
                Ok(()) => assert!(Instant::now() < deadline, "it did not fail"),
                Err(error) => break error,
            }
            thread::sleep(LOOK_EVERY);
        };
        let text = format!("{error:#}");
        assert!(text.contains("CI FAILED at step loser") && text.contains("the reason"), "{text}");
        queue.finish().unwrap();
    }

    #[test]
    fn nothing_begins_while_it_rests() {
        let folder = std::env::temp_dir().join(format!("libra-xtask-rest-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let log = folder.join("second.log");
        let first: Named = ("first", || Ok(sh("sleep 0.5")));
        let second: Named = ("second", || Ok(sh("echo began")));
        let state = Arc::<Mutex<State>>::default();
        let (shared, logs) = (Arc::clone(&state), folder.clone());
        let thread = Some(thread::spawn(move || run_all(&[first, second], &logs, &shared)));
        let mut queue = Queue { thread, state };
        queue.rest().unwrap();
        thread::sleep(3 * LOOK_EVERY);
        assert!(!log.exists());
        queue.finish().unwrap();
        assert_eq!(fs::read_to_string(log).unwrap(), "began\n");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_drop_ends_what_runs() {
        let begin = Instant::now();
        drop(Queue::start(vec![("sleeper", || Ok(sh("sleep 600")))]).unwrap());
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}
