//! Rust sources as far as rules must understand them: without comments, literals and tests, and as a list of paths.

use super::tree::{File, Tree};

/// One Rust file.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) path: String,
    /// The folder below `crates/`, `crates/backends/` or `lab/`; `xtask` for this program; the first folder for anything else.
    pub(crate) package: String,
    /// The text with comments and the insides of literals blanked. Lines and columns stay.
    pub(crate) code: String,
    /// The same, without what is only compiled for tests.
    pub(crate) shipped: String,
}

impl Module {
    /// The Rust files of the tree.
    pub(crate) fn all(tree: &Tree) -> Vec<Self> {
        let rust = tree.files.iter().filter(|file| file.is_rust());
        let mut modules: Vec<_> = rust.map(Self::new).collect();
        // `#[cfg(test)] mod name;` makes a test of another file, too.
        let tests: Vec<_> = modules.iter().flat_map(Self::test_modules).collect();
        for module in &mut modules {
            let stem = module.path.trim_end_matches(".rs").trim_end_matches("/mod");
            if tests.iter().any(|test| stem == test || stem.starts_with(&format!("{test}/"))) {
                module.shipped.clear();
            }
        }
        modules
    }

    fn new(file: &File) -> Self {
        let code = blank_comments_and_literals(&file.text);
        let mut folders = file.path.split('/');
        let first = folders.next().unwrap_or_default();
        let mut package = first;
        for folder_of_crates in ["crates", "lab", "backends"] {
            if package == folder_of_crates {
                package = folders.next().unwrap_or_default();
            }
        }
        let outside = file.is_test()
            || ["benches", "examples"]
                .map(|name| format!("/{name}/"))
                .iter()
                .any(|folder| format!("/{}", file.path).contains(folder));
        let shipped = if outside { String::new() } else { blank_tests(&code) };
        Self { path: file.path.clone(), package: package.to_owned(), code, shipped }
    }

    /// The files, without their ending, that `#[cfg(test)] mod name;` of this file names.
    fn test_modules(&self) -> Vec<String> {
        let stem = self.path.trim_end_matches(".rs");
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let below = if ["mod", "lib", "main"].contains(&name) { folder.to_owned() } else { stem.to_owned() };
        let after =
            self.code.match_indices(CFG_TEST).map(|(at, _)| self.code[at + CFG_TEST.len()..].trim_start());
        let declared =
            after.filter_map(|text| text.strip_prefix("mod ")).filter_map(|text| text.split_once(';'));
        let plain = |name: &str| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        declared
            .map(|(name, _)| name.trim())
            .filter(|name| plain(name))
            .map(|name| format!("{below}/{name}"))
            .collect()
    }
}

/// The line of a byte of the text, from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    1 + text[..byte].bytes().filter(|&letter| letter == b'\n').count()
}

/// Replaces comments and the insides of string and character literals by blanks, byte by byte; line ends stay.
pub(crate) fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut blanked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = at
            + if rest.starts_with(b"//") {
                rest.iter().position(|&letter| letter == b'\n').unwrap_or(rest.len())
            } else if rest.starts_with(b"/*") {
                block_comment(rest)
            } else if rest[0] == b'"' {
                string(rest)
            } else if let Some(length) = raw_string(bytes, at) {
                length
            } else if let Some(length) = character(rest) {
                length
            } else {
                at += 1;
                continue;
            };
        for byte in &mut blanked[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        // What is left of a literal keeps `""` apart from nothing at all.
        if bytes[at] != b'/' {
            blanked[at] = b'"';
            blanked[end - 1] = b'"';
        }
        at = end;
    }
    String::from_utf8(blanked).expect("whole characters were replaced by blanks")
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `r"..."` or `r#"..."#` that begins here.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let inside_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let rest = &bytes[at..];
    if rest[0] != b'r' || (inside_word && !matches!(bytes[at - 1], b'b' | b'c')) {
        return None;
    }
    let hashes = rest[1..].iter().take_while(|&&letter| letter == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = &rest[2 + hashes..];
    let length = body.windows(close.len()).position(|window| window == close);
    Some(length.map_or(rest.len(), |length| 2 + hashes + length + close.len()))
}

/// The length of a character literal that begins here; a lifetime is none.
fn character(rest: &[u8]) -> Option<usize> {
    if rest[0] != b'\'' {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return rest.iter().skip(3).position(|&letter| letter == b'\'').map(|length| length + 4);
    }
    let letter = std::str::from_utf8(rest.get(1..rest.len().min(5))?);
    let letter = match letter {
        Ok(text) => text.chars().next()?,
        Err(error) => std::str::from_utf8(&rest[1..=error.valid_up_to()]).ok()?.chars().next()?,
    };
    let end = 1 + letter.len_utf8();
    (rest.get(end) == Some(&b'\'')).then_some(end + 1)
}

const CFG_TEST: &str = "#[cfg(test)]";

