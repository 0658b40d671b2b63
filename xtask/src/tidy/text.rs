//! Files by their text: too long, unfinished, bound to one machine.

use super::Complaint;
use super::source::{Module, line_of};
use super::tree::{File, Tree};

/// Beyond this a file probably has two subjects.
const LINES_WARNED: usize = 600;
const LINES_MAX: usize = 700;
/// Files that hold nothing but tests.
const LINES_MAX_OF_TESTS: usize = 1000;
/// Columns of a line of prose in Markdown. Tables and code are as wide as they are.
const PROSE_WIDTH: usize = 100;
const CODE: &[&str] = &[".rs", ".p4", ".py", ".c", ".h", ".hpp", ".sh"];

/// Files that are too long to have one subject.
pub(crate) fn length(tree: &Tree) -> Vec<Complaint> {
    let is_code = |file: &&File| CODE.iter().any(|ending| file.path.ends_with(ending));
    let complaint = |file: &File| {
        let lines = file.text.lines().count();
        let most = if file.is_test() { LINES_MAX_OF_TESTS } else { LINES_MAX };
        if lines > most {
            return Some(Complaint::new(
                &file.path,
                format!("{lines} lines, at most {most}: give it one subject"),
            ));
        }
        let long = lines > LINES_WARNED && !file.is_test();
        long.then(|| {
            Complaint::warning(
                &file.path,
                format!("{lines} lines, above {LINES_WARNED}: has it two subjects?"),
            )
        })
    };
    tree.files.iter().filter(is_code).filter_map(complaint).collect()
}

/// Work that was left for later, and tests that do not run.
pub(crate) fn unfinished(tree: &Tree, modules: &[Module]) -> Vec<Complaint> {
    // Put together from parts: this file, too, is looked at.
    const NOTE: &str = concat!("FIX", "ME");
    const IN_CODE: &[(&str, &str)] = &[
        ("todo!", "finish it, or leave it out"),
        ("unimplemented!", "finish it, or leave it out"),
        ("#[ignore", "a test that does not run proves nothing: mend it, or delete it"),
    ];
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.path != "Cargo.lock") {
        for (index, line) in file.text.lines().enumerate() {
            if line.contains(NOTE) {
                let what = format!("{NOTE}: finish it, or open an issue and remove the note");
                complaints.push(Complaint::new(format!("{}:{}", file.path, index + 1), what));
            }
        }
    }
    for module in modules {
        for (word, what) in IN_CODE {
            for (at, _) in module.code.match_indices(word) {
                let place = format!("{}:{}", module.path, line_of(&module.code, at));
                complaints.push(Complaint::new(place, format!("{word}: {what}")));
            }
        }
    }
    complaints
}

/// Absolute paths of the machine that Libra was written on.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Complaint> {
    // Put together from parts: this file, too, is looked at.
    const FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut complaints = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            for folder in FOLDERS {
                if line.match_indices(folder).any(|(at, _)| begins_path(&line[..at])) {
                    let what = format!("{folder} is a folder of one machine");
                    complaints.push(Complaint::new(format!("{}:{}", file.path, index + 1), what));
                }
            }
        }
    }
    complaints
}

/// True if a slash behind this text begins a path, and is not in the midst of one such as `../work/` or a URL.
fn begins_path(before: &str) -> bool {
    !before.ends_with(|letter: char| letter.is_alphanumeric() || "._-}~)>*".contains(letter))
}

/// Prose of documents beyond the width that a page and a terminal have.
pub(crate) fn prose_width(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let mut is_code = false;
        for (index, line) in file.text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let is_table = line.trim_start().starts_with('|');
            // A link or a command that is longer by itself cannot be wrapped.
            let can_be_wrapped = line.trim().split(' ').all(|word| word.chars().count() <= PROSE_WIDTH - 4);
            let width = line.chars().count();
            if width > PROSE_WIDTH && !is_code && !is_table && can_be_wrapped {
                let what = format!("{width} columns of prose, at most {PROSE_WIDTH}: wrap it");
                complaints.push(Complaint::new(format!("{}:{}", file.path, index + 1), what));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(complaints: &[Complaint]) -> Vec<(&str, bool)> {
        complaints.iter().map(|complaint| (complaint.at.as_str(), complaint.warning)).collect()
    }

    #[test]
    fn long_files_are_caught() {
        let lines = |count| "\n".repeat(count);
        let tree = Tree::of(&[
            ("a.rs", &lines(600)),
            ("b.rs", &lines(601)),
            ("c.rs", &lines(701)),
            ("c/tests.rs", &lines(1000)),
            ("tests/d.rs", &lines(1001)),
            ("table.txt", &lines(5000)),
        ]);
        assert_eq!(at(&length(&tree)), [("b.rs", true), ("c.rs", false), ("tests/d.rs", false)]);
    }

    #[test]
    fn unfinished_work_is_caught() {
        let note = concat!("// FIX", "ME later\n");
        let code = "fn a() { todo!() }\nfn b() { unimplemented!(\"c\") }\n#[test]\n#[ignore = \"slow\"]\nfn d() {}\n";
        let said = "// no todo! here\nconst A: &str = \"unimplemented!\";\n";
        let tree = Tree::of(&[("a.rs", code), ("b.md", note), ("c.rs", said)]);
        let complaints = unfinished(&tree, &Module::all(&tree));
        assert_eq!(
            at(&complaints),
            [("b.md:1", false), ("a.rs:1", false), ("a.rs:2", false), ("a.rs:4", false)]
        );
    }

    #[test]
    fn paths_of_one_machine_are_caught() {
        let absolute = format!("read {}data\n", concat!("/wo", "rk/"));
        let home = format!("\"{}x\"", concat!("/ro", "ot/"));
        let relative = format!("..{}data and https://a.b{}c", concat!("/wo", "rk/"), concat!("/ro", "ot/"));
        let tree = Tree::of(&[("a.md", &absolute), ("b.rs", &home), ("c.md", &relative)]);
        assert_eq!(at(&machine_paths(&tree)), [("a.md:1", false), ("b.rs:1", false)]);
    }

    #[test]
    fn wide_prose_is_caught() {
        let (short, wide) = ("word ".repeat(19), "word ".repeat(21));
        let page =
            format!("{short}\n{wide}\n| {wide} |\n```text\n{wide}\n```\n> {wide}\n{}\n", "x".repeat(101));
        assert_eq!(
            at(&prose_width(&Tree::of(&[("a.md", &page), ("a.rs", &wide)]))),
            [("a.md:2", false), ("a.md:7", false)]
        );
    }
}
