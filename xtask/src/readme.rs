//! The commands of the README for a new user.

use anyhow::{Context, Result, bail};

use crate::shell;

/// One command of a fenced `sh` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// Line of the file on which it begins, from 1.
    pub(crate) line: usize,
    pub(crate) words: Vec<String>,
}

impl Command {
    /// The arguments of `libra` when the command runs it, by name or by `cargo run .. --`.
    pub(crate) fn libra_arguments(&self) -> Option<&[String]> {
        let first = self.words.first()?;
        // Commands of `libra-lab` are those that `libra` hands to it.
        let program = first.rsplit('/').next().unwrap_or(first);
        if program == "libra" || program == "libra-lab" {
            return Some(&self.words[1..]);
        }
        if first == "cargo" && self.words.get(1).is_some_and(|word| word == "run") {
            let options = &self.words[2..];
            let other = options.iter().any(|word| word == "--example" || word == "xtask");
            let dashes = options.iter().position(|word| word == "--");
            return (!other).then(|| dashes.map_or(&[][..], |dashes| &options[dashes + 1..]));
        }
        None
    }

    pub(crate) fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// All commands in the fenced `sh` blocks of a Markdown text, in order. Comments, prompts (`$ `), redirections and a
/// final `&` are left out; a backslash at the end of a line joins it with the next.
pub(crate) fn commands(markdown: &str) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut inside = false;
    let mut joined: Option<(usize, String)> = None;
    for (index, line) in markdown.lines().enumerate() {
        let text = line.trim();
        if let Some(language) = text.strip_prefix("```") {
            inside = !inside && ["sh", "bash", "shell", "console"].contains(&language.trim());
            joined = None;
            continue;
        }
        if !inside {
            continue;
        }
        let text = text.strip_prefix("$ ").unwrap_or(text);
        let (first, mut before) = joined.take().unwrap_or((index + 1, String::new()));
        if let Some(start) = text.strip_suffix('\\') {
            before.push_str(start);
            before.push(' ');
            joined = Some((first, before));
            continue;
        }
        before.push_str(text);
        for part in before.split("&&") {
            let words = words(part);
            if !words.is_empty() {
                commands.push(Command { line: first, words });
            }
        }
    }
    commands
}

fn words(text: &str) -> Vec<String> {
    let meant =
        text.split_whitespace().take_while(|word| !word.starts_with('#') && *word != "|" && *word != ">");
    let words = meant.map(|word| word.trim_matches(['"', '\'']).to_owned()).filter(|word| word != "&");
    words.map(|word| word.trim_end_matches(';').to_owned()).collect()
}

/// The commands of this checkout's README.
pub(crate) fn read() -> Result<Vec<Command>> {
    let text = std::fs::read_to_string(shell::root().join("README.md")).context("cannot read README.md")?;
    Ok(commands(&text))
}

/// Asks the binary whether it understands each `libra` command of the README: with `--help` behind it, it reads all
/// the arguments but does nothing.
pub(crate) fn check_with_binary() -> Result<crate::Outcome> {
    let binary = shell::binary("libra", None)?;
    let mut checked = 0_u32;
    for command in read()? {
        let Some(arguments) = command.libra_arguments() else { continue };
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.push("--help");
        shell::output(shell::program(&binary, &arguments))
            .with_context(|| format!("README.md:{}: libra refuses `{}`", command.line, command.text()))?;
        checked += 1;
    }
    if checked == 0 {
        bail!("README.md has no `libra` command in an sh block");
    }
    println!("{checked} libra commands of the README are understood");
    Ok(crate::Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKDOWN: &str = "\
# Title
```sh
# a comment
cargo run --release -- train --epochs 2   # ends in a minute
libra controller --workers 2 \\
    --servers 2 &
cd libra && cargo test
```
text `libra nothing`
```toml
libra = 1
```
";

    #[test]
    fn commands_come_from_sh_blocks_only() {
        let found: Vec<_> = commands(MARKDOWN).iter().map(|command| (command.line, command.text())).collect();
        let expected = [
            (4, "cargo run --release -- train --epochs 2"),
            (5, "libra controller --workers 2 --servers 2"),
            (7, "cd libra"),
            (7, "cargo test"),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn arguments_of_libra_are_found_behind_cargo_run() {
        let arguments: Vec<_> = commands(MARKDOWN)
            .iter()
            .map(|command| command.libra_arguments().map(|words| words.join(" ")))
            .collect();
        let expected = [Some("train --epochs 2"), Some("controller --workers 2 --servers 2"), None, None];
        assert_eq!(arguments, expected.map(|words| words.map(str::to_owned)));
    }
}
