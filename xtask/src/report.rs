//! The JSON that a job leaves with `--json FILE`, as a stranger reads it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Numbers that every report has; checks and scripts of users rely on them.
const NUMBERS: &[&str] = &[
    "quality.hr10",
    "quality.ndcg10",
    "quality.loss",
    "pushes.rows",
    "pushes.rows_hot",
    "pushes.rows_cold",
    "server.row_updates",
    "server.row_updates_hot",
    "switch.packets",
    "switch.duplicates",
    "switch.rounds",
    "transport.packets",
    "transport.retransmits",
    "seconds.total",
    "seconds.train",
    "samples_per_second",
];

/// The version of the keys above, which every document begins with.
const SCHEMA: u64 = 2;

/// HR@10 of guessing is 0.1; a run that learnt is well above.
const HR10_LEARNT: f64 = 0.2;

/// A report whose numbers are all there.
#[derive(Debug)]
pub(crate) struct Report(Value);

impl Report {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the job ended well but left no report at {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("the report {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let report = Self(serde_json::from_str(text).context("is not JSON")?);
        let schema = report.find("schema").and_then(Value::as_u64);
        if schema != Some(SCHEMA) {
            bail!("has schema {schema:?}, expected {SCHEMA}: build all programs from one version");
        }
        let missing: Vec<_> = NUMBERS
            .iter()
            .copied()
            .filter(|path| report.find(path).and_then(Value::as_f64).is_none())
            .collect();
        if !missing.is_empty() {
            bail!("lacks numbers: {}", missing.join(", "));
        }
        if !report.find("configuration").is_some_and(Value::is_object) {
            bail!("lacks the object: configuration");
        }
        Ok(report)
    }

    fn find(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.0, |value, key| value.get(key))
    }

    /// A number of the report by its path, such as `quality.hr10`.
    ///
    /// # Panics
    /// For a path that is not in the list of numbers every report holds.
    pub(crate) fn number(&self, path: &str) -> f64 {
        self.find(path).and_then(Value::as_f64).expect("reading checked that every number is there")
    }

    /// Checks that the model learnt something and the switch took part.
    pub(crate) fn check_work(&self) -> Result<()> {
        let hr10 = self.number("quality.hr10");
        if hr10 < HR10_LEARNT {
            bail!("HR@10 is {hr10:.4}: below {HR10_LEARNT}, hardly better than guessing (0.1)");
        }
        for path in ["pushes.rows_hot", "switch.packets", "switch.rounds", "server.row_updates_hot"] {
            if self.number(path) <= 0.0 {
                bail!("{path} is 0: the switch took no part in the training");
            }
        }
        let (pushed, applied) = (self.number("pushes.rows_hot"), self.number("server.row_updates_hot"));
        if applied >= pushed {
            bail!(
                "the servers applied {applied} hot rows for {pushed} pushed ones: the switch saved them nothing"
            );
        }
        Ok(())
    }

    /// Checks that packets had such tags, and that none was taken for forged.
    pub(crate) fn check_tags(&self, expected: &str) -> Result<()> {
        let tags = self.find("transport.packet_tags").and_then(Value::as_str);
        if tags != Some(expected) {
            bail!("packets had tags {tags:?}, expected {expected}");
        }
        let forged = self.number("switch.forged") + self.number("transport.forged");
        if forged > 0.0 {
            bail!("{forged} packets of members were taken for forged");
        }
        Ok(())
    }

    /// One line for a person.
    pub(crate) fn summary(&self) -> String {
        format!(
            "HR@10 {:.4}, NDCG@10 {:.4}, {:.0} samples/s, {:.0} hot rows pushed, {:.0} applied, {:.1} s in all",
            self.number("quality.hr10"),
            self.number("quality.ndcg10"),
            self.number("samples_per_second"),
            self.number("pushes.rows_hot"),
            self.number("server.row_updates_hot"),
            self.number("seconds.total"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Value {
        serde_json::json!({
            "schema": 2,
            "quality": { "hr10": 0.6, "ndcg10": 0.3, "loss": 0.25 },
            "pushes": { "rows": 100, "rows_hot": 90, "rows_cold": 10 },
            "server": { "row_updates": 55, "row_updates_hot": 45 },
            "switch": { "packets": 9, "duplicates": 0, "rounds": 3 },
            "transport": { "packets": 9, "retransmits": 0 },
            "seconds": { "total": 2.5, "train": 1.5 },
            "samples_per_second": 1e5,
            "configuration": { "seed": 1 },
        })
    }

    fn parse(value: &Value) -> Result<Report> {
        Report::parse(&value.to_string())
    }

    #[test]
    fn a_sound_report_is_read() {
        let report = parse(&sound()).unwrap();
        assert!(report.check_work().is_ok());
        assert!((report.number("quality.hr10") - 0.6).abs() < 1e-9);
    }

    #[test]
    fn missing_numbers_are_named() {
        let mut value = sound();
        value["switch"]["rounds"] = "three".into();
        value["seconds"] = Value::Null;
        let error = parse(&value).unwrap_err().to_string();
        assert_eq!(error, "lacks numbers: switch.rounds, seconds.total, seconds.train");

        let mut value = sound();
        value["schema"] = 1.into();
        assert!(parse(&value).unwrap_err().to_string().contains("expected 2"));

        let mut value = sound();
        value["configuration"] = Value::Null;
        assert_eq!(parse(&value).unwrap_err().to_string(), "lacks the object: configuration");
    }

    #[test]
    fn a_run_that_learnt_nothing_or_had_no_switch_is_refused() {
        let refused = |change: fn(&mut Value)| {
            let mut value = sound();
            change(&mut value);
            parse(&value).unwrap().check_work().unwrap_err().to_string()
        };
        assert!(
            refused(|value| value["quality"]["hr10"] = 0.11.into()).contains("hardly better than guessing")
        );
        assert!(refused(|value| value["switch"]["rounds"] = 0.into()).contains("switch.rounds is 0"));
        assert!(
            refused(|value| value["server"]["row_updates_hot"] = 90.into()).contains("saved them nothing")
        );
    }
}
