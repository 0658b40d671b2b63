//! Picture of a board: a function of what is shown and of the size of the terminal.

use std::iter;

use libra_monitor::Checkpoints;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::columns::{Column, Columns, Paint, STEP_MARKS, STEP_PARTS, fitting};
use super::events::Event;
use super::model::{Board, MemberColumns, Order, Outage, Row, total};
use crate::figures::{count, duration, number_of, places};

/// Lines of a block below which it tells nothing: its title, all members together, and how many there are.
const BLOCK_LINES_MIN: usize = 3;
/// Events that are shown while members have no room: with their title, five lines.
const EVENT_LINES: usize = 5;
/// A checkpoint is late after so many of its intervals.
const LATE: f64 = 2.0;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().fg(Color::DarkGray);
const GOOD: Style = Style::new().fg(Color::Green);
const CHANGING: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// Colours of the parts of a step; that in which a worker computes is the good one.
const STEP_COLORS: [Color; 5] = [Color::Magenta, Color::Blue, Color::Green, Color::Cyan, Color::Yellow];

/// All that a picture shows.
pub(crate) struct Screen<'a> {
    /// Seconds since the job is watched.
    pub(crate) now: f64,
    /// Place of the controller.
    pub(crate) controller: &'a str,
    pub(crate) board: Option<&'a Board>,
    pub(crate) outage: Option<&'a Outage>,
    /// Newest first.
    pub(crate) events: Vec<&'a Event>,
    pub(crate) order: Order,
    pub(crate) shows_help: bool,
}

/// Draws the screen.
pub(crate) fn draw(screen: &Screen<'_>, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = screen.header(width);
    let footer = screen.footer(width);
    let room = height.saturating_sub(lines.len() + 1);
    if screen.shows_help {
        lines.extend(help().into_iter().take(room));
    } else if let Some(board) = screen.board {
        lines.extend(body(board, screen, width, room));
    }
    lines.truncate(height.saturating_sub(1));
    for (line, y) in lines.iter().zip(area.y..) {
        buffer.set_line(area.x, y, line, area.width);
    }
    if height > 0 {
        buffer.set_line(area.x, area.bottom() - 1, &footer, area.width);
    }
}

/// Returns the whole screen as text, as high as it needs.
pub(crate) fn text(screen: &Screen<'_>, width: u16) -> String {
    let columns = usize::from(width);
    let mut lines = screen.header(columns);
    if let Some(board) = screen.board {
        lines.extend(body(board, screen, columns, usize::MAX));
    }
    let lines = lines.iter().map(|line| {
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        text.chars().take(columns).collect::<String>().trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Screen<'_> {
    fn header(&self, width: usize) -> Vec<Line<'static>> {
        let mut first = vec![Span::styled("libra top", BOLD), Span::raw("  ")];
        if let Some(board) = self.board {
            let phase = if board.failure.is_some() { BAD } else { state_style(&board.phase) };
            first.extend([
                Span::raw(format!("job {}: ", board.job)),
                Span::styled(board.phase.clone(), phase),
                Span::raw(format!("  view {}", board.view)),
                Span::styled(if board.is_settled { "" } else { " (entering)" }, CHANGING),
                Span::raw(format!("  up {}  ", duration(board.uptime_seconds))),
            ]);
        }
        let (connection, style) = match self.outage {
            None => (self.controller.to_owned(), FAINT),
            Some(outage) => {
                let since = duration(self.now - outage.since);
                (format!("{}: no answer for {since}", self.controller), BAD)
            }
        };
        let used: usize = first.iter().map(Span::width).sum();
        let gap = width.saturating_sub(used + connection.chars().count());
        first.extend([Span::raw(" ".repeat(gap)), Span::styled(connection, style)]);
        let mut lines = vec![Line::from(first)];
        if let Some(outage) = self.outage {
            lines.push(Line::styled(outage.reason.clone(), BAD));
        }
        let Some(board) = self.board else { return lines };
        lines.extend(board.failure.iter().map(|failure| Line::styled(format!("failed: {failure}"), BAD)));
        lines.push(match board.gathering {
            Some(gathering) => Line::styled(format!("waits for members: {}", places(&gathering)), CHANGING),
            None => progress(board, width),
        });
        lines.push(state_of_job(board, width));
        lines
    }

    fn footer(&self, width: usize) -> Line<'static> {
        if self.shows_help {
            return Line::styled("any key goes back", FAINT);
        }
        let order = match self.order {
            Order::Number => "number",
            Order::Activity => "activity",
        };
        let keys = format!("q quit  s sort: {order}  ? help");
        let mut spans = vec![Span::styled(keys, FAINT)];
        let legend = legend();
        let long: usize = legend.iter().map(Span::width).sum();
        let gap = width.saturating_sub(spans[0].width() + long);
        if gap >= 2 {
            spans.push(Span::raw(" ".repeat(gap)));
            spans.extend(legend);
        }
        Line::from(spans)
    }
}

