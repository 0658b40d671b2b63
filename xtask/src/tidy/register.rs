//! The register: plain technical English in documentation, names of tests and messages.

mod words;

use std::collections::BTreeMap;
use std::fmt;

use super::Complaint;
use super::lexed::{Kind, Piece, Source};
use super::tree::Tree;
use words::banned;

/// Share of doc lines that may begin with one of [`WH_WORDS`].
const WH_SHARE_MAX: f64 = 0.03;
/// Test names that may be longer than [`TEST_NAME_LENGTH`].
const TEST_NAMES_MAX: usize = 0;
/// Places that may have a banned word or identifier.
const BANNED_MAX: usize = 0;

const TEST_NAME_LENGTH: usize = 60;
const WH_WORDS: &[&str] = &["What", "How", "Whether", "Where", "Which", "Why", "Who", "Whom", "Whose"];
/// Files that a complaint about [`WH_WORDS`] names.
const WORST_FILES: usize = 10;

/// A rule with a limit: findings up to it are counted, findings beyond it are errors.
pub(crate) struct Measured {
    pub(crate) complaints: Vec<Complaint>,
    /// For the summary.
    pub(crate) text: String,
}

impl Measured {
    fn new(findings: Vec<Complaint>, max: usize, name: &str) -> Self {
        let text = format!("{} {name} (limit {max})", findings.len());
        let complaints = if findings.len() > max { findings } else { Vec::new() };
        Self { complaints, text }
    }
}

/// Measurements as one line.
pub(crate) struct Summary<'a> {
    pub(crate) name: &'static str,
    pub(crate) rules: &'a [Measured],
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.rules.iter().map(|measured| measured.text.as_str()).collect();
        write!(f, "{}: {}", self.name, texts.join(", "))
    }
}

/// Every rule of the register.
pub(crate) fn rules(tree: &Tree, sources: &[Source<'_>]) -> Vec<Measured> {
    vec![
        doc_lines(sources, WH_SHARE_MAX),
        Measured::new(test_names(sources), TEST_NAMES_MAX, "long test names"),
        Measured::new(banned(tree, sources), BANNED_MAX, "banned words"),
    ]
}

/// The share of doc lines that begin with a wh-word. Code in fences does not count.
fn doc_lines(sources: &[Source<'_>], max: f64) -> Measured {
    let (mut all, mut wh) = (0_usize, BTreeMap::<&str, usize>::new());
    for Source { file, pieces } in sources {
        for line in prose(pieces) {
            all += 1;
            if begins_with_wh(line) {
                *wh.entry(&file.path).or_default() += 1;
            }
        }
    }
    let count: usize = wh.values().sum();
    let share = if all == 0 { 0.0 } else { count as f64 / all as f64 };
    let text = format!(
        "{:.1}% of {} doc lines begin with a wh-word (limit {:.1}%)",
        100.0 * share,
        thousands(all),
        100.0 * max
    );
    let mut complaints = Vec::new();
    if share > max {
        let mut worst: Vec<_> = wh.into_iter().collect();
        worst.sort_by_key(|&(path, count)| (std::cmp::Reverse(count), path));
        let worst: Vec<_> =
            worst.iter().take(WORST_FILES).map(|(path, count)| format!("{path} ({count})")).collect();
        let what = format!(
            "{text}: begin with a noun, or a verb in the third person; worst files: {}",
            worst.join(", ")
        );
        complaints.push(Complaint::new("doc lines", what));
    }
    Measured { complaints, text }
}

/// The lines of `///` and `//!` that hold text, without fences and what is in them.
fn prose<'a>(pieces: &[Piece<'a>]) -> Vec<&'a str> {
    let (mut lines, mut is_code, mut last) = (Vec::new(), false, 0);
    for piece in pieces.iter().filter(|piece| piece.kind == Kind::Doc) {
        let Some(text) = ["///", "//!"].iter().find_map(|mark| piece.text.strip_prefix(mark)) else {
            continue;
        };
        is_code &= piece.line == last + 1;
        last = piece.line;
        let text = text.trim();
        if text.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !text.is_empty() {
            lines.push(text);
        }
    }
    lines
}

