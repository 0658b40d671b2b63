//! The command line of a bmv2, which stays open: to start one for each change takes half a second or more.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Prompt before it reads a line.
const PROMPT: &str = "RuntimeCmd: ";

pub(crate) struct Console {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Console {
    /// Starts it. `None` if it ends, as it does where there is no bmv2 yet.
    pub(crate) fn start(mut command: Command) -> Option<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut console = Self { process, input, output };
        console.read(1).is_some().then_some(console)
    }

    /// Hands lines to it, and returns its output.
    pub(crate) fn tell(&mut self, lines: &[String]) -> Option<String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.input.write_all(text.as_bytes()).ok()?;
        self.read(lines.len())
    }

    /// Reads its output until it has asked so often for the next line.
    fn read(&mut self, prompts: usize) -> Option<String> {
        let mut said = String::new();
        let mut bytes = [0; 4096];
        while said.matches(PROMPT).count() < prompts {
            let read = self.output.read(&mut bytes).ok().filter(|&read| read > 0)?;
            said += &String::from_utf8_lossy(&bytes[..read]);
        }
        Some(said)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
