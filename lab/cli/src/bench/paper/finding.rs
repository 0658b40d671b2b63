//! Result of repeating one item of the evaluation.

use serde::{Deserialize, Serialize};

/// Everything that the report has of one item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) title: String,
    /// Section or figure of the paper.
    pub(super) section: String,
    pub(super) claims: Vec<Claim>,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
    /// Method, and reasons for differences.
    pub(super) notes: Vec<String>,
    /// Duration of the run.
    pub(super) seconds: f64,
}

/// Source of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    /// Real code did it on this machine.
    Measured,
    /// In virtual time.
    Simulated,
    /// It follows from sizes.
    Computed,
    /// Reported by the paper.
    Paper,
}

impl Source {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Computed => "computed",
            Self::Paper => "paper",
        }
    }
}

/// A line of the scoreboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) what: String,
    /// The paper's figure in its words, and the range that this means.
    pub(super) paper: String,
    pub(super) range: [Option<f64>; 2],
    /// Our figure.
    pub(super) ours: f64,
    pub(super) unit: Unit,
    pub(super) source: Source,
    /// Reason for a difference, or the origin of our figure.
    pub(super) why: String,
}

impl Claim {
    /// True if our figure is within what the paper reports; `None` if it reports nothing.
    pub(super) fn holds(&self) -> Option<bool> {
        (self.range != [None, None]).then(|| self.difference().is_none())
    }

    /// Returns the distance of our figure from what the paper reports, if it is outside.
    pub(super) fn difference(&self) -> Option<f64> {
        let [least, most] = self.range;
        let below = least.filter(|least| self.ours < *least);
        below.or_else(|| most.filter(|most| self.ours > *most)).map(|bound| self.ours - bound)
    }
}

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Written as percent.
    Share,
    /// Just a number.
    Number,
    Kilobytes,
    Milliseconds,
    /// So many times as much.
    Times,
}

impl Unit {
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.2}%", 100.0 * value),
            Self::Number if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Number => format!("{value:.3}"),
            Self::Kilobytes => format!("{value:.1} KB"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Times => format!("{value:.2} x"),
        }
    }
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) kind: Kind,
    pub(super) series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Axis {
    pub(super) label: String,
    /// In powers of ten.
    pub(super) logarithmic: bool,
    /// Names of the places 0, 1, .. of a chart of bars.
    pub(super) names: Vec<String>,
}

impl Axis {
    pub(super) fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), logarithmic: false, names: Vec::new() }
    }

    pub(super) fn logarithmic(label: &str) -> Self {
        Self { logarithmic: true, ..Self::linear(label) }
    }

    pub(super) fn of_names(label: &str, names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::linear(label) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Lines,
    Bars,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) source: Source,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(range: [Option<f64>; 2], ours: f64) -> Claim {
        let (what, paper, why) = (String::new(), String::new(), String::new());
        Claim { what, paper, range, ours, unit: Unit::Number, source: Source::Measured, why }
    }

    #[test]
    fn a_claim_holds_within_its_range() {
        assert_eq!(claim([None, Some(1.0)], 0.3).holds(), Some(true));
        assert_eq!(claim([Some(0.8), None], 0.8).holds(), Some(true));
        let above = claim([Some(0.2), Some(1.0)], 1.5);
        assert_eq!((above.holds(), above.difference()), (Some(false), Some(0.5)));
        assert_eq!(claim([Some(2.0), None], 1.5).difference(), Some(-0.5));
        // Without a figure of the paper there is nothing to hold.
        let untold = claim([None, None], 7.0);
        assert_eq!((untold.holds(), untold.difference()), (None, None));
    }

    #[test]
    fn numbers_are_written_with_their_unit() {
        assert_eq!(Unit::Share.text(0.5123), "51.23%");
        assert_eq!([Unit::Number.text(3.0), Unit::Number.text(0.17)], ["3", "0.170"]);
    }
}
