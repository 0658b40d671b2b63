//! The report: a page that needs nothing but itself, and a table for the terminal.

use anyhow::Result;
use libra_launch::table;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{DARK, LIGHT, Palette, draw};
use super::finding::{Chart, Claim, Finding, Table};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --soft: #666; --line: #ddd; --yes: #05683f; --no: #a33a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --paper: #161616; --soft: #999; --line: #3a3a3a; --yes: #2fc89b; --no: #f0a05a } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top }
.soft { color: var(--soft) } .yes { color: var(--yes) } .no { color: var(--no) }
figure { margin: 1.5rem 0 } figcaption { font-weight: 600 } .series { margin-right: 1rem; white-space: nowrap }
svg { display: block; max-width: 100%; height: auto } .night { display: none }
@media (prefers-color-scheme: dark) { .day { display: none } .night { display: block } }
";

/// The page.
///
/// # Errors
/// A chart cannot be drawn.
pub(super) fn render(findings: &[Finding], quick: bool) -> Result<String> {
    let sections = findings.iter().map(section).collect::<Result<Vec<_>>>()?;
    let claims = findings.iter().flat_map(|finding| &finding.claims);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Libra: the paper's evaluation, repeated" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "The paper's evaluation, repeated" }
                p {
                    "Pan et al., arXiv:2205.05243, beside this implementation. What is measured was done by real code on this machine, what is \
                     simulated in virtual time, what is computed follows from sizes. Each number is in the JSON file of its item."
                }
                @if quick { p class="no" { "This was a quick run, of a small part of the data: its figures say that everything works, and little else." } }
                h2 { "Scoreboard" }
                (score(claims))
                @for section in sections { (section) }
            }
        }
    };
    Ok(page.into_string())
}

fn score<'a>(claims: impl Iterator<Item = &'a Claim>) -> Markup {
    html! {
        table {
            thead { tr { th { "what" } th { "paper" } th { "ours" } th { "" } th { "difference, and why" } } }
            tbody {
                @for claim in claims {
                    tr {
                        td { (claim.what) }
                        td { (claim.paper) }
                        td { (claim.unit.text(claim.ours)) br; span class="soft" { (claim.source.name()) } }
                        @match claim.holds() {
                            Some(true) => td class="yes" { "holds" },
                            Some(false) => td class="no" { "differs" },
                            None => td {},
                        }
                        td {
                            @if let Some(difference) = claim.difference() { (claim.unit.text(difference)) ". " }
                            (claim.why)
                        }
                    }
                }
            }
        }
    }
}

fn section(finding: &Finding) -> Result<Markup> {
    let charts = finding.charts.iter().map(chart).collect::<Result<Vec<_>>>()?;
    Ok(html! {
        section {
            h2 { (finding.title) }
            p class="soft" { "In the paper: " (finding.section) ". " (format!("{:.1} s.", finding.seconds)) }
            @for chart in charts { (chart) }
            @for of in &finding.tables { (table(of)) }
            @for note in &finding.notes { p { (note) } }
        }
    })
}

fn chart(chart: &Chart) -> Result<Markup> {
    let drawn = |palette: Palette| -> Result<Markup> {
        let svg = draw(chart, palette)?;
        Ok(html! {
            @for (index, series) in chart.series.iter().enumerate() {
                span class="series" {
                    span style=(format!("color: {}", palette.css(index))) { "\u{25A0} " }
                    (series.name) " " span class="soft" { "(" (series.source.name()) ")" }
                }
            }
            (PreEscaped(svg))
        })
    };
    let (day, night) = (drawn(LIGHT)?, drawn(DARK)?);
    Ok(html! {
        figure {
            figcaption { (chart.title) }
            div class="day" { (day) }
            div class="night" { (night) }
        }
    })
}

fn table(table: &Table) -> Markup {
    html! {
        table {
            caption { (table.title) " " span class="soft" { "(" (table.source.name()) ")" } }
            thead { tr { @for cell in &table.head { th { (cell) } } } }
            tbody { @for row in &table.rows { tr { @for cell in row { td { (cell) } } } } }
        }
    }
}

/// The scoreboard for a terminal.
pub(super) fn scoreboard(findings: &[Finding]) -> String {
    let rows = findings.iter().flat_map(|finding| &finding.claims).map(|claim| {
        let ours = format!("{} ({})", claim.unit.text(claim.ours), claim.source.name());
        let verdict = claim.holds().map_or("", |holds| if holds { "holds" } else { "differs" });
        vec![claim.what.clone(), claim.paper.clone(), ours, verdict.to_owned()]
    });
    table::table(&["claim", "paper", "ours", ""], &[], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::paper::finding::{Axis, Kind, Series, Source, Unit};

    #[test]
    fn a_page_shows_every_claim_and_needs_no_network() {
        let series = Series {
            name: "ours".to_owned(),
            source: Source::Measured,
            points: vec![(1.0, 2.0), (2.0, 3.0)],
        };
        let finding = Finding {
            title: "Skew & more".to_owned(),
            claims: vec![Claim {
                what: "share <of> the top".to_owned(),
                paper: "over half".to_owned(),
                range: [Some(0.5), None],
                ours: 0.4,
                unit: Unit::Share,
                source: Source::Measured,
                why: "because".to_owned(),
            }],
            charts: vec![Chart {
                title: "a chart".to_owned(),
                x: Axis::linear("x"),
                y: Axis::linear("y"),
                kind: Kind::Lines,
                series: vec![series],
            }],
            ..Finding::default()
        };
        let page = render(std::slice::from_ref(&finding), true).unwrap();
        for words in
            ["share &lt;of&gt; the top", "40.00%", "-10.00%", "differs", "Skew &amp; more", "quick run"]
        {
            assert!(page.contains(words), "{words:?} is not in {page}");
        }
        // The name of SVG's namespace is the only address.
        assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
        assert!(scoreboard(&[finding]).contains("differs"));
    }
}
