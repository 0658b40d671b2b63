//! Processes that this one starts. A handle ends its process when it is dropped, by its id and no other.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Interval of the check whether a process has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// A process that ends with its handle. It has the pipes that its command asked for; the one to its standard input stays open
/// as long as the handle, for a process that [exits with its parent](crate::parent_guard::exit_with_parent).
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: Option<PathBuf>,
}

impl Process {
    /// Starts a process, which errors call by `name`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: format!("{name} (pid {})", child.id()), child, log: None })
    }

    /// Starts a process whose standard error goes to a new file.
    ///
    /// # Errors
    /// The program cannot be started, or the file cannot be written.
    pub fn start_with_log(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut process = Self::start(name, command.stderr(file))?;
        process.log = Some(log.to_owned());
        Ok(process)
    }

    /// Its id at the operating system.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its name and its id.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hands the lines of its standard output to `take`, on a thread, until that returns false.
    ///
    /// # Panics
    /// If it is no pipe, or is read already.
    pub fn read_stdout(&mut self, take: impl FnMut(String) -> bool + Send + 'static) {
        read(self.child.stdout.take().expect("standard output is a pipe, and read once"), take);
    }

    /// As [`read_stdout`](Self::read_stdout), of standard error.
    ///
    /// # Panics
    /// If it is no pipe, or is read already.
    pub fn read_stderr(&mut self, take: impl FnMut(String) -> bool + Send + 'static) {
        read(self.child.stderr.take().expect("standard error is a pipe, and read once"), take);
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// It has closed it, or has ended.
    ///
    /// # Panics
    /// If it is no pipe.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().expect("standard input is a pipe");
        stdin.write_all(text.as_bytes()).with_context(|| format!("{} takes no input", self.name))
    }

    /// Returns its exit status, or `None` while it runs.
    ///
    /// # Errors
    /// The operating system does not report it.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot look after {}", self.name))
    }

    /// Returns true if it has ended well, and false while it runs.
    ///
    /// # Errors
    /// It has failed. The error has the last line of its log, if it has one.
    pub fn has_ended(&mut self) -> Result<bool> {
        match self.status()? {
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{} ended with {status}{}", self.name, self.last_line()),
            None => Ok(false),
        }
    }

    /// Waits until it has ended, well or not.
    ///
    /// # Errors
    /// It still runs at the deadline.
    pub fn wait(&mut self, deadline: Instant) -> Result<ExitStatus> {
        loop {
            match self.status()? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => bail!("{} does not end", self.name),
                None => thread::sleep(PAUSE),
            }
        }
    }

    /// Asks it to end, by SIGTERM.
    ///
    /// # Errors
    /// The operating system refuses to.
    pub fn terminate(&self) -> Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let id = id.expect("a process that was started has an id");
        // It was not waited for, so no other process has its id.
        rustix::process::kill_process(id, rustix::process::Signal::TERM)
            .with_context(|| format!("cannot terminate {}", self.name))
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Errors
    /// The operating system refuses to.
    pub fn kill(mut self) -> Result<()> {
        self.end().with_context(|| format!("cannot kill {}", self.name))
    }

    fn end(&mut self) -> std::io::Result<()> {
        // The id of one that has ended is not used again before this process has waited for it.
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    fn last_line(&self) -> String {
        let Some(log) = &self.log else { return String::new() };
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        format!(": {}", text.lines().last().unwrap_or("it wrote nothing"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.end();
    }
}

fn read(pipe: impl Read + Send + 'static, mut take: impl FnMut(String) -> bool + Send + 'static) {
    thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).all(&mut take));
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::sync::mpsc;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_failure_has_the_last_line_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = "echo first >&2; echo the reason >&2; exit 3";
        let mut process = Process::start_with_log("loser", &mut shell(script), &log).unwrap();
        assert_eq!(process.wait(soon()).unwrap().code(), Some(3));
        let error = process.has_ended().unwrap_err().to_string();
        assert!(error.starts_with("loser (pid ") && error.ends_with("exit status: 3: the reason"), "{error}");
        assert!(Process::start("none", &mut Command::new("/no/such/program")).is_err());
    }

    #[test]
    fn lines_go_in_and_out() {
        let mut command = shell("while read line; do echo got $line; echo and $line >&2; done");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start("echo", &mut command).unwrap();
        let (sender, lines) = mpsc::channel();
        let of_stderr = sender.clone();
        process.read_stdout(move |line| sender.send(line).is_ok());
        process.read_stderr(move |line| of_stderr.send(line).is_ok());
        process.write("one\n").unwrap();
        let mut read: Vec<_> = lines.iter().take(2).collect();
        read.sort();
        assert_eq!(read, ["and one", "got one"]);
        assert!(!process.has_ended().unwrap());
    }

    #[test]
    fn a_process_ends_with_its_handle() {
        let mut process = Process::start("sleeper", &mut shell("exec sleep 600")).unwrap();
        let error = process.wait(Instant::now()).unwrap_err().to_string();
        assert!(error.ends_with("does not end"), "{error}");
        let state = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(state.exists());
        drop(process);
        assert!(!state.exists());
        Process::start("sleeper", &mut shell("exec sleep 600")).unwrap().kill().unwrap();
    }
}
