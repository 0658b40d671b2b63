//! Commands and options in the documents must exist.

use super::Complaint;
use super::source::Module;
use super::tree::Tree;
use crate::readme::Command;

const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"];
const CARGO: &[&str] =
    &["add", "bench", "build", "check", "clippy", "doc", "fmt", "install", "run", "test", "update", "xtask"];
const XTASK: &[&str] = &[
    "ci",
    "tidy",
    "header",
    "install",
    "pslite",
    "python",
    "environments",
    "wheel",
    "conformance",
    "errors",
    "no-std",
    "benchmark",
    "smoke",
    "examples",
    "namespaces",
    "fuzz",
    "flood",
    "p4",
    "forge",
    "forger",
    "doctor",
    "other-doctor",
    "prometheus",
    "container",
    "kubernetes",
    "slurm",
    "stores",
    "systemd",
    "torchx",
    "ray",
    "xdp",
];

/// The documents that a newcomer looks for.
pub(crate) fn documents(tree: &Tree) -> Vec<Complaint> {
    let missing =
        DOCUMENTS.iter().filter(|path| tree.find(path).is_none_or(|file| file.text.trim().is_empty()));
    missing.map(|path| Complaint::new(*path, "is missing")).collect()
}

/// The subcommands of `libra`: the variants of the enum that derives `Subcommand` in its `main.rs`.
pub(crate) fn subcommands(modules: &[Module]) -> Vec<String> {
    let Some(main) = modules.iter().find(|module| module.path == "crates/cli/src/main.rs") else {
        return Vec::new();
    };
    let Some((_, derived)) = main.code.split_once("Subcommand)]") else { return Vec::new() };
    let Some((_, body)) = derived.split_once('{') else { return Vec::new() };
    // Variants stand at depth 0 of the body, behind attributes.
    let (mut depth, mut names, mut word) = (0_i32, Vec::new(), String::new());
    for letter in body.chars() {
        if depth == 0 && (letter.is_alphanumeric() || letter == '_') {
            word.push(letter);
            continue;
        }
        if !word.is_empty() {
            names.push(kebab(&std::mem::take(&mut word)));
        }
        match letter {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            break;
        }
    }
    names
}

/// `NoStd` is `no-std`, as clap has it.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            kebab.push('-');
        }
        kebab.extend(letter.to_lowercase());
    }
    kebab
}

/// Commands of the README that begin with `cargo` or `libra`. Their options are checked by `cargo xtask ci`, which has
/// the binary.
pub(crate) fn commands(commands: &[Command], subcommands: &[String]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for command in commands {
        let mut complain = |what: String| {
            let at = format!("README.md:{}", command.line);
            complaints.push(Complaint::new(at, format!("`{}`: {what}", command.text())));
        };
        if command.words[0] == "cargo" {
            let word = |index: usize| command.words.get(index).map_or("", String::as_str);
            if !CARGO.contains(&word(1)) {
                complain(format!("cargo has no subcommand {:?} that this project uses", word(1)));
            } else if word(1) == "xtask" && !XTASK.contains(&word(2)) {
                complain(format!("xtask has no subcommand {:?}; it has {}", word(2), XTASK.join(", ")));
            }
        }
        if let Some(arguments) = command.libra_arguments() {
            let first = arguments.first().map_or("", String::as_str);
            if !first.starts_with('-') && !subcommands.iter().any(|name| name == first) {
                complain(format!("libra has no subcommand {first:?}; it has {}", subcommands.join(", ")));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_missing_document_is_caught() {
        let tree =
            Tree::of(&[("README.md", "# Libra"), ("ARCHITECTURE.md", " \n"), ("CONTRIBUTING.md", "x")]);
        let missing: Vec<_> = documents(&tree).into_iter().map(|complaint| complaint.at).collect();
        assert_eq!(missing, ["ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"]);
    }

    #[test]
    fn subcommands_are_read_from_the_sources() {
        let main = "#[derive(Parser)] struct Cli { a: B }\n#[derive(Subcommand)]\nenum Command {\n    /// Trains\n    \
                    Train(train::Arguments),\n    #[command(subcommand)]\n    Plan(plan::Command),\n    NoStd { a: B },\n    \
                    Version,\n}\nfn main() {}\n";
        let modules = Module::all(&Tree::of(&[("crates/cli/src/main.rs", main)]));
        assert_eq!(subcommands(&modules), ["train", "plan", "no-std", "version"]);
    }

    #[test]
    fn commands_that_do_not_exist_are_caught() {
        let markdown = "```sh\ncargo run --release -- train\ncargo frobnicate\ncargo xtask tidy\ncargo xtask tidi\n\
                        libra controller\nlibra serve --now\ncargo run -- polish\nlibra --help\ncargo test\n```\n";
        let names = ["train", "controller"].map(str::to_owned);
        let found = commands(&crate::readme::commands(markdown), &names);
        let at: Vec<_> = found.iter().map(|complaint| complaint.at.as_str()).collect();
        assert_eq!(at, ["README.md:3", "README.md:5", "README.md:7", "README.md:8"]);
    }

    #[test]
    fn the_list_of_xtask_subcommands_is_complete() {
        let command = crate::Arguments::command();
        let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, XTASK);
    }
}
