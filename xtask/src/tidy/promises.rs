//! Promises of the crates, as far as their sources show them. `clippy.toml` of the crates repeats them in
//! terms that clippy resolves; the list here also covers modules, and does not depend on a lint level.

use super::Complaint;
use super::arrows::Package;
use super::source::{Module, PathUse, paths};
use super::tree::Tree;

/// Crates that only compute: all their inputs are arguments.
const PURE: &[&str] = &["dataplane", "plan", "paper", "p4", "store", "proto", "lookup"];

/// Paths that they must not name, and the alternative.
const BANNED: &[(&str, &str)] = &[
    ("std::net::UdpSocket", SOCKETS),
    ("std::net::TcpStream", SOCKETS),
    ("std::net::TcpListener", SOCKETS),
    ("std::os", SOCKETS),
    ("std::time::Instant", CLOCK),
    ("std::time::SystemTime", CLOCK),
    ("std::thread", "threads belong to `net`"),
    ("std::process", "processes belong to `cli`"),
    ("std::fs", "files belong to the caller: take text or bytes"),
    ("std::env", "settings belong to the caller: take them as arguments"),
    ("rand::rng", RANDOM),
    ("rand::random", RANDOM),
    ("rand::thread_rng", RANDOM),
    ("rand::rngs::ThreadRng", RANDOM),
    ("rand::rngs::OsRng", RANDOM),
    ("getrandom", RANDOM),
    ("std::hash::RandomState", ORDER),
    ("std::collections::hash_map::RandomState", ORDER),
];
/// In `proto` besides: a run must be the same for the same seed.
const BANNED_IN_PROTO: &[(&str, &str)] = &[
    ("std::collections::HashMap", ORDER),
    ("std::collections::HashSet", ORDER),
    ("foldhash::fast::RandomState", ORDER),
];

const SOCKETS: &str = "sockets belong to `net`";
const CLOCK: &str = "take the time as an argument";
const RANDOM: &str = "take a seed as an argument";
const ORDER: &str = "its order differs from run to run: take BTreeMap, or hashbrown with a fixed hasher";

/// The crates at the border to another language, and so the only ones with `unsafe`.
const UNSAFE: &[&str] = &["pslite", "python"];

/// No other crate may have `unsafe`, and none of them may take that back.
pub(crate) fn no_unsafe(modules: &[Module]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for module in modules.iter().filter(|module| !UNSAFE.contains(&module.package.as_str())) {
        let is_front = ["src/lib.rs", "src/main.rs"].iter().any(|front| module.path.ends_with(front));
        let forbids = module.code.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
        if is_front && !forbids {
            complaints.push(Complaint::new(&module.path, "lacks #![forbid(unsafe_code)]"));
        }
        for level in ["allow(unsafe_code", "expect(unsafe_code"] {
            if module.code.contains(level) {
                let what = format!("{level}): only crates/{} are at a border", UNSAFE.join(" and crates/"));
                complaints.push(Complaint::new(&module.path, what));
            }
        }
    }
    complaints
}

/// Every crate takes over the lints of the workspace, which deny `unsafe`.
pub(crate) fn lints(tree: &Tree, packages: &[Package]) -> Vec<Complaint> {
    let table = |path: &str| {
        let file = tree.find(path).ok_or_else(|| Complaint::new(path, "is not in the repository"))?;
        file.text
            .parse::<toml::Table>()
            .map_err(|error| Complaint::new(path, format!("is not TOML: {error}")))
    };
    let mut complaints = Vec::new();
    match table("Cargo.toml") {
        Ok(root) => {
            let level = find(&root, &["workspace", "lints", "rust", "unsafe_code"]);
            let level = level.map(|value| value.get("level").unwrap_or(value)).and_then(toml::Value::as_str);
            if !matches!(level, Some("forbid" | "deny")) {
                complaints.push(Complaint::new(
                    "Cargo.toml",
                    "[workspace.lints.rust] must forbid or deny unsafe_code",
                ));
            }
        }
        Err(complaint) => complaints.push(complaint),
    }
    for package in packages {
        match table(&package.manifest) {
            Ok(manifest) => {
                let inherits = find(&manifest, &["lints", "workspace"]).and_then(toml::Value::as_bool);
                if inherits != Some(true) {
                    let what = "lacks `[lints] workspace = true`: nothing forbids unsafe code here";
                    complaints.push(Complaint::new(&package.manifest, what));
                }
            }
            Err(complaint) => complaints.push(complaint),
        }
    }
    complaints
}