fn begins_with_wh(line: &str) -> bool {
    let end = line.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(line.len());
    WH_WORDS.contains(&&line[..end])
}

/// `12345` is `12,345`.
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Tests with names that are too long. Attributes such as `#[tokio::test]` and the insides of macros count, too.
fn test_names(sources: &[Source<'_>]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for Source { file, pieces } in sources {
        for name in tests(pieces) {
            let length = name.text.chars().count();
            if length > TEST_NAME_LENGTH {
                let what = format!(
                    "the test name {} has {length} characters, at most {TEST_NAME_LENGTH}",
                    name.text
                );
                complaints.push(Complaint::new(format!("{}:{}", file.path, name.line), what));
            }
        }
    }
    complaints
}

/// The names of functions behind an attribute of a test.
fn tests<'a>(pieces: &[Piece<'a>]) -> Vec<Piece<'a>> {
    let tokens: Vec<_> =
        pieces.iter().filter(|piece| !matches!(piece.kind, Kind::Comment | Kind::Doc)).collect();
    let (mut names, mut is_test) = (Vec::new(), false);
    for (index, token) in tokens.iter().enumerate() {
        let next = |count: usize| tokens.get(index + count).map_or("", |token| token.text);
        match token.text {
            "#" if next(1) == "[" => {
                let path = if next(3) == ":" { next(5) } else { next(2) };
                is_test |= path == "test";
            }
            "fn" => {
                names.extend(tokens.get(index + 1).filter(|_| is_test).map(|name| **name));
                is_test = false;
            }
            "struct" | "enum" | "mod" | "use" => is_test = false,
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::lexed::{pieces, sources};
    use super::*;

    #[test]
    fn too_many_doc_lines_with_wh_words_are_caught() {
        let bad = "//! What it does.\n//!\n/// Whatever: a word of its own.\n/// Why.\nfn a() {}\n";
        let good = "/// Packet counters.\n/// ```\n/// What(1);\n/// ```\n/// A line.\nfn a() { \"\n/// How\n\"; }\n";
        let tree = Tree::of(&[("a.rs", bad), ("b.rs", good), ("c.md", "/// What")]);
        let found = doc_lines(&sources(&tree).0, 0.39);
        assert_eq!(found.text, "40.0% of 5 doc lines begin with a wh-word (limit 39.0%)");
        assert!(found.complaints[0].what.ends_with("worst files: a.rs (2)"), "{:?}", found.complaints);
        assert_eq!(doc_lines(&sources(&tree).0, 0.4).complaints, []);
    }

    #[test]
    fn an_open_fence_ends_with_its_item() {
        let source = "/// ```\nfn a() {}\n\n/// Whose?\nfn b() {}\n";
        assert_eq!(prose(&pieces(source).expect("it is Rust")), ["Whose?"]);
    }

    #[test]
    fn long_names_of_tests_are_caught() {
        let (long, fits) = ("a".repeat(61), "b".repeat(60));
        let source = format!(
            "#[test]\nfn {long}() {{}}\n#[test]\nfn {fits}() {{}}\nfn c{long}() {{}}\n\
             #[tokio::test(flavor = \"x\")]\n#[cfg(unix)]\nasync fn {long}() {{}}\n\
             proptest! {{\n    #[test]\n    fn {long}(a in 0..1) {{}}\n}}\n// #[test] fn {long}\n"
        );
        let found = test_names(&sources(&Tree::of(&[("a.rs", &source)])).0);
        let at: Vec<_> = found.iter().map(|complaint| complaint.at.as_str()).collect();
        assert_eq!(at, ["a.rs:2", "a.rs:8", "a.rs:11"]);
    }

    #[test]
    fn findings_up_to_the_limit_are_only_counted() {
        let findings = || vec![Complaint::new("a", "b"); 2];
        let allowed = Measured::new(findings(), 2, "things");
        assert_eq!((allowed.complaints.len(), allowed.text.as_str()), (0, "2 things (limit 2)"));
        assert_eq!(Measured::new(findings(), 1, "things").complaints.len(), 2);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([7, 123, 12_195].map(thousands), ["7", "123", "12,195"]);
    }
}
