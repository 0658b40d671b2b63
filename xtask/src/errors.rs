//! `cargo xtask errors`: the page of the manual with every error that a user can meet, made from the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use syn::{Attribute, Expr, ExprLit, Fields, Item, Lit, Meta, Token};

use crate::tidy::{File, Tree};
use crate::{Outcome, shell};

/// The page, from the root of the repository.
pub(crate) const PAGE: &str = "docs/reference/errors.md";
/// Holds the exit codes of the programs.
const EXIT: &str = "crates/launch/src/exit.rs";

const HEAD: &str = "# Errors

Made from the code by `cargo xtask errors`; do not edit it by hand. A name in braces stands for a
value of the error. `libra` prints `libra: `, the error, and after each `: ` the one that caused it.

## Exit codes

";
/// Exit codes of what is not written in Rust.
const CODES: &[(&str, &str)] = &[
    ("`libra-local.sh`", "**0**: all processes finished"),
    ("`libra-local.sh`", "**2**: the command line is wrong"),
    ("`libra-local.sh`", "**130**: interrupted or terminated"),
    ("`libra-local.sh`", "any other: that of the first process that failed"),
];

/// Writes the page.
pub(crate) fn run() -> Result<Outcome> {
    let path = shell::root().join(PAGE);
    std::fs::write(&path, page(&Tree::read()?)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{PAGE} is written: see `git diff {PAGE}`");
    Ok(Outcome::Passed)
}

/// The page as the code gives it.
pub(crate) fn page(tree: &Tree) -> Result<String> {
    let mut crates: BTreeMap<&str, Vec<ErrorType>> = BTreeMap::new();
    for file in &tree.files {
        let Some(package) = package_of(file) else { continue };
        let syntax = syn::parse_file(&file.text).with_context(|| format!("{} is not Rust", file.path))?;
        crates.entry(package).or_default().extend(types(&syntax.items));
    }
    let mut page = HEAD.to_owned();
    page.push_str("| program | exit code |\n|---|---|\n");
    for (code, meaning) in exit_codes(tree)? {
        writeln!(page, "| `libra`, `libra-lab` | **{code}**: {meaning} |")?;
    }
    for (program, code) in CODES {
        writeln!(page, "| {program} | {code} |")?;
    }
    for (package, mut types) in crates {
        if !types.is_empty() {
            types.sort_by(|a, b| a.name.cmp(&b.name));
            writeln!(page, "\n## libra-{package}")?;
            types.iter().try_for_each(|error| error.write(&mut page))?;
        }
    }
    Ok(page)
}

/// The folder below `crates/` of a file that ships.
fn package_of(file: &File) -> Option<&str> {
    let (package, rest) = file.path.strip_prefix("crates/")?.split_once('/')?;
    (file.is_rust() && !file.is_test() && rest.starts_with("src/")).then_some(package)
}

/// The exit codes in the code, and what they mean.
fn exit_codes(tree: &Tree) -> Result<Vec<(String, String)>> {
    let file = tree.find(EXIT).with_context(|| format!("there is no {EXIT}"))?;
    let codes = syn::parse_file(&file.text)?.items.into_iter().filter_map(|item| match item {
        Item::Const(constant) => Some((source(&*constant.expr)?, first_sentence(&constant.attrs))),
        _ => None,
    });
    Ok(codes.collect())
}

/// An enum, or a struct, of errors.
struct ErrorType {
    name: String,
    doc: String,
    cases: Vec<Case>,
}

/// A variant; a struct is its own.
struct Case {
    name: String,
    text: String,
    doc: String,
}

impl ErrorType {
    fn write(&self, page: &mut String) -> std::fmt::Result {
        writeln!(page, "\n### {}\n", self.name)?;
        if !self.doc.is_empty() {
            writeln!(page, "{}\n", wrapped(&self.doc))?;
        }
        page.push_str("| name | text | explanation |\n|---|---|---|\n");
        for case in &self.cases {
            writeln!(page, "| `{}` | {} | {} |", case.name, case.text, case.doc.replace('|', "\\|"))?;
        }
        Ok(())
    }
}

/// All types of errors among the items, and in modules within the file that are not for tests.
fn types(items: &[Item]) -> Vec<ErrorType> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Enum(item) => {
                let cases = item.variants.iter().filter_map(|variant| {
                    let text = text(&variant.attrs, &variant.fields)?;
                    Some(Case { name: variant.ident.to_string(), text, doc: first_sentence(&variant.attrs) })
                });
                let cases: Vec<_> = cases.collect();
                if !cases.is_empty() {
                    let doc = first_sentence(&item.attrs);
                    found.push(ErrorType { name: item.ident.to_string(), doc, cases });
                }
            }
            Item::Struct(item) => {
                let name = item.ident.to_string();
                if let Some(text) = text(&item.attrs, &item.fields) {
                    let case = Case { name: name.clone(), text, doc: first_sentence(&item.attrs) };
                    found.push(ErrorType { name, doc: String::new(), cases: vec![case] });
                }
            }
            Item::Mod(item) if !item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) => {
                found.extend(item.content.iter().flat_map(|(_, items)| types(items)));
            }
            _ => {}
        }
    }
    found
}

