//! Requests that Prometheus answers.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http::get;

pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
pub(super) const TEXT: &str = "text/plain; version=0.0.4";

/// A Prometheus that runs.
#[derive(Clone, Copy)]
pub(super) struct Prometheus(pub(super) SocketAddr);

impl Prometheus {
    pub(super) fn is_ready(self) -> bool {
        get(self.0, "/-/ready", "*/*").is_ok()
    }

    /// Returns the `data` of an answer of its API.
    pub(super) fn api(self, path: &str) -> Result<Value> {
        let body = get(self.0, &format!("/api/v1/{path}"), "application/json")?;
        let mut answer: Value =
            serde_json::from_str(&body).with_context(|| format!("/api/v1/{path}: no JSON"))?;
        Ok(answer["data"].take())
    }

    /// Returns the series of an expression and their values now.
    pub(super) fn query(self, expression: &str) -> Result<Vec<(Value, f64)>> {
        let data = self.api(&format!("query?query={}", encoded(expression)))?;
        let result = match data["resultType"].as_str() {
            Some("vector") => data["result"].as_array().cloned().unwrap_or_default(),
            other => bail!("`{expression}` is {other:?}, and no vector"),
        };
        let value = |series: &Value| series["value"][1].as_str().and_then(|value| value.parse().ok());
        let series = |series: &Value| Some((series["metric"].clone(), value(series)?));
        result
            .iter()
            .map(series)
            .collect::<Option<_>>()
            .with_context(|| format!("`{expression}`: {result:?}"))
    }

    /// Returns the samples of all series over a range.
    pub(super) fn samples(self, range: &str) -> Result<Vec<f64>> {
        let data = self.api(&format!("query?query={}", encoded(range)))?;
        let series = data["result"].as_array().cloned().unwrap_or_default();
        let samples = series.iter().filter_map(|series| series["values"].as_array()).flatten();
        let values = samples.map(|sample| sample[1].as_str().and_then(|value| value.parse().ok()));
        values.collect::<Option<_>>().with_context(|| format!("`{range}` is no range of numbers"))
    }

    /// Returns the members that it scrapes and whose last scrape succeeded: labels and address.
    pub(super) fn members_up(self) -> Result<Vec<(Value, SocketAddr)>> {
        let data = self.api("targets?state=active")?;
        let targets = data["activeTargets"].as_array().cloned().unwrap_or_default();
        let members =
            targets.iter().filter(|target| target["scrapePool"] == "libra" && target["health"] == "up");
        let member = |target: &Value| {
            let address = target["labels"]["instance"].as_str().context("a target has no instance")?;
            Ok((target["labels"].clone(), address.parse()?))
        };
        members.map(member).collect()
    }
}

/// The text as a part of a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_encoded_for_a_query() {
        assert_eq!(encoded("a{b=\"c d\"}+1"), "a%7Bb%3D%22c%20d%22%7D%2B1");
    }
}