/// The marks in the bar of a step.
fn legend() -> Vec<Span<'static>> {
    let marks = STEP_MARKS.iter().zip(STEP_PARTS).zip(STEP_COLORS);
    let parts =
        marks.map(|((mark, part), color)| Span::styled(format!(" {mark}{part}"), Style::new().fg(color)));
    iter::once(Span::styled("step:", FAINT)).chain(parts).collect()
}

fn progress(board: &Board, width: usize) -> Line<'static> {
    let progress = board.progress;
    let mut told = Vec::new();
    match progress.ratio {
        Some(ratio) => told.push(format!("{:5.1}%", 100.0 * ratio)),
        None => told.push(number_of(progress.samples, "sample", "samples")),
    }
    // JSON has no number for a loss that is none: it is missing, while workers have it.
    let is_nan =
        board.workers.iter().filter_map(|row| row.counts).any(|counts| counts.training.loss.is_nan());
    match progress.loss {
        _ if is_nan => told.push("loss NaN".to_owned()),
        Some(loss) => told.push(format!("loss {loss:.4}")),
        None => {}
    }
    if let Some(rates) = total(&board.workers) {
        told.push(format!("{} samples/s", count(rates.samples)));
    }
    if let Some(left) = progress.seconds_left.filter(|_| board.phase == "running") {
        told.push(format!("{} left", duration(left)));
    }
    let told = told.join("  ");
    let Some(ratio) = progress.ratio else { return Line::from(told) };
    let cells = width.saturating_sub(told.chars().count() + 4).min(100);
    let done = libra_launch::report::whole((ratio.clamp(0.0, 1.0) * cells as f64).round());
    let done = usize::try_from(done).unwrap_or(cells);
    Line::from(vec![
        Span::raw("["),
        Span::styled("#".repeat(done), GOOD),
        Span::styled("-".repeat(cells - done), FAINT),
        Span::raw("] "),
        Span::styled(told, if is_nan { BAD } else { Style::new() }),
    ])
}

fn state_of_job(board: &Board, width: usize) -> Line<'static> {
    let checkpoints = board.checkpoints;
    let style = if is_late(&checkpoints) || checkpoints.failed > 0 { BAD } else { Style::new() };
    let mut spans = vec![Span::styled(checkpoint(&checkpoints), style)];
    let lost = board.lost;
    let kinds = [
        (lost.workers, "worker", "workers"),
        (lost.switches, "switch", "switches"),
        (lost.servers, "server", "servers"),
    ];
    let lost = kinds.iter().filter(|(number, ..)| *number > 0);
    let lost: Vec<_> = lost.map(|(number, one, many)| number_of(*number, one, many)).collect();
    if lost.is_empty() {
        spans.push(Span::raw("   lost: none"));
    } else {
        spans.push(Span::styled(format!("   lost: {}", lost.join(", ")), CHANGING));
    }
    spans.push(Span::raw(format!("   regions moved: {}", board.regions_moved)));
    let tags = Span::raw(format!("   tags: {}", board.tags));
    if spans.iter().map(Span::width).sum::<usize>() + tags.width() <= width {
        spans.push(tags);
    }
    Line::from(spans)
}