/// The text of `#[error(..)]` for a cell of a table.
fn text(attributes: &[Attribute], fields: &Fields) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("error"))?;
    let list = attribute.meta.require_list().ok()?;
    let parser = syn::punctuated::Punctuated::<Expr, Token![,]>::parse_terminated;
    let mut arguments = list.parse_args_with(parser).ok()?.into_iter();
    match arguments.next()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let values: Vec<_> = arguments.filter_map(|argument| source(&argument)).collect();
            Some(code(&filled(&text.value(), values)))
        }
        _ => {
            let inner = fields.iter().next().and_then(|field| source(&field.ty));
            Some(format!("the text of {}", code(&inner.unwrap_or_default())))
        }
    }
}

/// Puts the arguments of a format, as they are in the code, into its nameless placeholders.
fn filled(text: &str, values: Vec<String>) -> String {
    let mut parts = text.split("{}");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    let mut values = values.into_iter();
    for part in parts {
        write!(filled, "{{{}}}{part}", values.next().unwrap_or_default()).expect("a string takes all");
    }
    filled
}

/// A part of the source as it is written, in one line.
fn source(syntax: &impl syn::spanned::Spanned) -> Option<String> {
    let text = syntax.span().source_text()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A span of code in a cell of a table, with as many backticks around it as it needs.
fn code(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// The first sentence of the documentation, without links.
fn first_sentence(attributes: &[Attribute]) -> String {
    let docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let lines = docs.filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) => match &doc.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => Some(line.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let ends = paragraph.match_indices(". ").map(|(at, _)| at + 1);
    let end = ends.into_iter().find(|&at| paragraph[at..].trim_start().starts_with(char::is_uppercase));
    unlinked(&paragraph[..end.unwrap_or(paragraph.len())])
}

/// Replaces links such as ``[`Plan`](crate::Plan)`` by their text.
fn unlinked(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, linked)) = rest.split_once("[`") {
        plain.push_str(before);
        let Some((name, after)) = linked.split_once("`]") else { return plain + "[`" + linked };
        write!(plain, "`{name}`").expect("a string takes all");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}

/// Lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        let joint = if width == 0 {
            ""
        } else if width + 1 + length > 100 {
            width = 0;
            "\n"
        } else {
            width += 1;
            " "
        };
        lines.push_str(joint);
        lines.push_str(word);
        width += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "/// Reading failed. More.\n#[derive(Error)]\npub enum ReadError {\n    /// See [`Plan`](crate::Plan)\n    \
                        /// a|b. And more.\n    #[error(\"`{a}` | {}:\\n{}\", b.c(), d)]\n    Bad { a: u8 },\n    \
                        #[error(transparent)]\n    Disk(#[from] DiskError),\n}\n\
                        /// One.\n#[error(\"no {0}\")]\nstruct Single(u8);\n#[error = 1]\nenum Other { A }\n\
                        #[cfg(test)]\nmod tests { #[error(\"x\")] struct InTests; }\n";

    fn tree() -> Tree {
        Tree::of(&[
            (
                EXIT,
                "/// Interrupted by a signal. And more.\npub const INTERRUPTED: u8 = 131;\nstatic LOG: u8 = 1;\n",
            ),
            ("crates/net/src/a.rs", CODE),
            ("crates/net/tests/b.rs", CODE),
            ("lab/paper/src/c.rs", CODE),
        ])
    }

    #[test]
    fn errors_are_listed_by_crate_and_type() {
        let page = page(&tree()).expect("the sources are Rust");
        let (_, tables) = page.split_once("\n## libra-").expect("there is a crate");
        let expected = "net\n\n### ReadError\n\nReading failed.\n\n| name | text | explanation |\n|---|---|---|\n\
                        | `Bad` | `` `{a}` \\| {b.c()}: {d} `` | See `Plan` a\\|b. |\n\
                        | `Disk` | the text of `DiskError` |  |\n\
                        \n### Single\n\n| name | text | explanation |\n|---|---|---|\n| `Single` | `no {0}` | One. |\n";
        assert_eq!(tables, expected);
    }

    #[test]
    fn exit_codes_are_read() {
        assert!(page(&tree()).expect("the sources are Rust").contains("**131**: Interrupted by a signal. |"));
        assert!(page(&Tree::of(&[])).is_err());
    }

    #[test]
    fn long_sentences_are_wrapped() {
        let text = wrapped(&"word ".repeat(40));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
