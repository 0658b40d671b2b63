//! Names without meaning.

use super::Complaint;
use super::arrows::Package;
use super::source::{Module, line_of};

/// As words of a type, trait or module.
const EMPTY_WORDS: &[&str] = &["manager", "helper", "helpers", "inner", "util", "utils"];
const CRATES: &[&str] = &["core", "common", "util", "utils", "helpers", "misc"];
/// Functions are left out: `into_inner` and its like are words of Rust.
const ITEMS: &[&str] = &["struct", "enum", "union", "trait", "type", "mod"];

/// A crate named after nothing collects everything.
pub(crate) fn crates(packages: &[Package]) -> Vec<Complaint> {
    let empty = |package: &&Package| package.name.split('-').any(|word| CRATES.contains(&word));
    let complaint = |package: &Package| {
        Complaint::new(
            &package.manifest,
            format!("the crate name {} does not say what it promises", package.name),
        )
    };
    packages.iter().filter(empty).map(complaint).collect()
}

/// Public types, traits and modules.
pub(crate) fn items(modules: &[Module]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for module in modules {
        for (at, _) in module.code.match_indices("pub") {
            let code = &module.code;
            if code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
                continue;
            }
            let Some(name) = item_name(&code[at + "pub".len()..]) else { continue };
            if let Some(word) = words(name).into_iter().find(|word| EMPTY_WORDS.contains(&word.as_str())) {
                let place = format!("{}:{}", module.path, line_of(code, at));
                complaints
                    .push(Complaint::new(place, format!("`{name}`: \"{word}\" does not say what it does")));
            }
        }
    }
    complaints
}

/// The name of the item whose visibility ended before `code`.
fn item_name(code: &str) -> Option<&str> {
    let code = match code.strip_prefix('(') {
        Some(restricted) => restricted.split_once(')')?.1,
        None => code,
    };
    let code = code.strip_prefix(char::is_whitespace)?.trim_start();
    let code = code.strip_prefix("unsafe ").unwrap_or(code);
    let (kind, rest) = code.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    ITEMS.contains(&kind).then_some(&rest[..end])
}

/// `SwitchManager` and `switch_manager` are `switch`, `manager`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("one was put in").extend(letter.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::arrows::tests::package;
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn a_crate_for_everything_is_caught() {
        let found =
            crates(&[package("libra-common", &[]), package("libra-net", &[]), package("libra-core", &[])]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn empty_names_of_public_items_are_caught() {
        let text = "pub struct SwitchManager;\npub(crate) mod utils;\npub fn into_inner() {}\nstruct Inner;\n\
                    // pub struct Helper\npub enum Dinner { A }\npub trait\n RowHelper {}\n";
        let found = items(&Module::all(&Tree::of(&[("crates/net/src/a.rs", text)])));
        let at: Vec<_> = found.iter().map(|complaint| complaint.at.as_str()).collect();
        assert_eq!(at, ["crates/net/src/a.rs:1", "crates/net/src/a.rs:2", "crates/net/src/a.rs:7"]);
    }
}
