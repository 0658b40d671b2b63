//! Keys of workers, as vectors give them, and tags that no file has.

use std::collections::BTreeMap;
use std::fmt;

use libra_dataplane::{
    BodyKey, Direction, Flags, HEADER_BYTES, Header, Kind, PathKeys, TagKey, Tags, set_tag, tag_of,
};

use crate::run::Difference;
use crate::vector::{RegionName, Sender, Step, WorkerName};

/// The key between a worker and the switch, in a job whose packets have tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// See [`Tags::Cookie`].
    Cookie(u64),
    /// See [`Tags::Mac`].
    Mac {
        /// The key that compresses entries.
        body: Box<BodyKey>,
        /// The keys of MACs.
        keys: PathKeys,
    },
}

impl Key {
    /// As the data plane takes it.
    #[must_use]
    pub fn tags(&self) -> Tags<'_> {
        match self {
            Self::Cookie(cookie) => Tags::Cookie(*cookie),
            Self::Mac { body, keys } => Tags::Mac { body, keys: *keys },
        }
    }
}

/// The key as it is in a file, in the order of its bytes.
impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_words = |key: &TagKey| key.words().map(|word| format!("{:016x}", word.swap_bytes())).concat();
        match self {
            Self::Cookie(cookie) => write!(formatter, "cookie {cookie:016x}"),
            Self::Mac { body, keys: PathKeys { up, down } } => {
                write!(formatter, "mac up {} down {} body ", of_words(up), of_words(down))?;
                body.words().iter().try_for_each(|word| write!(formatter, "{:08x}", word.swap_bytes()))
            }
        }
    }
}

/// Keys and views of a vector, up to a line of it.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    of_workers: BTreeMap<WorkerName, Key>,
    views: BTreeMap<RegionName, u64>,
}

impl Keys {
    pub(crate) fn observe(&mut self, step: &Step) {
        match step {
            Step::Key(worker, key) => _ = self.of_workers.insert(*worker, key.clone()),
            Step::Open { config, .. } => _ = self.views.insert(RegionName::of(config), config.view),
            _ => {}
        }
    }

    /// Clears the MAC of an acknowledgement without values: if it is of several packets, no file has it. Nothing is done to other answers.
    ///
    /// Returns the difference to the right one.
    pub(crate) fn clear_mac(&self, of: Sender, answer: &mut [u8]) -> Option<Difference> {
        let Sender::Worker(worker) = of else { return None };
        let tags @ Tags::Mac { .. } = self.of_workers.get(&worker)?.tags() else { return None };
        let Header { kind: Kind::Ack, flags: Flags::NONE, job, region, .. } = Header::parse(answer).ok()?
        else {
            return None;
        };
        let view = *self.views.get(&RegionName { job, region })?;
        let (header, body) = answer.split_first_chunk_mut::<HEADER_BYTES>()?;
        let (expected, found) =
            (tags.tag(Direction::Down, header, view, tags.body_hash(body)), tag_of(header));
        set_tag(header, 0);
        let difference = || Difference::new("tag", format!("{expected:016x}"), format!("{found:016x}"));
        (expected != found).then(difference)
    }
}