/// Blanks every item behind `#[cfg(test)]`. `code` has no comments and literals any more.
fn blank_tests(code: &str) -> String {
    let mut blanked = code.as_bytes().to_vec();
    for (start, _) in code.match_indices(CFG_TEST) {
        let end = start + CFG_TEST.len() + item_length(&code[start + CFG_TEST.len()..]);
        for byte in &mut blanked[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8(blanked).expect("whole characters were replaced by blanks")
}

/// Returns the length of the item at the start of the code: to its `;`, `,` or closing brace.
fn item_length(code: &str) -> usize {
    let mut depth = 0_i32;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth < 0 {
                    return at;
                }
                if depth == 0 && letter == '}' {
                    return at + 1;
                }
            }
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// A path such as `std::time::Instant`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathUse {
    pub(crate) line: usize,
    pub(crate) path: String,
    /// It is brought into scope by `use`; all that is below it can then be named without it.
    pub(crate) imported: bool,
}

/// All paths of two and more words in blanked code. Groups of `use` are taken apart, `self` and `*` stand for what is
/// before them.
pub(crate) fn paths(code: &str) -> Vec<PathUse> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].text == "use" {
            at = imports(&tokens, at + 1, "", &mut found);
        } else if is_word(tokens[at].text) {
            let start = at;
            let mut path = tokens[at].text.to_owned();
            while let [separator, word, ..] = &tokens[at + 1..]
                && separator.text == "::"
                && is_word(word.text)
            {
                path = path + "::" + word.text;
                at += 2;
            }
            if at > start {
                found.push(PathUse { line: tokens[start].line, path, imported: false });
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// One tree of a `use`, from its first token; returns where it ends.
fn imports(tokens: &[Token<'_>], mut at: usize, prefix: &str, found: &mut Vec<PathUse>) -> usize {
    let mut path = prefix.to_owned();
    let line = tokens.get(at).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(at) {
        match token.text {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token.text != "}") {
                    at = imports(tokens, at, &path, found);
                    if tokens.get(at).is_some_and(|token| token.text == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "as" => at += 2,
            "::" | "*" | "self" => at += 1,
            word if is_word(word) => {
                path = if path.is_empty() { word.to_owned() } else { path + "::" + word };
                at += 1;
            }
            _ => break,
        }
    }
    found.push(PathUse { line, path, imported: true });
    at
}

struct Token<'a> {
    line: usize,
    text: &'a str,
}

fn is_word(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Words, `::`, and every other character that is no blank by itself.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut line, mut at) = (1, 0);
    while let Some(letter) = code[at..].chars().next() {
        let rest = &code[at..];
        let length = if rest.starts_with("::") {
            2
        } else if letter.is_alphanumeric() || letter == '_' {
            rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len())
        } else {
            letter.len_utf8()
        };
        if letter == '\n' {
            line += 1;
        } else if !letter.is_whitespace() {
            tokens.push(Token { line, text: &rest[..length] });
        }
        at += length;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = "let a = \"std::fs // no\"; // std::env\n/* x /* y */ std::net */ let b = 'c'; let d: &'static str;\n\
                    let e = r#\"a \" b\"#; let f = '\\''; let g = \"\\\"\"; let h = b\"x\"; let i = 'é'; end";
        let code = blank_comments_and_literals(text);
        for gone in ["std", "no", " y ", "'c'", "é"] {
            assert!(!code.contains(gone), "{gone} in {code}");
        }
        for kept in ["let a", "let b", "&'static str", "let e", "let f", "let g", "let h", "let i", "end"] {
            assert!(code.contains(kept), "{kept} not in {code}");
        }
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.len(), text.len());
    }

    #[test]
    fn tests_are_blanked_but_nothing_behind_them() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { let _ = [1; 2]; } }\nfn c() {}\n#[cfg(test)] use d::e;\nfn f() {}";
        let shipped = blank_tests(code);
        for kept in ["fn a", "fn c", "fn f"] {
            assert!(shipped.contains(kept), "{shipped}");
        }
        for gone in ["fn b", "d::e"] {
            assert!(!shipped.contains(gone), "{shipped}");
        }
    }

    #[test]
    fn a_file_that_only_tests_include_is_no_shipped_code() {
        let tree = Tree::of(&[
            ("crates/proto/src/transport/mod.rs", "mod flow;\n#[cfg(test)]\nmod pair;\n"),
            ("crates/proto/src/transport/pair.rs", "fn pair() {}"),
            ("crates/proto/src/transport/flow.rs", "fn flow() {}"),
            ("crates/proto/src/server.rs", "#[cfg(test)]\nmod checks;\n"),
            ("crates/proto/src/server/checks.rs", "fn checks() {}"),
        ]);
        let shipped: Vec<_> =
            Module::all(&tree).into_iter().map(|module| !module.shipped.trim().is_empty()).collect();
        assert_eq!(shipped, [true, false, true, false, false]);
    }

    #[test]
    fn paths_of_grouped_imports_are_taken_apart() {
        let code = "use std::{fs::{self, File}, time::Instant as Clock, net::*};\nfn a() { std::env::var(x); b::<c>(); }";
        let found: Vec<_> =
            paths(code).into_iter().map(|path| (path.line, path.path, path.imported)).collect();
        let expected = [
            (1, "std::fs", true),
            (1, "std::fs::File", true),
            (1, "std::time::Instant", true),
            (1, "std::net", true),
            (2, "std::env::var", false),
        ];
        assert_eq!(found, expected.map(|(line, path, imported)| (line, path.to_owned(), imported)));
    }
}
