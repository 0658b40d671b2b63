//! Findings: a verdict, what was found, what it costs, and the command that mends it.

use serde::Serialize;

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The machine did not show it, or not to this user.
    Unseen,
    /// It costs speed, or safety.
    Warn,
    /// A job does not run with it, or at a small part of its speed.
    Bad,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check. The same from release to release.
    pub check: &'static str,
    /// The interface, where there is one for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its verdict.
    pub verdict: Verdict,
    /// In words.
    pub found: String,
    /// Its cost for a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// The command that mends it, or what else does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, interface: None, verdict: Verdict::Ok, found: found.into(), costs: None, mend: None }
    }

    pub(crate) fn unseen(check: &'static str, unseen: &Unseen) -> Self {
        Self { verdict: Verdict::Unseen, ..Self::ok(check, format!("not seen: {}", unseen.0)) }
    }

    pub(crate) fn warn(check: &'static str, found: impl Into<String>, costs: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, costs: Some(costs.into()), ..Self::ok(check, found) }
    }

    pub(crate) fn bad(check: &'static str, found: impl Into<String>, costs: impl Into<String>) -> Self {
        Self { verdict: Verdict::Bad, costs: Some(costs.into()), ..Self::ok(check, found) }
    }

    pub(crate) fn mend(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }

    pub(crate) fn of(self, interface: &str) -> Self {
        Self { interface: Some(interface.to_owned()), ..self }
    }
}

/// A fact that could not be read; the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unseen(pub(crate) String);

impl Unseen {
    pub(crate) fn because(attempted: &str, error: impl core::fmt::Display) -> Self {
        Self(format!("{attempted}: {error}"))
    }
}

/// `1234567` is `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A number of bytes in a unit that a person reads.
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    units.iter().find(|(unit, _)| number >= *unit).map_or_else(
        || format!("{number} bytes"),
        |(unit, name)| format!("{:.1} {name}", number as f64 / *unit as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(212_992), "212,992");
        assert_eq!([999, 2048, 5 << 30].map(bytes), ["999 bytes", "2.0 KiB", "5.0 GiB"]);
    }

    #[test]
    fn bad_is_the_worst_verdict() {
        let mut verdicts = [Verdict::Bad, Verdict::Ok, Verdict::Warn, Verdict::Unseen];
        verdicts.sort();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Unseen, Verdict::Warn, Verdict::Bad]);
    }
}