fn is_late(checkpoints: &Checkpoints) -> bool {
    let age = checkpoints.age_seconds.zip(checkpoints.interval_seconds);
    age.is_some_and(|(age, interval)| age > LATE * interval)
}

fn checkpoint(checkpoints: &Checkpoints) -> String {
    let mut text = match checkpoints.age_seconds {
        Some(age) => format!("checkpoint {}: {} old", checkpoints.newest, duration(age)),
        None => "checkpoint: none yet".to_owned(),
    };
    if let Some(interval) = checkpoints.interval_seconds {
        text += &format!(", every {}", duration(interval));
    }
    if checkpoints.failed > 0 {
        text += &format!(", {} failed", checkpoints.failed);
    }
    text
}

/// The tables and the events, in so many lines.
fn body(board: &Board, screen: &Screen<'_>, width: usize, room: usize) -> Vec<Line<'static>> {
    let tables = [rows(&board.workers), rows(&board.switches), rows(&board.servers)];
    let events = if screen.events.is_empty() { 0 } else { 1 + screen.events.len() };
    let heights = heights(room, [tables[0], tables[1], tables[2], events]);
    let blocks = [
        block(&board.workers, width, heights[0]),
        block(&board.switches, width, heights[1]),
        block(&board.servers, width, heights[2]),
        event_lines(screen, heights[3]),
    ];
    let blocks: Vec<_> = blocks.into_iter().filter(|block| !block.is_empty()).collect();
    // A blank line before each, where there is room for all of them.
    let is_spaced = room.saturating_sub(heights.iter().sum()) >= blocks.len();
    let blank = |block| iter::repeat_n(Line::default(), usize::from(is_spaced)).chain(block);
    blocks.into_iter().flat_map(blank).collect()
}

/// Lines of a whole table: a title, all members together, and each. None without members.
fn rows<C: Columns>(members: &[Row<C>]) -> usize {
    match members.len() {
        0 => 0,
        1 => 2,
        many => 2 + many,
    }
}

/// Divides the lines between the tables and the events: first each gets as many as tell something, then the tables and a few
/// events in turn, then more events.
fn heights(room: usize, wanted: [usize; 4]) -> [usize; 4] {
    let mut heights = [0; 4];
    let mut left = room;
    for (height, wanted) in heights.iter_mut().zip(wanted) {
        *height = wanted.min(BLOCK_LINES_MIN).min(left);
        left -= *height;
    }
    let at_first = [wanted[0], wanted[1], wanted[2], wanted[3].min(EVENT_LINES)];
    for most in [at_first, wanted] {
        while left > 0 && heights.iter().zip(most).any(|(height, most)| *height < most) {
            for (height, most) in heights.iter_mut().zip(most) {
                if left > 0 && *height < most {
                    *height += 1;
                    left -= 1;
                }
            }
        }
    }
    heights
}

/// The table of the members of a kind, in so many lines.
fn block<C: Columns>(members: &[Row<C>], width: usize, height: usize) -> Vec<Line<'static>> {
    let columns = fitting::<C>(width);
    let mut lines = vec![title(&columns)];
    if members.len() > 1 {
        let all = together(members);
        lines.push(line(&columns, &all).style(BOLD));
    }
    let room = height.saturating_sub(lines.len());
    let shown = if members.len() <= room { members.len() } else { room.saturating_sub(1) };
    lines.extend(members[..shown].iter().map(|row| line(&columns, row)));
    if shown < members.len() {
        lines.push(Line::styled(more(&members[shown..]), FAINT));
    }
    lines.truncate(height);
    lines
}

/// The number of members that have no room, by state.
fn more<C: Columns>(members: &[Row<C>]) -> String {
    let mut states: Vec<(&str, usize)> = Vec::new();
    for row in members {
        match states.iter_mut().find(|(state, _)| *state == row.member.state) {
            Some((_, number)) => *number += 1,
            None => states.push((&row.member.state, 1)),
        }
    }
    let states: Vec<_> = states.iter().map(|(state, number)| format!("{number} {state}")).collect();
    format!("and {} more: {}", members.len(), states.join(", "))
}

