//! Statements of documents that code decides: they drift apart unless something compares them.

use std::collections::BTreeSet;

use super::Complaint;
use super::arrows::Package;
use super::rules::PROTOCOL;
use super::source::Module;
use super::tree::Tree;
use crate::errors;

const MESSAGES: &str = "crates/proto/src/message.rs";
const CONTRIBUTING: &str = "CONTRIBUTING.md";
/// The head of the table of crates.
const TABLE: &str = "| crate | may not |";

/// Marks of sockets, and of threads, in shipped code. A crate's documents must name it if it has any.
const SOCKETS: &[&str] = &["TcpStream", "TcpListener", "UdpSocket", "socket2::", "quinn_udp::"];
const THREADS: &[&str] = &["thread::spawn", "thread::Builder", "thread::scope"];

/// Compares the version of messages in the protocol's document with that in the code.
pub(crate) fn message_version(tree: &Tree) -> Vec<Complaint> {
    let number_after = |path: &str, mark: &str| {
        let text = &tree.find(path)?.text;
        let (_, rest) = text.split_once(mark)?;
        let digits = rest.trim_start().split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse::<u16>().ok()
    };
    let told = number_after(PROTOCOL, "Version of the messages:");
    let is = number_after(MESSAGES, "pub const VERSION: u16 =");
    if told.is_some() && told == is {
        return Vec::new();
    }
    let what = format!("the version of messages is {told:?} here and {is:?} in {MESSAGES}");
    vec![Complaint::new(PROTOCOL, what)]
}

/// Compares the table of crates with the packages of the workspace.
pub(crate) fn crate_table(tree: &Tree, packages: &[Package]) -> Vec<Complaint> {
    let told = names_in_table(tree);
    let are: BTreeSet<String> = packages.iter().map(|package| package.name.clone()).collect();
    let missing = are.difference(&told).map(|name| format!("its table of crates lacks `{name}`"));
    let gone = told
        .difference(&are)
        .map(|name| format!("its table of crates has `{name}`, and the workspace has not"));
    missing.chain(gone).map(|what| Complaint::new(CONTRIBUTING, what)).collect()
}

/// Compares the page of errors with the code.
pub(crate) fn page_of_errors(tree: &Tree) -> Vec<Complaint> {
    let what = match errors::page(tree) {
        Ok(page) if tree.find(errors::PAGE).is_some_and(|file| file.text == page) => return Vec::new(),
        Ok(_) => "is not what the code gives: `cargo xtask errors` writes it".to_owned(),
        Err(error) => format!("cannot be made from the code: {error:#}"),
    };
    vec![Complaint::new(errors::PAGE, what)]
}

/// The names in the first column, of which a row may have several.
fn names_in_table(tree: &Tree) -> BTreeSet<String> {
    let text = tree.find(CONTRIBUTING).map_or("", |file| &file.text);
    let rows = text.split_once(TABLE).map_or("", |(_, rest)| rest).lines().skip(1);
    let columns = rows.take_while(|row| row.starts_with('|')).filter_map(|row| row.split('|').nth(1));
    columns.flat_map(quoted).collect()
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Compares which crates have sockets and threads with the lines that list them.
pub(crate) fn sockets_and_threads(tree: &Tree, modules: &[Module], packages: &[Package]) -> Vec<Complaint> {
    let text = tree.find(CONTRIBUTING).map_or("", |file| &file.text);
    let mut complaints = Vec::new();
    for (kind, mark, signs) in [("sockets", "Sockets:", SOCKETS), ("threads", "Threads:", THREADS)] {
        let lines = text.lines().skip_while(|line| !line.starts_with(mark));
        let told: BTreeSet<String> = lines.take_while(|line| !line.is_empty()).flat_map(quoted).collect();
        let have: BTreeSet<String> = packages_with(modules, packages, signs);
        for name in have.difference(&told) {
            complaints.push(Complaint::new(
                CONTRIBUTING,
                format!("{name} has {kind}, and the line `{mark}` does not list it"),
            ));
        }
        for name in told.difference(&have) {
            complaints.push(Complaint::new(
                CONTRIBUTING,
                format!("the line `{mark}` names {name}, which has no {kind}"),
            ));
        }
    }
    complaints
}

fn packages_with(modules: &[Module], packages: &[Package], signs: &[&str]) -> BTreeSet<String> {
    let has = |package: &&Package| {
        let folder = package.manifest.trim_end_matches("Cargo.toml");
        let mut own = modules.iter().filter(|module| module.path.starts_with(folder));
        package.name != "xtask" && own.any(|module| signs.iter().any(|sign| module.shipped.contains(sign)))
    };
    packages.iter().filter(has).map(|package| package.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::arrows::tests::package;
    use super::*;

    #[test]
    fn another_version_of_messages_is_found() {
        let tree =
            |told: &str| Tree::of(&[(PROTOCOL, told), (MESSAGES, "/// It.\npub const VERSION: u16 = 8;\n")]);
        assert_eq!(message_version(&tree("2. Version of the messages: 8.\n")), []);
        for drifted in ["2. Version of the messages: 7.\n", "Version of the messages: eight", ""] {
            assert_eq!(message_version(&tree(drifted)).len(), 1, "{drifted}");
        }
    }

    #[test]
    fn a_crate_that_no_table_has_is_found() {
        let tree = Tree::of(&[(
            CONTRIBUTING,
            "| crate | may not |\n|---|---|\n| `libra-a`, `libra-b` | x `y` |\n\n`z`\n",
        )]);
        let check = |names: &[&str]| {
            crate_table(&tree, &names.iter().map(|name| package(name, &[])).collect::<Vec<_>>())
        };
        assert_eq!(check(&["libra-a", "libra-b"]), []);
        assert!(check(&["libra-a", "libra-b", "libra-c"])[0].what.contains("lacks `libra-c`"));
        assert!(check(&["libra-a"])[0].what.contains("has `libra-b`"));
    }

    #[test]
    fn an_outdated_page_of_errors_is_found() {
        let exit = ("crates/launch/src/exit.rs", "/// Done.\npub const DONE: u8 = 0;");
        let code = ("crates/net/src/a.rs", "#[error(\"gone\")]\nstruct Gone;");
        let page = errors::page(&Tree::of(&[exit, code])).expect("the sources are Rust");
        let check = |files: &[(&str, &str)]| page_of_errors(&Tree::of(files)).len();
        assert_eq!(check(&[exit, code, (errors::PAGE, &page)]), 0);
        assert_eq!(check(&[exit, (errors::PAGE, &page)]), 1);
        assert_eq!(check(&[exit, code]), 1);
        assert_eq!(check(&[code, (errors::PAGE, &page)]), 1);
    }

    #[test]
    fn sockets_and_threads_are_where_they_are_said_to_be() {
        let check = |code: &str, document: &str| {
            let tree = Tree::of(&[("crates/net/src/lib.rs", code), (CONTRIBUTING, document)]);
            sockets_and_threads(&tree, &Module::all(&tree), &[package("libra-net", &[])])
        };
        let document = "Sockets: `libra-net`.\n\nThreads: none.\n";
        assert_eq!(check("use std::net::UdpSocket;", document), []);
        assert!(check("use std::net::IpAddr;", document)[0].what.contains("no sockets"));
        let both = "use std::net::UdpSocket;\nfn f() { thread::spawn(g); }";
        assert!(check(both, document)[0].what.contains("has threads"));
        let tests = "use std::net::UdpSocket;\n#[cfg(test)]\nmod tests { fn f() { thread::spawn(g); } }";
        assert_eq!(check(tests, document), []);
    }
}