fn find<'a>(table: &'a toml::Table, path: &[&str]) -> Option<&'a toml::Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(key))
}

/// `dataplane` declares that it needs no std and no unsafe, and computes with integers.
pub(crate) fn dataplane(modules: &[Module]) -> Vec<Complaint> {
    const FRONT: &str = "crates/dataplane/src/lib.rs";
    let mut complaints = Vec::new();
    match modules.iter().find(|module| module.path == FRONT) {
        Some(front) => {
            for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
                if !front.code.lines().any(|line| line.trim() == attribute) {
                    complaints.push(Complaint::new(FRONT, format!("lacks {attribute}")));
                }
            }
        }
        None => complaints.push(Complaint::new(FRONT, "is not in the repository")),
    }
    for module in modules.iter().filter(|module| module.package == "dataplane") {
        for (index, line) in module.shipped.lines().enumerate() {
            let words: Vec<_> =
                line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
            let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
            let at = || format!("{}:{}", module.path, index + 1);
            if let Some(float) = words.iter().find(|word| ["f32", "f64"].contains(word)) {
                complaints
                    .push(Complaint::new(at(), format!("a switch has no {float}: compute with integers")));
            }
            if words.starts_with(&["extern", "crate"])
                || words.first() == Some(&"use") && words.get(1) == Some(&"std")
            {
                complaints.push(Complaint::new(at(), "a switch has neither std nor alloc"));
            }
        }
    }
    complaints
}

/// Clocks, sockets, threads, files, settings and randomness in crates that promise to have none.
pub(crate) fn pure(modules: &[Module]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for module in modules.iter().filter(|module| PURE.contains(&module.package.as_str())) {
        let more = if module.package == "proto" { BANNED_IN_PROTO } else { &[] };
        for found in paths(&module.shipped) {
            if let Some((_, instead)) = BANNED.iter().chain(more).find(|(banned, _)| reaches(&found, banned))
            {
                let what = format!("`{}` in a crate that only computes: {instead}", found.path);
                complaints.push(Complaint::new(format!("{}:{}", module.path, found.line), what));
            }
        }
    }
    complaints
}

