//! Words that the field does not use, and those that it does.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::super::Complaint;
use super::super::lexed::{Kind, Source};
use super::super::source::line_of;
use super::super::tree::{File, Tree};

/// The list itself, and the history of the project, which stays as it was written.
const EXEMPT: &[&str] = &["xtask/src/tidy/register/words.rs", "CHANGELOG.md"];

/// In comments, documentation and literals of Rust, and in prose of Markdown; and the replacement. Upper and lower case are the same.
const WORDS: &[(&str, &str)] = &[
    ("nobody", "no peer, no client, none"),
    ("somebody", "a peer, a client, a user"),
    ("whoever", "the peer that, any process that"),
    ("anew", "again"),
    ("shall", "must, will"),
    ("befall", "inject, happen to"),
    ("befalls", "injects, happens to"),
    ("befallen", "injected, happened to"),
    ("befalling", "injecting, happening to"),
    ("befell", "injected, happened to"),
    ("foretell", "predict"),
    ("foretells", "predicts"),
    ("foretelling", "predicting"),
    ("foretold", "predicted"),
    ("meddle", "interfere, inject faults"),
    ("meddles", "interferes, injects faults"),
    ("meddled", "interfered, injected faults"),
    ("meddling", "interfering, injecting faults"),
    ("insist", "retry, require"),
    ("insists", "retries, requires"),
    ("insisted", "retried, required"),
    ("insisting", "retrying, requiring"),
    ("hurry", "expedite"),
    ("hurries", "expedites"),
    ("hurried", "expedited"),
    ("hurrying", "expediting"),
    ("made up", "synthetic"),
    ("comes to nothing", "fails"),
    ("came to nothing", "failed"),
];
/// As whole identifiers of Rust; and the replacement.
const IDENTIFIERS: &[(&str, &str)] = &[
    ("Befall", "Inject"),
    ("Chronicle", "EventLog"),
    ("Conversation", "StreamTask"),
    ("Cooling", "Demotion"),
    ("Counterpart", "AckingPeer"),
    ("Deed", "Action, FaultKind"),
    ("Desk", "Scheduler; in tests a harness"),
    ("Director", "ScenarioRunner"),
    ("FAREWELL", "DRAIN_TIMEOUT"),
    ("FlowCut", "AckedSet"),
    ("Keeping", "DurabilityArgs"),
    ("LateDevice", "DelayedDevice"),
    ("LateSwitch", "DelayedSwitch"),
    ("Letter", "PendingMessage, Message"),
    ("Lookout", "Sampler"),
    ("Meddle", "Interfere"),
    ("Nonsense", "ProtocolViolation"),
    ("PlantedBug", "Mutant"),
    ("Struck", "InjectedFault"),
    ("Together", "Aggregate"),
    ("Victim", "Target"),
    ("Witness", "PushObserver"),
    ("Witnessed", "Observed"),
    ("befall", "inject"),
    ("begin_anew", "restart"),
    ("foretell", "predict"),
    ("insist", "send_reliably"),
    ("loss_of_nothing", "untrained_loss"),
    ("meddle", "interfere"),
    ("tell_fit", "print_fit"),
    ("tenure", "ownership, lease"),
];

/// Banned words and identifiers: those of Rust first, then those of Markdown.
pub(super) fn banned(tree: &Tree, sources: &[Source<'_>]) -> Vec<Complaint> {
    let counts = |file: &File| !EXEMPT.contains(&file.path.as_str());
    let rust = sources.iter().filter(|source| counts(source.file)).flat_map(of_rust);
    let pages = tree.files.iter().filter(|file| file.path.ends_with(".md") && counts(file));
    rust.chain(pages.flat_map(|file| of_words(file, &prose(&file.text)))).collect()
}

fn of_rust(source: &Source<'_>) -> Vec<Complaint> {
    let (mut said, mut complaints) = (Vec::new(), Vec::new());
    for piece in &source.pieces {
        if piece.kind == Kind::Word {
            let found = IDENTIFIERS.iter().find(|(banned, _)| *banned == piece.text);
            complaints.extend(found.map(|found| complaint(source.file, piece.line, found)));
        } else if piece.is_string() || matches!(piece.kind, Kind::Doc | Kind::Comment) {
            for (line, text) in piece.lines() {
                // The letter of an escape is none of the word behind it.
                let text = text.replace("\\n", "  ").replace("\\t", "  ");
                said.extend(words(&text).map(|word| (line, word)));
            }
        }
    }
    complaints.extend(of_words(source.file, &said));
    complaints
}

/// Compares words with their lines, in the order of the text, with the list.
fn of_words(file: &File, said: &[(usize, String)]) -> Vec<Complaint> {
    let begins = |rest: &[(usize, String)], banned: &str| {
        let mut rest = rest.iter();
        banned.split(' ').all(|part| rest.next().is_some_and(|(_, word)| word == part))
    };
    let mut complaints = Vec::new();
    for (index, (line, _)) in said.iter().enumerate() {
        let found = WORDS.iter().find(|(banned, _)| begins(&said[index..], banned));
        complaints.extend(found.map(|found| complaint(file, *line, found)));
    }
    complaints
}

fn complaint(file: &File, line: usize, (banned, instead): &(&str, &str)) -> Complaint {
    Complaint::new(
        format!("{}:{line}", file.path),
        format!("{banned:?} is a banned word; instead: {instead}"),
    )
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(move |letter| !is_word(letter)).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// The words of a Markdown text, without code.
fn prose(text: &str) -> Vec<(usize, String)> {
    let (mut said, mut is_code) = (Vec::new(), false);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => is_code = true,
            Event::End(TagEnd::CodeBlock) => is_code = false,
            Event::Text(part) if !is_code => {
                let line = line_of(text, range.start);
                said.extend(words(&part).map(|word| (line, word)));
            }
            _ => {}
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::super::super::lexed::sources;
    use super::*;

    fn all(files: &[(&str, &str)]) -> Vec<Complaint> {
        let tree = Tree::of(files);
        banned(&tree, &sources(&tree).0)
    }

    fn at(files: &[(&str, &str)]) -> Vec<String> {
        all(files).into_iter().map(|complaint| complaint.at).collect()
    }

    #[test]
    fn banned_words_in_rust_are_caught() {
        let source = "//! Nobody's.\n/// It is made\n/// up, as foretold_once.\nfn nobody() { // anew\n    a(\"x\\nanew\");\n    \
                      b(\"a\n    somebody\");\n}\n";
        assert_eq!(at(&[("a.rs", source)]), ["a.rs:1", "a.rs:2", "a.rs:4", "a.rs:5", "a.rs:7"]);
    }

    #[test]
    fn banned_identifiers_are_caught() {
        let source = "// Victim\nstruct Victim;\nfn f(a: Victims) -> Vec<Deed> { \"Struck\" }\n";
        assert_eq!(at(&[("a.rs", source)]), ["a.rs:2", "a.rs:3"]);
    }

    #[test]
    fn banned_words_in_prose_are_caught_and_in_code_not() {
        let page =
            "# Anew\n\n`nobody` waits.\n\n```text\nnobody\n```\n\n| a |\n|---|\n| it comes to nothing |\n";
        assert_eq!(at(&[("a.md", page), ("CHANGELOG.md", page), ("a.txt", page)]), ["a.md:1", "a.md:11"]);
    }

    #[test]
    fn complaints_name_a_replacement() {
        let found = all(&[("a.md", "Nobody")]);
        assert!(found[0].what.contains("none"), "{:?}", found[0]);
        assert!(WORDS.iter().chain(IDENTIFIERS).all(|(_, instead)| !instead.is_empty()));
    }
}
