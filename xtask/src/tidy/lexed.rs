//! Rust sources as a flat list of tokens and comments, in the order of the text.

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

use super::Complaint;
use super::tree::{File, Tree};

/// The kind of a [`Piece`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A string, a character or a number.
    Literal,
    /// One comment of documentation.
    Doc,
    /// The comments between two tokens, with the blanks between them.
    Comment,
    /// One character of punctuation, or one delimiter.
    Sign,
}

/// A part of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) kind: Kind,
    /// Its first byte.
    pub(crate) start: usize,
    /// Its first line, from 1.
    pub(crate) line: usize,
    pub(crate) text: &'a str,
}

impl<'a> Piece<'a> {
    /// Its lines with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        (self.line..).zip(self.text.lines())
    }

    pub(crate) fn is_string(&self) -> bool {
        self.kind == Kind::Literal && self.text.ends_with(['"', '#'])
    }
}

/// A Rust file with its pieces.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a File,
    pub(crate) pieces: Vec<Piece<'a>>,
}

/// The Rust files of a tree, and complaints about those that are not Rust.
pub(crate) fn sources(tree: &Tree) -> (Vec<Source<'_>>, Vec<Complaint>) {
    let (mut sources, mut complaints) = (Vec::new(), Vec::new());
    for file in tree.files.iter().filter(|file| file.is_rust()) {
        match pieces(&file.text) {
            Ok(pieces) => sources.push(Source { file, pieces }),
            Err(error) => {
                let at = format!("{}:{}", file.path, error.span().start().line);
                complaints.push(Complaint::new(at, format!("is not Rust: {error}")));
            }
        }
    }
    (sources, complaints)
}

/// Splits a source. Text that is not Rust, such as one with a brace too many, is an error.
pub(crate) fn pieces(source: &str) -> Result<Vec<Piece<'_>>, LexError> {
    let mut tokens = Vec::new();
    collect(source.parse()?, &mut tokens);
    let mut pieces = Vec::new();
    let (mut at, mut line) = (0, 1);
    let mut push = |kind, start: usize, end: usize, at: &mut usize| {
        line += source[*at..start].matches('\n').count();
        pieces.push(Piece { kind, start, line, text: &source[start..end] });
        *at = start;
    };
    let mut last = 0;
    for (kind, start, end) in tokens {
        // The tokens that a comment of documentation is taken apart into share its place.
        if start < last {
            continue;
        }
        if !source[last..start].trim().is_empty() {
            push(Kind::Comment, first_letter(source, last), start, &mut at);
        }
        push(if is_doc(&source[start..end]) { Kind::Doc } else { kind }, start, end, &mut at);
        last = end;
    }
    if !source[last..].trim().is_empty() {
        push(Kind::Comment, first_letter(source, last), source.len(), &mut at);
    }
    Ok(pieces)
}

fn first_letter(source: &str, from: usize) -> usize {
    from + source[from..].len() - source[from..].trim_start().len()
}

fn is_doc(text: &str) -> bool {
    text.starts_with("//") || text.starts_with("/*")
}

fn collect(stream: TokenStream, tokens: &mut Vec<(Kind, usize, usize)>) {
    for tree in stream {
        let range = tree.span().byte_range();
        match tree {
            TokenTree::Group(group) => {
                let braced = group.delimiter() != Delimiter::None;
                let (open, close) = (group.span_open().byte_range(), group.span_close().byte_range());
                if braced {
                    tokens.push((Kind::Sign, open.start, open.end));
                }
                collect(group.stream(), tokens);
                if braced {
                    tokens.push((Kind::Sign, close.start, close.end));
                }
            }
            TokenTree::Ident(_) => tokens.push((Kind::Word, range.start, range.end)),
            TokenTree::Punct(_) => tokens.push((Kind::Sign, range.start, range.end)),
            TokenTree::Literal(_) => tokens.push((Kind::Literal, range.start, range.end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_split_into_tokens_and_comments() {
        let source = "//! Top.\n\n/// An é.\nfn a() { // said\n    b(\"x // y\", 'c', 1)\n}\n/* z */ #[d] struct E;\n// end\n";
        let found: Vec<_> = pieces(source)
            .expect("it is Rust")
            .iter()
            .map(|piece| (piece.kind, piece.line, piece.text.trim_end()))
            .filter(|(kind, ..)| *kind != Kind::Sign)
            .collect();
        let expected = [
            (Kind::Doc, 1, "//! Top."),
            (Kind::Doc, 3, "/// An é."),
            (Kind::Word, 4, "fn"),
            (Kind::Word, 4, "a"),
            (Kind::Comment, 4, "// said"),
            (Kind::Word, 5, "b"),
            (Kind::Literal, 5, "\"x // y\""),
            (Kind::Literal, 5, "'c'"),
            (Kind::Literal, 5, "1"),
            (Kind::Comment, 7, "/* z */"),
            (Kind::Word, 7, "d"),
            (Kind::Word, 7, "struct"),
            (Kind::Word, 7, "E"),
            (Kind::Comment, 8, "// end"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn files_that_are_not_rust_are_caught() {
        let tree = Tree::of(&[("a.rs", "fn a() {}"), ("b.rs", "\nfn b() {")]);
        let (sources, complaints) = sources(&tree);
        assert_eq!((sources.len(), complaints.len()), (1, 1));
        assert!(complaints[0].at.starts_with("b.rs:"));
    }

    #[test]
    fn places_in_the_text_are_bytes() {
        let source = "// é\nlet é = \"é\"; a";
        for piece in pieces(source).expect("it is Rust") {
            assert!(source[piece.start..].starts_with(piece.text));
        }
    }
}
