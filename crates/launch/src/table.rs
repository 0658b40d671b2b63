//! Tables and paragraphs for a terminal: one style, and the one place that bounds their width.

use std::io::stdout;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use rustix::termios::tcgetwinsize;

/// Largest width of the output, in columns.
pub const WIDTH_MAX: u16 = 100;
/// Width below which cells are no longer wrapped: their lines would be single letters.
const WIDTH_MIN: u16 = 40;

/// Returns the width of the output in columns: that of the terminal, at most [`WIDTH_MAX`].
pub fn width() -> u16 {
    let terminal = tcgetwinsize(stdout()).ok().map(|size| size.ws_col).filter(|columns| *columns > 0);
    terminal.map_or(WIDTH_MAX, |columns| columns.clamp(WIDTH_MIN, WIDTH_MAX))
}

/// Returns a table as text that is at most [`width`] columns wide; longer cells are wrapped.
///
/// An empty `header` leaves the header out. The columns at the positions `numbers` are aligned to the right.
pub fn table(header: &[&str], numbers: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    table_of_width(width(), header, numbers, rows)
}

/// Returns a table of names, values and notes.
pub fn summary<N: Into<String>>(rows: impl IntoIterator<Item = (N, String, String)>) -> String {
    table(&[], &[1], rows.into_iter().map(|(name, value, note)| vec![name.into(), value, note]))
}

fn table_of_width(
    width: u16,
    header: &[&str],
    numbers: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    if !header.is_empty() {
        table.set_header(header);
    }
    for row in rows {
        table.add_row(row);
    }
    for position in numbers {
        if let Some(column) = table.column_mut(*position) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Returns a text whose lines are broken at spaces to fit [`width`]; a longer word, such as a path, stays whole.
pub fn paragraph(text: &str) -> String {
    wrap(text, width().into())
}

fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let indent: String = line.chars().take_while(|character| *character == ' ').collect();
        let mut current = indent.clone();
        for word in line.trim_start().split(' ') {
            let is_first = current.trim_start().is_empty();
            let added = word.chars().count() + usize::from(!is_first);
            if !is_first && current.chars().count() + added > width {
                lines.push(std::mem::replace(&mut current, indent.clone()));
            } else if !is_first {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(current);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn long_cells_are_wrapped_at_the_width() {
        let note = "word ".repeat(60);
        let path = "/long/path".repeat(12);
        let rows = || {
            [
                vec!["name".to_owned(), "1,234".to_owned(), note.clone()],
                vec!["path".into(), "7".into(), path.clone()],
            ]
        };
        for width in [100, 72, 40] {
            let text = table_of_width(width, &["what", "count", "note"], &[1], rows());
            assert!(widest(&text) <= width.into(), "{width} columns:\n{text}");
            assert!(text.contains("name") && text.contains("1,234"), "short cells stay whole:\n{text}");
        }
    }

    #[test]
    fn a_short_table_is_as_wide_as_its_cells() {
        let text = table_of_width(100, &[], &[], [vec!["a".to_owned(), "b".to_owned()]]);
        assert!(widest(&text) < 20, "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn paragraphs_break_at_spaces_and_keep_words_whole() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("  one two\nthree", 7), "  one\n  two\nthree");
        assert_eq!(wrap("a /very/long/path b", 6), "a\n/very/long/path\nb");
        assert_eq!(wrap("", 7), "");
    }
}
