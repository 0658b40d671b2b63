//! Datagrams that are handed over at once, and what must come back.

use std::collections::{BTreeSet, VecDeque};

use libra_dataplane::{Flags, Header, Kind, Packet};

use crate::describe::{differences, summary};
use crate::key::Keys;
use crate::run::{Cause, Difference, mismatch};
use crate::target::Target;
use crate::vector::{Exchange, RegionName, Sender};

/// Datagrams of one sender that were not yet handed over.
pub(crate) struct Burst {
    pub(crate) keys: Keys,
    most: usize,
    from: Sender,
    datagrams: Vec<Vec<u8>>,
    /// For each of them its line, and its answer.
    expected: Vec<(usize, Option<Vec<u8>>)>,
}

impl Burst {
    pub(crate) fn new(most: usize) -> Self {
        Self { keys: Keys::default(), most, from: Sender::Agent, datagrams: vec![], expected: vec![] }
    }

    pub(crate) fn add<T: Target>(
        &mut self,
        line: usize,
        exchange: &Exchange,
        n: u32,
        target: &mut T,
    ) -> Result<(), (usize, Cause)> {
        if exchange.from != self.from || self.datagrams.len() == self.most {
            self.flush(target)?;
            self.from = exchange.from;
        }
        self.datagrams.push(exchange.datagram(n));
        self.expected.push((line, exchange.answer(n)));
        Ok(())
    }

    pub(crate) fn flush<T: Target>(&mut self, target: &mut T) -> Result<(), (usize, Cause)> {
        let Some(&(first, _)) = self.expected.first() else { return Ok(()) };
        let cannot = |error: T::Error| (first, Cause::Target(error.to_string()));
        let datagrams = std::mem::take(&mut self.datagrams);
        let mut expected = std::mem::take(&mut self.expected);
        if let ([datagram], [(line, expected)]) = (datagrams.as_slice(), expected.as_slice()) {
            let found = target.receive(self.from, datagram).map_err(cannot)?;
            let different = differences(expected.as_deref(), found.as_deref());
            return mismatch(|| summary(datagram), different).map_err(|cause| (*line, cause));
        }

        let mut found = target.receive_burst(self.from, &datagrams).map_err(cannot)?;
        let wrong = found.iter_mut().find_map(|answer| self.keys.clear_mac(self.from, answer));
        mismatch(|| "a burst".to_owned(), Vec::from_iter(wrong)).map_err(|cause| (first, cause))?;
        for answer in expected.iter_mut().filter_map(|(_, answer)| answer.as_mut()) {
            // The target has to give it if it answers one by one, and that was compared just now.
            let _ = self.keys.clear_mac(self.from, answer);
        }
        let mut found = Found::new(found);
        let mut line = first;
        for (datagram, (at, expected)) in datagrams.iter().zip(&expected) {
            line = *at;
            if let Some(expected) = expected {
                let different = found.differences(expected);
                mismatch(|| format!("{} (in a burst)", summary(datagram)), different)
                    .map_err(|cause| (line, cause))?;
            }
        }
        found.finish(target).map_err(|cause| (line, cause))
    }
}

/// The answers to a burst. Acknowledgements that follow each other are compared as sets: how many became one, and in which order they
/// list packets, is not defined (rule W8).
struct Found {
    /// Behind the acknowledgements.
    answers: VecDeque<Vec<u8>>,
    /// The acknowledgements before the next other answer, and those that were expected so far.
    acknowledged: Vec<Acknowledged>,
    expected: Vec<Acknowledged>,
    /// Numbers that acknowledgements list unexpectedly.
    repeated: Vec<(Header, u32)>,
}

impl Found {
    fn new(answers: Vec<Vec<u8>>) -> Self {
        let mut found =
            Self { answers: answers.into(), acknowledged: vec![], expected: vec![], repeated: vec![] };
        found.take_acknowledged();
        found
    }

    /// Takes up the acknowledgements that come next.
    fn take_acknowledged(&mut self) {
        let expected = core::mem::take(&mut self.expected);
        for these in self.acknowledged.drain(..) {
            let is_expected = |seq| expected.iter().any(|one| these.says(one) && one.listed.contains(&seq));
            let repeated = these.listed.iter().filter(|seq| !is_expected(**seq));
            self.repeated.extend(repeated.map(|seq| (these.header, *seq)));
        }
        while let Some(these) = self.answers.front().and_then(|answer| Acknowledged::read(answer)) {
            self.acknowledged.push(these);
            self.answers.pop_front();
        }
    }

    /// Compares the answer that is expected next with what was found.
    fn differences(&mut self, expected: &[u8]) -> Vec<Difference> {
        if let Some(one) = Acknowledged::read(expected) {
            if self.acknowledged.iter().any(|these| these.says(&one)) {
                self.expected.push(one);
                return vec![];
            }
            let other = self.unexpected().or_else(|| self.answers.front().cloned());
            return differences(Some(expected), other.as_deref());
        }
        if let Some(unexpected) = self.unexpected() {
            return differences(Some(expected), Some(&unexpected));
        }
        let answer = self.answers.pop_front();
        self.take_acknowledged();
        differences(Some(expected), answer.as_deref())
    }

    /// An acknowledgement too many: its newest packet had none to expect, or there are more than packets.
    fn unexpected(&self) -> Option<Vec<u8>> {
        let is_expected = |these: &&Acknowledged| self.expected.iter().any(|one| one.header == these.header);
        let strange = self.acknowledged.iter().find(|these| !is_expected(these));
        let these = strange.or_else(|| self.acknowledged.get(self.expected.len()))?;
        Some(these.header.to_bytes().to_vec())
    }

    /// Checks that there are no more answers, and that what acknowledgements list beside packets of the burst was taken: to list it once more is
    /// harmless.
    fn finish<T: Target>(mut self, target: &mut T) -> Result<(), Cause> {
        let more = differences(None, self.unexpected().or_else(|| self.answers.pop_front()).as_deref());
        mismatch(|| "a burst, behind its last answer".to_owned(), more)?;
        self.take_acknowledged();
        self.repeated.into_iter().try_for_each(|(header, seq)| {
            let name = RegionName { job: header.job, region: header.region };
            let acked =
                target.acked(name, header.worker).map_err(|error| Cause::Target(error.to_string()))?;
            let is_taken = acked.iter().any(|taken| taken.contains(&seq));
            let difference = || Difference::new("acknowledged", "what was taken", seq.to_string());
            mismatch(|| "a burst".to_owned(), if is_taken { vec![] } else { vec![difference()] })
        })
    }
}

/// An acknowledgement, of several packets or of one.
struct Acknowledged {
    header: Header,
    listed: BTreeSet<u32>,
}

impl Acknowledged {
    /// `None` for another answer.
    fn read(answer: &[u8]) -> Option<Self> {
        let packet = Packet::parse(answer).ok()?;
        let is_one = packet.header.kind == Kind::Ack && packet.header.flags == Flags::NONE;
        let listed = packet.acknowledged().flat_map(|range| range.iter()).collect();
        let header = Header { entries: 0, ..packet.header };
        is_one.then_some(Self { header, listed })
    }

    /// Returns true if it acknowledges what another does, of the same packets at least.
    fn says(&self, one: &Self) -> bool {
        Header { seq: one.header.seq, ..self.header } == one.header && one.listed.is_subset(&self.listed)
    }
}
