//! Expressions of dashboards and alerts, as they are asked of a Prometheus.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Directory;

pub(super) const DASHBOARDS: &[&str] = &["job", "switch", "server", "host"];
/// Four scrapes, as Grafana chooses it for one a second.
const RATE_INTERVAL: &str = "4s";

/// An expression, and the panel or alert that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expression {
    pub(super) of: String,
    pub(super) text: String,
}

impl Expression {
    /// Metrics of machines, and not of members.
    pub(super) fn needs_node_exporter(&self) -> bool {
        self.text.contains("node_")
    }
}

/// The expressions of all dashboards, with values in place of their variables.
pub(super) fn of_dashboards(directory: &Directory, job: &str) -> Result<Vec<Expression>> {
    let mut expressions = Vec::new();
    for name in DASHBOARDS {
        let path = directory.sources.join(format!("grafana/{name}.json"));
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let dashboard: Value = serde_json::from_str(&text).with_context(|| format!("{name}.json"))?;
        let found = of_dashboard(name, &dashboard, job);
        ensure!(!found.is_empty(), "{name}.json has no expression");
        expressions.extend(found);
    }
    Ok(expressions)
}

fn of_dashboard(name: &str, dashboard: &Value, job: &str) -> Vec<Expression> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut expressions = Vec::new();
    let mut add = |title: &Value, text: String| {
        let of = format!("{name}.json, {}", title.as_str().unwrap_or_default());
        let text =
            text.replace("$job", job).replace("$member", ".*").replace("$__rate_interval", RATE_INTERVAL);
        expressions.push(Expression { of, text });
    };
    for panel in list(&dashboard["panels"]) {
        for target in list(&panel["targets"]) {
            add(&panel["title"], target["expr"].as_str().unwrap_or_default().to_owned());
        }
    }
    for marks in list(&dashboard["annotations"]["list"]) {
        add(&marks["name"], marks["target"]["expr"].as_str().unwrap_or_default().to_owned());
    }
    for variable in list(&dashboard["templating"]["list"]) {
        let query = variable["query"].as_str().unwrap_or_default();
        let values = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        if let Some((selector, label)) = values.and_then(|values| values.rsplit_once(", ")) {
            add(&variable["name"], format!("count by ({label}) ({selector})"));
        }
    }
    expressions
}

/// The selectors of an alert. It has no series itself while all is well, and each of these has.
pub(super) fn selectors(alert: &str, query: &str) -> Vec<Expression> {
    let mut selectors: Vec<Expression> = Vec::new();
    let mut rest = query;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_alphabetic() || letter == '_') {
        rest = &rest[at..];
        let end =
            rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        let braces =
            if rest[end..].starts_with('{') { rest[end..].find('}').map_or(0, |at| at + 1) } else { 0 };
        let text = rest[..end + braces].to_owned();
        let is_metric =
            ["libra_", "node_", "process_"].iter().any(|prefix| name.starts_with(prefix)) || name == "up";
        // A label that is grouped by.
        if is_metric && name != "libra_job" && selectors.iter().all(|other| other.text != text) {
            selectors.push(Expression { of: format!("alerts.yml, {alert}"), text });
        }
        rest = &rest[end + braces..];
    }
    selectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_panels_marks_and_variables_are_found() {
        let dashboard = serde_json::json!({
            "panels": [
                { "title": "A", "targets": [{ "expr": "a{j=\"$job\", m=~\"$member\"}" }, { "expr": "rate(b[$__rate_interval])" }] },
                { "title": "row" },
            ],
            "annotations": { "list": [{ "name": "Marks", "target": { "expr": "c" } }] },
            "templating": { "list": [
                { "name": "datasource", "query": "prometheus" },
                { "name": "member", "query": "label_values(d{j=\"$job\", r=\"x\"}, member)" },
            ] },
        });
        let texts: Vec<_> = of_dashboard("x", &dashboard, "7").into_iter().map(|found| found.text).collect();
        let expected =
            ["a{j=\"7\", m=~\".*\"}", "rate(b[4s])", "c", "count by (member) (d{j=\"7\", r=\"x\"})"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn selectors_of_alerts_are_found() {
        let query = "sum by (libra_job, member) (rate(libra_a_total{kind=\"b c\"}[1m])) / on (libra_job) libra_a_total > 0 or up{job=\"libra\"} == 0 \
                     unless predict_linear(node_b{x!~\"tmpfs|up\"}[15m], 3600) < 0 or libra_a_total > 1";
        let texts: Vec<_> = selectors("A", query).into_iter().map(|found| found.text).collect();
        assert_eq!(
            texts,
            ["libra_a_total{kind=\"b c\"}", "libra_a_total", "up{job=\"libra\"}", "node_b{x!~\"tmpfs|up\"}"]
        );
    }
}
