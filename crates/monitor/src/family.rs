//! Families of metrics as data, before they are text.

use core::time::Duration;

use libra_proto::Histogram;

/// Labels of a sample.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A family of metrics: a name, its help, and samples.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// With the prefix, and without `_total`.
    pub(crate) name: String,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<(Labels, Value)>,
}

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
    Histogram(Histogram),
}

/// Families in the order in which they were added, each once: samples of several members are of one family.
#[derive(Debug, Default)]
pub(crate) struct Families {
    families: Vec<Family>,
    /// Labels of all samples that are added from now on.
    common: Labels,
}

impl Families {
    /// Labels of all samples that are added from now on.
    pub(crate) fn label(&mut self, common: Labels) {
        self.common = common;
    }

    pub(crate) fn counter(&mut self, name: &str, help: &'static str, samples: &[(&[Label<'_>], u64)]) {
        self.add(name, help, Kind::Counter, samples, Value::Count);
    }

    /// A counter of seconds.
    pub(crate) fn seconds(&mut self, name: &str, help: &'static str, samples: &[(&[Label<'_>], f64)]) {
        self.add(name, help, Kind::Counter, samples, Value::Number);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &'static str, samples: &[(&[Label<'_>], f64)]) {
        self.add(name, help, Kind::Gauge, samples, Value::Number);
    }

    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &'static str,
        samples: &[(&[Label<'_>], Histogram)],
    ) {
        self.add(name, help, Kind::Histogram, samples, Value::Histogram);
    }

    /// Adds samples to a family, which is added if it is new.
    fn add<T: Copy>(
        &mut self,
        name: &str,
        help: &'static str,
        kind: Kind,
        samples: &[(&[Label<'_>], T)],
        value: impl Fn(T) -> Value,
    ) {
        let place = self.families.iter().position(|family| family.name == name);
        let place = place.unwrap_or_else(|| {
            self.families.push(Family { name: name.to_owned(), help, kind, samples: Vec::new() });
            self.families.len() - 1
        });
        let family = &mut self.families[place];
        assert_eq!(family.kind, kind, "{name} is of one kind");
        for (own, sample) in samples {
            let own = own.iter().map(|(key, value)| (*key, (*value).to_owned()));
            family.samples.push((self.common.iter().cloned().chain(own).collect(), value(*sample)));
        }
    }

    /// Returns the families that have a sample.
    pub(crate) fn into_vec(self) -> Vec<Family> {
        self.families.into_iter().filter(|family| !family.samples.is_empty()).collect()
    }
}

/// A label: key and value.
pub(crate) type Label<'a> = (&'static str, &'a str);

/// Returns a duration as Prometheus has it.
pub(crate) fn in_seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
