//! Families of metrics as data, before they are text.

use core::time::Duration;

use libra_proto::Histogram;

/// Labels of a sample.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A family of metrics: a name, its help, and samples of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// With the prefix, and without `_total`.
    pub(crate) name: String,
    pub(crate) help: &'static str,
    pub(crate) samples: Samples,
}

/// Samples of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Samples {
    Counter(Vec<(Labels, u64)>),
    /// A counter of seconds.
    Seconds(Vec<(Labels, f64)>),
    Gauge(Vec<(Labels, f64)>),
    Histogram(Vec<(Labels, Histogram)>),
}

impl Samples {
    fn is_empty(&self) -> bool {
        match self {
            Self::Counter(samples) => samples.is_empty(),
            Self::Seconds(samples) | Self::Gauge(samples) => samples.is_empty(),
            Self::Histogram(samples) => samples.is_empty(),
        }
    }
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
        let labelled = self.labelled(samples);
        if let Samples::Counter(samples) = self.samples(name, help, Samples::Counter(Vec::new())) {
            samples.extend(labelled);
        }
    }

    pub(crate) fn seconds(&mut self, name: &str, help: &'static str, samples: &[(&[Label<'_>], f64)]) {
        let labelled = self.labelled(samples);
        if let Samples::Seconds(samples) = self.samples(name, help, Samples::Seconds(Vec::new())) {
            samples.extend(labelled);
        }
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &'static str, samples: &[(&[Label<'_>], f64)]) {
        let labelled = self.labelled(samples);
        if let Samples::Gauge(samples) = self.samples(name, help, Samples::Gauge(Vec::new())) {
            samples.extend(labelled);
        }
    }

    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &'static str,
        samples: &[(&[Label<'_>], Histogram)],
    ) {
        let labelled = self.labelled(samples);
        if let Samples::Histogram(samples) = self.samples(name, help, Samples::Histogram(Vec::new())) {
            samples.extend(labelled);
        }
    }

    fn labelled<T: Copy>(&self, samples: &[(&[Label<'_>], T)]) -> Vec<(Labels, T)> {
        let labels = |own: &[Label<'_>]| {
            let own = own.iter().map(|(key, value)| (*key, (*value).to_owned()));
            self.common.iter().cloned().chain(own).collect()
        };
        samples.iter().map(|(own, value)| (labels(own), *value)).collect()
    }

    /// The samples of a family, which is added if it is new.
    fn samples(&mut self, name: &str, help: &'static str, none: Samples) -> &mut Samples {
        let place = self.families.iter().position(|family| family.name == name);
        let place = place.unwrap_or_else(|| {
            self.families.push(Family { name: name.to_owned(), help, samples: none });
            self.families.len() - 1
        });
        &mut self.families[place].samples
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
