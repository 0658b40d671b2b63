//! Links within the documents lead somewhere, and the manual lists all its pages.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::Complaint;
use super::tree::Tree;
use crate::shell;

const MANUAL: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Links to files that there are not, or to headings that they do not have. Links to other sites are not followed.
pub(crate) fn lead_somewhere(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for link in
            links(&file.text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let found = tree.find(&target);
            if found.is_none() && !is_there(tree, &target) {
                complaints
                    .push(Complaint::new(&file.path, format!("links to {link}, and there is no {target}")));
            } else if !anchor.is_empty() && found.is_some_and(|found| !headings(&found.text).contains(anchor))
            {
                complaints.push(Complaint::new(
                    &file.path,
                    format!("links to {link}, and {target} has no such heading"),
                ));
            }
        }
    }
    complaints
}

/// Pages of the manual that its summary does not list.
pub(crate) fn manual_is_whole(tree: &Tree) -> Vec<Complaint> {
    let listed: BTreeSet<String> = tree.find(SUMMARY).map_or_else(BTreeSet::new, |summary| {
        links(&summary.text).iter().map(|link| resolve(SUMMARY, link)).collect()
    });
    let pages = tree.files.iter().map(|file| &file.path);
    let pages = pages.filter(|path| path.starts_with(MANUAL) && path.ends_with(".md") && *path != SUMMARY);
    let raw = |path: &str| path.starts_with("docs/benchmarks/") && !path.ends_with("/README.md");
    pages
        .filter(|path| !listed.contains(*path) && !raw(path))
        .map(|path| Complaint::new(path, format!("{SUMMARY} does not list it")))
        .collect()
}

fn links(text: &str) -> Vec<String> {
    let link = |event| match event {
        Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES).filter_map(link).collect()
}

/// The anchors of headings, as GitHub and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let (mut found, mut heading) = (BTreeSet::new(), None);
    for event in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => found.extend(heading.take().map(|heading| anchor(&heading))),
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

/// The path of a link in a file, from the root of the repository.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "" | "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A folder, or a file that is no text.
fn is_there(tree: &Tree, path: &str) -> bool {
    let folder = format!("{path}/");
    tree.files.iter().any(|file| file.path.starts_with(&folder)) || shell::root().join(path).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# The page\n\n## `code` and 2 words, said\n";

    #[test]
    fn dead_links_and_missing_headings_are_found() {
        let check = |text: &str| {
            lead_somewhere(&Tree::of(&[
                ("README.md", text),
                ("docs/a/page.md", PAGE),
                ("docs/b/other.md", ""),
            ]))
            .len()
        };
        assert_eq!(check("[a](docs/a/page.md) [b](docs/a/) [c](https://example.org/x) [d](#nowhere)"), 1);
        assert_eq!(check("# Top\n[a](docs/a/page.md#code-and-2-words-said) [b](#top)"), 0);
        assert_eq!(check("| [a](docs/a/gone.md) |\n|---|\n| [b](docs/a/page.md#gone) |"), 2);
        assert_eq!(check("```\n[a](docs/gone.md)\n```"), 0);
        let up = Tree::of(&[
            ("docs/a/page.md", "[x](../b/other.md) [y](../../README.md)"),
            ("docs/b/other.md", ""),
        ]);
        assert_eq!(lead_somewhere(&up).len(), 0, "the README of this checkout is there");
    }

    #[test]
    fn a_page_outside_of_the_summary_is_found() {
        let tree = |summary| {
            Tree::of(&[(SUMMARY, summary), ("docs/a/page.md", PAGE), ("docs/benchmarks/2026/raw.md", "")])
        };
        assert_eq!(manual_is_whole(&tree("- [Page](a/page.md)")), []);
        assert_eq!(manual_is_whole(&tree("- [Page](page.md)")).len(), 1);
    }
}
