//! Requests over HTTP, and those that Prometheus answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const TIME_MAX: Duration = Duration::from_secs(10);
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
pub(super) const TEXT: &str = "text/plain; version=0.0.4";

/// Returns the body of an answer with status 200.
pub(super) fn get(address: SocketAddr, path: &str, accept: &str) -> Result<String> {
    let what = format!("GET http://{address}{path}");
    let answer = request(address, path, accept).with_context(|| what.clone())?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{what}: no answer of HTTP"))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{what}: {status}: {}", body.trim());
    }
    Ok(body.to_owned())
}

/// By HTTP 1.0, where the answer ends with the stream.
fn request(address: SocketAddr, path: &str, accept: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIME_MAX)?;
    stream.set_read_timeout(Some(TIME_MAX))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

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
