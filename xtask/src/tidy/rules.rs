//! The rules of the protocol: each is carried out somewhere and tested somewhere, and cited on both sides.
//!
//! `docs/reference/protocol.md` defines a rule on a line that begins with its name, such as `**V3**`. Code and tests cite it in a
//! comment: `rule V3`, or `rules V3, V5`, on one line.

use std::collections::{BTreeMap, BTreeSet};

use super::Complaint;
use super::source::Module;
use super::tree::{File, Tree};

/// File in which rules are defined.
pub(super) const PROTOCOL: &str = "docs/reference/protocol.md";
/// A crate that exists to test others: its checkers are tests, wherever they lie.
const SIMULATOR: &str = "lab/faultsim/";

/// The name of a rule: `V3` is the third of letter V.
type Name = (char, u32);

/// Rules that are defined and not cited, or cited and not defined.
pub(crate) fn citations(tree: &Tree, modules: &[Module]) -> Vec<Complaint> {
    let (defined, mut complaints) = definitions(tree);
    let mut cited: BTreeMap<Side, BTreeSet<Name>> = BTreeMap::new();
    let mut cite = |side: Option<Side>, at: String, name: Name| {
        if !defined.contains_key(&name) {
            let what = format!("there is no rule {} in {PROTOCOL}", text_of(name));
            complaints.push(Complaint::new(at, what));
        } else if let Some(side) = side {
            cited.entry(side).or_default().insert(name);
        }
    };
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            names_cited(line).into_iter().for_each(|name| cite(None, at(&file.path, index), name));
        }
    }
    for module in
        modules.iter().filter(|module| ["crates/", "lab/"].iter().any(|root| module.path.starts_with(root)))
    {
        let Some(file) = tree.find(&module.path) else { continue };
        for (index, comment) in comments(file, module) {
            let side = Side::of(file, module, index);
            names_cited(comment).into_iter().for_each(|name| cite(side, at(&file.path, index), name));
        }
    }
    let nothing = BTreeSet::new();
    for (&name, &index) in &defined {
        for (side, place) in [(Side::Code, "code under crates/*/src"), (Side::Test, "test")] {
            if !cited.get(&side).unwrap_or(&nothing).contains(&name) {
                let what = format!("rule {0} is cited by no {place}: write `rule {0}` there", text_of(name));
                complaints.push(Complaint::new(at(PROTOCOL, index), what));
            }
        }
    }
    complaints
}

/// Kind of a citation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// That the rule is carried out.
    Code,
    /// That it is tested.
    Test,
}

impl Side {
    /// The side of a comment, by the code that follows it. Examples are on none.
    fn of(file: &File, module: &Module, index: usize) -> Option<Self> {
        if file.is_test() || file.path.starts_with(SIMULATOR) {
            return Some(Self::Test);
        }
        if !file.path.contains("/src/") {
            return None;
        }
        let lines = module.code.lines().zip(module.shipped.lines().chain(std::iter::repeat("")));
        let commented = lines.skip(index).find(|(code, _)| !code.trim().is_empty());
        let is_test = match commented {
            Some((_, shipped)) => shipped.trim().is_empty(),
            None => module.shipped.trim().is_empty(),
        };
        Some(if is_test { Self::Test } else { Self::Code })
    }
}

/// The rules with the lines that define them, and what is wrong with their names.
fn definitions(tree: &Tree) -> (BTreeMap<Name, usize>, Vec<Complaint>) {
    let mut defined = BTreeMap::new();
    let mut complaints = Vec::new();
    let mut last: BTreeMap<char, u32> = BTreeMap::new();
    let lines = tree.find(PROTOCOL).map_or("", |file| &file.text).lines();
    for (index, line) in lines.enumerate() {
        let Some((bold, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("**")) else {
            continue;
        };
        let Some((name, "")) = name_at(bold) else { continue };
        if defined.contains_key(&name) {
            complaints
                .push(Complaint::new(at(PROTOCOL, index), format!("rule {} is there twice", text_of(name))));
            continue;
        }
        let (letter, number) = name;
        let expected = last.get(&letter).map_or(1, |last| last + 1);
        if number != expected {
            let what =
                format!("rule {} comes where {} is expected", text_of(name), text_of((letter, expected)));
            complaints.push(Complaint::new(at(PROTOCOL, index), what));
        }
        last.insert(letter, number);
        defined.insert(name, index);
    }
    if defined.is_empty() {
        complaints.push(Complaint::new(PROTOCOL, "is missing, or defines no rule"));
    }
    (defined, complaints)
}

/// The comments of a file, line by line.
fn comments<'a>(file: &'a File, module: &'a Module) -> impl Iterator<Item = (usize, &'a str)> {
    file.text.lines().zip(module.code.lines()).enumerate().filter_map(|(index, (text, code))| {
        // From here to the end of the line nothing is left of it in the code; of a literal its quotes would be.
        let (start, _) = text
            .match_indices("//")
            .find(|(at, _)| code.get(*at..).is_some_and(|rest| rest.trim().is_empty()))?;
        Some((index, &text[start..]))
    })
}

/// The rules that a line cites.
fn names_cited(line: &str) -> Vec<Name> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices("rule") {
        if line[..at].ends_with(char::is_alphanumeric) {
            continue;
        }
        let rest = &line[at + "rule".len()..];
        let Some(mut rest) = rest.strip_prefix('s').unwrap_or(rest).strip_prefix(' ') else { continue };
        while let Some((name, after)) = name_at(rest) {
            names.push(name);
            let next = [", and ", ", ", " and "].into_iter().find_map(|joint| after.strip_prefix(joint));
            let Some(next) = next else { break };
            rest = next;
        }
    }
    names
}