/// All members as one row.
fn together<C: Columns>(members: &[Row<C>]) -> Row<C> {
    let member = MemberColumns {
        name: format!("all {}", members.len()),
        regions: members.iter().map(|row| row.member.regions).sum(),
        ..MemberColumns::default()
    };
    let add = |mut sum: C, counts: C| {
        sum += counts;
        sum
    };
    Row { member, counts: members.iter().filter_map(|row| row.counts).reduce(add), rates: total(members) }
}

fn title<C: Columns>(columns: &[Column<C>]) -> Line<'static> {
    let cells = columns.iter().map(|column| Span::styled(aligned(column, column.title), TITLE));
    spaced(cells.map(|span| vec![span]))
}

fn line<C: Columns>(columns: &[Column<C>], row: &Row<C>) -> Line<'static> {
    spaced(columns.iter().map(|column| {
        let cell = aligned(column, &(column.cell)(row));
        match column.paint {
            Paint::Text | Paint::Number => vec![Span::raw(cell)],
            Paint::State => vec![Span::styled(cell, state_style(&row.member.state))],
            Paint::Step => cell.chars().map(step_mark).collect(),
        }
    }))
}

/// A cell as wide as its column; one that is longer is cut.
fn aligned<C: Columns>(column: &Column<C>, cell: &str) -> String {
    let (cell, width) = (cell.chars().take(column.width).collect::<String>(), column.width);
    if column.paint == Paint::Number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
}

fn spaced(cells: impl Iterator<Item = Vec<Span<'static>>>) -> Line<'static> {
    let mut spans = Vec::new();
    for cell in cells {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        spans.extend(cell);
    }
    Line::from(spans)
}

fn step_mark(mark: char) -> Span<'static> {
    let color = STEP_MARKS.iter().position(|known| *known == mark).map(|place| STEP_COLORS[place]);
    Span::styled(mark.to_string(), color.map_or_else(Style::new, |color| Style::new().fg(color)))
}

fn state_style(state: &str) -> Style {
    match state {
        "active" | "running" => GOOD,
        "standby" | "done" | "over" => FAINT,
        "away" => BAD,
        _ => CHANGING,
    }
}

fn event_lines(screen: &Screen<'_>, height: usize) -> Vec<Line<'static>> {
    let events = screen.events.iter().map(|event| {
        let age = format!("{:>8} ago  ", duration(screen.now - event.at));
        let is_bad = event.text.ends_with("lost")
            || event.text.ends_with("away")
            || ["failed", "does not answer"].iter().any(|words| event.text.contains(words));
        let style = if is_bad { BAD } else { Style::new() };
        Line::from(vec![Span::styled(age, FAINT), Span::styled(event.text.clone(), style)])
    });
    iter::once(Line::styled("events", TITLE)).chain(events).take(height).collect()
}

fn help() -> Vec<Line<'static>> {
    let keys = [
        ("q, Esc, Ctrl-C", "quit"),
        ("s", "sort members by number, or the busiest first"),
        ("?", "this help"),
    ];
    let columns = [
        ("hot", "share of the rows whose gradients a switch adds up"),
        ("resent", "share of the packets that were sent again"),
        ("rtt", "round trip of a packet of the hot path, smoothed"),
        ("step", "time of a step by its parts, as marked below"),
        ("wait", "share of it in which a worker does not compute"),
        ("steps", "clock of a worker since the last barrier"),
        ("queue", "sums that a switch has drained and no server has committed"),
        ("log", "log of a server that its newest checkpoint does not cover"),
        ("silent", "time since the last message of a member"),
    ];
    let of = |(name, text): &(&str, &str)| {
        Line::from(vec![Span::styled(format!("{name:>14}  "), BOLD), Span::raw((*text).to_owned())])
    };
    let mut lines: Vec<Line<'static>> = vec![Line::default()];
    lines.extend(keys.iter().map(of));
    lines.push(Line::default());
    lines.extend(columns.iter().map(of));
    lines.push(Line::default());
    let mut marks = vec![Span::raw("          ")];
    marks.extend(legend());
    lines.push(Line::from(marks));
    lines.push(Line::raw("Rates are per second, of the last two seconds."));
    lines
}

#[cfg(test)]
mod tests;
