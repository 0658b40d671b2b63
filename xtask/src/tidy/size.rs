//! The size of the product: lines of Rust that are neither blank, comment nor test.

use super::Complaint;
use super::register::{Measured, thousands};
use super::source::Module;

/// A folder and the number of production lines that it may have.
struct Limit {
    folder: &'static str,
    max: usize,
}

/// `cli` has grown by the programs for those who watch a job, `libra job` and `libra top`, and by `libra data`; all together by the
/// readers of data sets (`data`), by jobs that resume, by checkpoints at URLs, by training from data sets of any size that are read ahead, by exports
/// for serving, and by data that are followed.
const LIMITS: &[Limit] =
    &[Limit { folder: "crates/", max: 75_000 }, Limit { folder: "crates/cli/", max: 5_150 }];

/// The production lines of each folder with a limit.
pub(crate) fn rules(modules: &[Module]) -> Vec<Measured> {
    LIMITS.iter().map(|limit| measure(modules, limit)).collect()
}

/// Lines that lie inside a literal, without its quotes, are not counted: [`Module::shipped`] has them blank.
fn measure(modules: &[Module], limit: &Limit) -> Measured {
    let Limit { folder, max } = *limit;
    let lines: usize = modules
        .iter()
        .filter(|module| module.path.starts_with(folder))
        .map(|module| module.shipped.lines().filter(|line| !line.trim().is_empty()).count())
        .sum();
    let text = format!("{} production lines in {folder} (limit {})", thousands(lines), thousands(max));
    let complaints = if lines > max {
        vec![Complaint::new(folder, format!("{text}: remove code, or move to lab/ what users never run"))]
    } else {
        Vec::new()
    };
    Measured { complaints, text }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn a_folder_above_its_limit_is_caught() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! Text.\n\nfn a() {\n    // Text.\n    b(); // Text.\n}\n"),
            ("crates/a/src/b.rs", "fn b() {}\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n"),
            ("crates/a/tests/c.rs", "fn c() {}\n"),
            ("crates/ab/src/lib.rs", "fn d() {}\n"),
            ("lab/a/src/lib.rs", "fn e() {}\n"),
        ]);
        let modules = Module::all(&tree);
        let found = |max| measure(&modules, &Limit { folder: "crates/a/", max });
        assert_eq!(found(4).text, "4 production lines in crates/a/ (limit 4)");
        assert_eq!(found(4).complaints, []);
        let complaints = found(3).complaints;
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].what.starts_with("4 production lines"), "{complaints:?}");
        assert_eq!(complaints[0].at, "crates/a/");
    }
}