/// The name at the start of a text, and what is behind it.
fn name_at(text: &str) -> Option<(Name, &str)> {
    let letter = text.chars().next().filter(char::is_ascii_uppercase)?;
    let rest = &text[1..];
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(digits);
    if rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
        return None;
    }
    Some(((letter, number.parse().ok()?), rest))
}

fn text_of((letter, number): Name) -> String {
    format!("{letter}{number}")
}

/// A line of a file, counted from 0.
fn at(path: &str, index: usize) -> String {
    format!("{path}:{}", index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! What rule A1 says.\n/// Rules are many (rules A2, B1).\nfn a() {}\n";
    const TESTS: &str = "// rule A1\nfn b() {}\nlet a = 1; // rules A2 and B1\n";
    const RULES: &str = "**A1** One.\n\n**A2** Two, as rule A1.\n**B1** Three.\n";

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let found = citations(&tree, &Module::all(&tree));
        found.into_iter().map(|complaint| format!("{}: {}", complaint.at, complaint.what)).collect()
    }

    /// Returns the complaints if one file is replaced.
    fn with(path: &str, text: &str) -> Vec<String> {
        let mut files = BTreeMap::from([
            ("crates/proto/src/a.rs", CODE),
            ("crates/proto/tests/b.rs", TESTS),
            ("docs/reference/protocol.md", RULES),
        ]);
        files.insert(path, text);
        complaints(&files.into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn rules_that_are_cited_on_both_sides_are_fine() {
        assert_eq!(with("README.md", "The rule of rule 3 and rule A2."), [""; 0]);
    }

    #[test]
    fn a_rule_without_code_or_test_is_caught() {
        let no_code = "docs/reference/protocol.md:3: rule A2 is cited by no code under crates/*/src: write `rule A2` there";
        let no_test = "docs/reference/protocol.md:3: rule A2 is cited by no test: write `rule A2` there";
        assert_eq!(with("crates/proto/src/a.rs", "// rules A1, B1\nfn a() {}\n"), [no_code]);
        assert_eq!(with("crates/proto/tests/b.rs", "// rule A1, and rule B1\n"), [no_test]);
    }

    #[test]
    fn only_comments_cite() {
        let text = "fn a() { println!(\"// rule A1\"); } // rules A2, B1\n";
        assert_eq!(with("crates/proto/src/a.rs", text).len(), 1);
        assert_eq!(
            with("crates/proto/src/a.rs", "// misrule A1, rules A2, B1, (V1), rulesA1\nfn a() {}").len(),
            1
        );
    }

    #[test]
    fn tests_among_code_are_tests() {
        let code =
            "// rules A1, A2\nfn a() {}\n#[cfg(test)]\nmod tests {\n    // rule B1\n    fn b() {}\n}\n";
        let no_code = "docs/reference/protocol.md:4: rule B1 is cited by no code under crates/*/src: write `rule B1` there";
        assert_eq!(with("crates/proto/src/a.rs", code), [no_code]);
        // So are files that only tests have, and the simulator is nothing else; an example is neither code nor test.
        let no_test = "docs/reference/protocol.md:1: rule A1 is cited by no test: write `rule A1` there";
        let others = "// rules A2, B1\n";
        for (path, expected) in [
            ("crates/net/src/tests.rs", vec![]),
            ("crates/net/src/b/tests/c.rs", vec![]),
            ("lab/faultsim/src/check.rs", vec![]),
            ("crates/net/examples/c.rs", vec![no_test]),
            ("xtask/src/c.rs", vec![no_test]),
        ] {
            let files = [
                ("crates/proto/src/a.rs", CODE),
                ("crates/proto/tests/b.rs", others),
                ("docs/reference/protocol.md", RULES),
                (path, "// rule A1\nfn c() {}\n"),
            ];
            assert_eq!(complaints(&files), expected, "{path}");
        }
    }

    #[test]
    fn citations_of_nothing_are_caught() {
        let expected = |at| format!("{at}: there is no rule A3 in docs/reference/protocol.md");
        assert_eq!(
            with("crates/net/src/c.rs", "\n/// By rule A3.\nfn c() {}\n"),
            [expected("crates/net/src/c.rs:2")]
        );
        assert_eq!(with("ARCHITECTURE.md", "See rules A1, A3.\n"), [expected("ARCHITECTURE.md:1")]);
    }

    #[test]
    fn names_that_come_twice_or_out_of_order_are_caught() {
        let twice =
            with("docs/reference/protocol.md", "**A1** One.\n**A1** Again.\n**A2** Two.\n**B1** Three.\n");
        assert_eq!(twice, ["docs/reference/protocol.md:2: rule A1 is there twice"]);
        let gap = with("docs/reference/protocol.md", "**A2** Two.\n**A1** One.\n**B1** Three.\n");
        let expected = [
            "docs/reference/protocol.md:1: rule A2 comes where A1 is expected",
            "docs/reference/protocol.md:2: rule A1 comes where A3 is expected",
        ];
        assert_eq!(gap, expected);
    }

    #[test]
    fn a_protocol_without_rules_is_caught() {
        let missing = "docs/reference/protocol.md: is missing, or defines no rule";
        assert_eq!(
            complaints(&[("docs/reference/protocol.md", "**Note** well.\nA **A1** in the midst.\n")]),
            [missing]
        );
        assert_eq!(complaints(&[]), [missing]);
    }
}
