//! Commands that run beside the steps of CI, two at a time.

use std::collections::VecDeque;
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

/// One of two commands has what the other leaves, as when one waits for cargo's lock or computes in one thread.
const LANES: usize = 2;
/// Between two looks at the commands that run.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Its name, and what makes it.
type Named = (&'static str, fn() -> Result<Command>);

/// Commands that get the time of processors that nothing else wants. Dropping it ends those that run.
pub(super) struct Queue {
    lanes: Vec<JoinHandle<Result<()>>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Named>,
    running: usize,
    /// No other command begins.
    rests: bool,
    /// No other command comes.
    is_complete: bool,
    is_dropped: bool,
}

/// Next step of a lane.
enum Next {
    Run(Named),
    Wait,
    End,
}

impl State {
    fn next(&mut self) -> Next {
        if self.is_dropped || (self.is_complete && self.waiting.is_empty()) {
            return Next::End;
        }
        let command = if self.rests { None } else { self.waiting.pop_front() };
        command.map_or(Next::Wait, |command| {
            self.running += 1;
            Next::Run(command)
        })
    }
}

impl Queue {
    pub(super) fn start() -> Result<Self> {
        Self::start_in(&shell::target_directory()?.join("ci"))
    }

    fn start_in(logs: &Path) -> Result<Self> {
        fs::create_dir_all(logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let state = Arc::<Mutex<State>>::default();
        let lanes = (0..LANES).map(|_| {
            let (logs, state) = (logs.to_owned(), Arc::clone(&state));
            thread::spawn(move || run_all(&logs, &state))
        });
        Ok(Self { lanes: lanes.collect(), state })
    }

    /// The command begins after those that were added before.
    pub(super) fn add(&self, command: Named) {
        change(&self.state, |state| state.waiting.push_back(command));
    }

    /// Waits for the commands that run; the next one begins after [`Self::go_on`]. Fails if a command has failed.
    pub(super) fn rest(&mut self) -> Result<()> {
        change(&self.state, |state| state.rests = true);
        while change(&self.state, |state| state.running) > 0 {
            thread::sleep(LOOK_EVERY);
            self.check()?;
        }
        self.check()
    }

    /// Lets commands begin. Fails if one has failed.
    pub(super) fn go_on(&mut self) -> Result<()> {
        change(&self.state, |state| state.rests = false);
        self.check()
    }

    /// Waits for the last command. Fails as soon as one has failed.
    pub(super) fn finish(mut self) -> Result<()> {
        self.go_on()?;
        change(&self.state, |state| state.is_complete = true);
        while !self.lanes.is_empty() {
            thread::sleep(LOOK_EVERY);
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let (ended, others) = self.lanes.drain(..).partition(|lane| lane.is_finished());
        self.lanes = others;
        join(ended)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        change(&self.state, |state| state.is_dropped = true);
        drop(join(std::mem::take(&mut self.lanes)));
    }
}

fn change<T>(state: &Mutex<State>, change: impl FnOnce(&mut State) -> T) -> T {
    change(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

fn join(lanes: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    let ended: Vec<_> = lanes.into_iter().map(|lane| lane.join().expect("it does not panic")).collect();
    ended.into_iter().collect()
}

/// Runs commands until none waits, or one fails.
fn run_all(logs: &Path, state: &Mutex<State>) -> Result<()> {
    loop {
        let (name, command) = match change(state, State::next) {
            Next::Run(named) => named,
            Next::Wait => {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            Next::End => return Ok(()),
        };
        let log = logs.join(name.replace(' ', "-")).with_extension("log");
        let begin = Instant::now();
        let ended = command().and_then(|command| run(name, &command, log.clone(), state));
        change(state, |state| state.running -= 1);
        let printed = fs::read(&log).unwrap_or_default();
        let (printed, seconds) = (String::from_utf8_lossy(&printed), in_seconds(begin.elapsed()));
        ended.with_context(|| format!("{}\n{printed}", failed(name, &seconds)))?;
        println!("=== {name}, beside\n{printed}=== {name} passed in {seconds}, beside others");
    }
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

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("libra-xtask-{name}-{}", std::process::id()))
    }

    #[test]
    fn commands_run_in_order_with_their_variables() {
        let folder = folder("order");
        let first: Named = ("the first", || {
            let mut command = sh("echo $LIBRA_OF_QUEUE; sleep 0.3; date +%s%N");
            command.env("LIBRA_OF_QUEUE", "has it");
            Ok(command)
        });
        let second: Named = ("second", || Ok(sh("sleep 0.3; date +%s%N")));
        let third: Named = ("third", || Ok(sh("date +%s%N")));
        let queue = Queue::start_in(&folder).unwrap();
        for command in [first, second, third] {
            queue.add(command);
        }
        queue.finish().unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let (first, second, third) = (read("the-first.log"), read("second.log"), read("third.log"));
        let lines: Vec<&str> = first.lines().collect();
        assert_eq!(lines[0], "has it");
        let time = |text: &str| text.trim().parse::<u128>().unwrap();
        // The third has waited for one of them.
        assert!(time(lines[1]).min(time(&second)) < time(&third));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failure_is_reported_with_what_was_printed() {
        let mut queue = Queue::start().unwrap();
        queue.add(("loser", || Ok(sh("echo the reason; exit 3"))));
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
        let folder = folder("rest");
        let log = folder.join("third.log");
        let third: Named = ("third", || Ok(sh("echo began")));
        let mut queue = Queue::start_in(&folder).unwrap();
        for name in ["first", "second"] {
            queue.add((name, || Ok(sh("sleep 0.5"))));
        }
        while change(&queue.state, |state| state.running) < LANES {
            thread::sleep(LOOK_EVERY);
        }
        queue.add(third);
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
        let queue = Queue::start().unwrap();
        queue.add(("sleeper", || Ok(sh("sleep 600"))));
        thread::sleep(2 * LOOK_EVERY);
        drop(queue);
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}