/// True if the path is banned, lies below a banned one, or brings one above it into scope.
fn reaches(found: &PathUse, banned: &str) -> bool {
    let below = |path: &str, of: &str| {
        path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    below(&found.path, banned) || (found.imported && below(banned, &found.path))
}

#[cfg(test)]
mod tests {
    use super::super::arrows::tests::package;
    use super::*;

    fn at(complaints: &[Complaint]) -> Vec<&str> {
        complaints.iter().map(|complaint| complaint.at.as_str()).collect()
    }

    #[test]
    fn a_crate_without_the_lints_is_caught() {
        let root = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let sound =
            Tree::of(&[("Cargo.toml", root), ("crates/net/Cargo.toml", "[lints]\nworkspace = true\n")]);
        let packages = [package("libra-net", &[])];
        assert_eq!(lints(&sound, &packages), []);

        let weak = root.replace("forbid", "warn");
        let wrong = Tree::of(&[
            ("Cargo.toml", &weak),
            ("crates/net/Cargo.toml", "[lints.rust]\nunsafe_code = \"allow\"\n"),
        ]);
        assert_eq!(at(&lints(&wrong, &packages)), ["Cargo.toml", "crates/net/Cargo.toml"]);
    }

    #[test]
    fn unsafe_code_outside_the_border_is_caught() {
        let check = |path: &str, text: &str| no_unsafe(&Module::all(&Tree::of(&[(path, text)]))).len();
        assert_eq!(check("crates/net/src/lib.rs", "#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check("crates/net/src/lib.rs", "// #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(check("crates/net/tests/a.rs", "#![allow(unsafe_code, reason = \"speed\")]\n"), 1);
        assert_eq!(check("crates/pslite/src/ffi/mod.rs", "#![expect(unsafe_code, reason = \"C\")]\n"), 0);
        assert_eq!(check("crates/pslite/src/lib.rs", "mod ffi;\n"), 0);
    }

    #[test]
    fn a_dataplane_that_forgets_its_promise_is_caught() {
        let check = |files: &[(&str, &str)]| dataplane(&Module::all(&Tree::of(files)));
        let front = "#![no_std]\n#![forbid(unsafe_code)]\n// extern crate alloc; f32\n";
        assert_eq!(check(&[("crates/dataplane/src/lib.rs", front)]), []);

        let found = check(&[(
            "crates/dataplane/src/lib.rs",
            "// #![no_std]\n#![forbid(unsafe_code)]\nextern crate alloc;\n",
        )]);
        assert_eq!(at(&found), ["crates/dataplane/src/lib.rs", "crates/dataplane/src/lib.rs:3"]);

        let slot = "fn add(a: u32) -> u32 {\n    (a as f32) as u32\n}\n#[cfg(test)]\nmod tests { use std::vec; fn a(b: f32) {} }\n";
        let found = check(&[("crates/dataplane/src/lib.rs", front), ("crates/dataplane/src/slot.rs", slot)]);
        assert_eq!(at(&found), ["crates/dataplane/src/slot.rs:2"]);
    }

    #[test]
    fn clocks_sockets_threads_files_and_randomness_are_caught() {
        let planted = [
            "use std::net::UdpSocket;",
            "use std::net::{SocketAddr, TcpListener};",
            "fn a() { std::net::TcpStream::connect(b); }",
            "use std::time::{Duration, Instant};",
            "use std::time::SystemTime;",
            "use std::time::*;",
            "use std::{fmt, thread};",
            "fn a() { std::thread::spawn(b); }",
            "use std::fs;",
            "fn a() { std::fs::read(b); }",
            "use std::env::var;",
            "use std as s;",
            "fn a() { rand::rng().random() }",
            "use rand::{Rng, rngs::OsRng};",
            "fn a() { getrandom::fill(b); }",
            "use std::hash::RandomState;",
        ];
        for line in planted {
            for package in PURE {
                let path = format!("crates/{package}/src/a.rs");
                let found = pure(&Module::all(&Tree::of(&[(&path, line)])));
                assert_eq!(at(&found), [format!("{path}:1")], "{line}");
            }
        }
    }

    #[test]
    fn hash_maps_of_random_order_are_caught_in_proto() {
        let line = "use std::collections::{BTreeMap, HashMap, VecDeque};";
        let check = |path: &str| pure(&Module::all(&Tree::of(&[(path, line)]))).len();
        assert_eq!(check("crates/proto/src/a.rs"), 1);
        assert_eq!(check("crates/store/src/a.rs"), 0);
    }

    #[test]
    fn code_that_only_computes_is_not_blamed() {
        let text = "use std::time::Duration;\nuse std::net::{IpAddr, SocketAddr};\nuse crate::time::Instant;\n\
                    // std::fs::read\nconst A: &str = \"std::thread\";\n\
                    #[cfg(test)]\nmod tests { use std::time::Instant; }\n";
        let tree = Tree::of(&[
            ("crates/proto/src/a.rs", text),
            ("crates/proto/tests/b.rs", "use std::fs;"),
            ("crates/net/src/c.rs", "use std::net::UdpSocket;"),
        ]);
        assert_eq!(pure(&Module::all(&tree)), []);
    }
}
