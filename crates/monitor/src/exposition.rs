//! Families as text: OpenMetrics 1.0, and the text format of Prometheus (version 0.0.4) for readers that ask for no other.

use core::fmt::{self, Write};
use core::time::Duration;

use libra_proto::Histogram;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::family::{Family, Kind, Value, in_seconds};

/// Format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    Text,
}

impl Format {
    /// Returns the format that a reader accepts, by its header `Accept`.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Returns the families as text.
pub(crate) fn encode(families: Vec<Family>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(families)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes any text");
    match format {
        Format::OpenMetrics => text,
        Format::Text => to_text_format(&text),
    }
}

/// The families of one moment.
#[derive(Debug)]
struct Snapshot(Vec<Family>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, kind, samples } in &self.0 {
            let kind = match kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in samples {
                let mut sample = family.encode_family(labels)?;
                match value {
                    Value::Count(count) => sample.encode_counter::<NoLabelSet, _, u64>(count, None)?,
                    Value::Number(number) if matches!(kind, MetricType::Counter) => {
                        sample.encode_counter::<NoLabelSet, _, u64>(number, None)?;
                    }
                    Value::Number(number) => sample.encode_gauge(number)?,
                    Value::Histogram(histogram) => encode_histogram(&mut sample, histogram)?,
                }
            }
        }
        Ok(())
    }
}

fn encode_histogram(sample: &mut MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, in_seconds);
    let buckets: Vec<(f64, u64)> = histogram.buckets().map(|(upper, count)| (bound(upper), count)).collect();
    sample.encode_histogram::<NoLabelSet>(in_seconds(histogram.sum()), histogram.count(), &buckets, None)
}

/// The same in the older format: there a counter's name has `_total` everywhere, and nothing marks the end.
fn to_text_format(open_metrics: &str) -> String {
    let mut counters: Vec<&str> = Vec::new();
    for line in open_metrics.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter")) {
            counters.push(name);
        }
    }
    let mut text = String::with_capacity(open_metrics.len() + 8 * counters.len());
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        let head = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let written = match head.and_then(|head| head.split_once(' ')) {
            Some((name, rest)) if counters.contains(&name) => {
                writeln!(text, "{}{name}_total {rest}", &line[..7])
            }
            _ => writeln!(text, "{line}"),
        };
        written.expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Families;

    fn families() -> Vec<Family> {
        let mut families = Families::default();
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_micros(20));
        histogram.record(Duration::from_secs(100));
        families.label(vec![("member", "server 0".to_owned())]);
        families.counter("libra_reads", "Reads.", &[(&[], 7)]);
        families.label(vec![("member", "odd \"\\\n".to_owned())]);
        families.counter("libra_reads", "Reads.", &[(&[("path", "hot")], 8)]);
        families.seconds("libra_step_seconds", "Seconds.", &[(&[], 0.25)]);
        families.gauge("libra_rows", "Rows.", &[(&[], 3.0)]);
        families.histogram("libra_sync_seconds", "Syncs.", &[(&[], histogram)]);
        families.into_vec()
    }

    #[test]
    fn open_metrics_has_an_end_and_counters_without_total() {
        let text = encode(families(), Format::OpenMetrics);
        assert!(text.ends_with("# EOF\n"), "{text}");
        for line in [
            "# HELP libra_reads Reads.",
            "# TYPE libra_reads counter",
            "libra_reads_total{member=\"server 0\"} 7",
            "libra_reads_total{member=\"odd \\\"\\\\\\n\",path=\"hot\"} 8",
            "# TYPE libra_sync_seconds histogram",
            "libra_rows{member=\"odd \\\"\\\\\\n\"} 3.0",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        let buckets = text.lines().filter(|line| line.starts_with("libra_sync_seconds_bucket")).count();
        assert_eq!(buckets, libra_proto::HISTOGRAM_BOUNDS + 1);
        assert!(text.contains("libra_sync_seconds_bucket{le=\"+Inf\","), "{text}");
    }

    #[test]
    fn the_text_format_names_counters_with_total_everywhere() {
        let text = encode(families(), Format::Text);
        assert!(!text.contains("EOF"));
        for line in
            ["# HELP libra_reads_total Reads.", "# TYPE libra_reads_total counter", "# TYPE libra_rows gauge"]
        {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_reader_gets_the_format_that_it_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some("*/*")), Format::Text);
        assert_eq!(Format::accepted(None), Format::Text);
    }
}
