//! The pipeline: a packet in, its answer out, in the same buffer.

use core::fmt;
use core::marker::PhantomData;

use crate::authentication::{Direction, Tags};
use crate::coalesce::{Coalesced, Newest};
use crate::config::Memory;
use crate::counters::{Action, Counters, DropReason, Executed, Outcome, Verdict};
use crate::region::Region;
use crate::wire::{Flags, Header, Kind, NackReason};

/// Executes packets on the regions of a switch.
///
/// `R` holds the regions, a `Vec` or an array; `M` is their [`Memory`]. The pipeline keeps them in the order of
/// (job, region).
#[derive(Debug, Clone)]
pub struct Pipeline<R, M> {
    regions: R,
    /// Index of the last packet's region: the next packet is mostly for the same.
    recent: usize,
    /// Packets that are for no region of this switch.
    strays: Counters,
    memory: PhantomData<M>,
}

/// A sender of packets, and its flow of each region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sender {
    /// The tenant.
    pub job: u16,
    /// Its worker, as packets name it.
    pub worker: u16,
    /// Index of its flow in the memory of regions.
    pub flow: u16,
}

impl From<(u16, u16)> for Sender {
    /// A worker of a job, whose flow has its number.
    fn from((job, worker): (u16, u16)) -> Self {
        Self { job, worker, flow: worker }
    }
}

/// Two regions of a pipeline have the same job and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DuplicateRegion {
    /// Their job.
    pub job: u16,
    /// Their number.
    pub region: u8,
}

impl fmt::Display for DuplicateRegion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "region {} of job {} is there twice", self.region, self.job)
    }
}

impl core::error::Error for DuplicateRegion {}

impl<R, M> Pipeline<R, M>
where
    M: Memory,
    R: AsRef<[Region<M>]> + AsMut<[Region<M>]>,
{
    /// A pipeline of these regions, which it sorts.
    ///
    /// # Errors
    /// If two regions have the same job and number.
    pub fn new(regions: R) -> Result<Self, DuplicateRegion> {
        let mut pipeline = Self { regions, recent: 0, strays: Counters::default(), memory: PhantomData };
        pipeline.sort()?;
        Ok(pipeline)
    }

    /// Adds, removes or replaces regions.
    ///
    /// # Errors
    /// If two regions now have the same job and number. They stay, and it is not defined which one takes packets.
    pub fn change(&mut self, change: impl FnOnce(&mut R)) -> Result<(), DuplicateRegion> {
        change(&mut self.regions);
        self.sort()
    }

    fn sort(&mut self) -> Result<(), DuplicateRegion> {
        let regions = self.regions.as_mut();
        regions.sort_unstable_by_key(name);
        let twice = regions.iter().zip(regions.iter().skip(1)).find(|(a, b)| name(a) == name(b));
        twice.map_or(Ok(()), |(region, _)| {
            Err(DuplicateRegion { job: region.config().job, region: region.config().region })
        })
    }

    /// The regions, by ascending (job, region).
    #[must_use]
    pub fn regions(&self) -> &[Region<M>] {
        self.regions.as_ref()
    }

    /// The regions for the agent to act on, by ascending (job, region).
    pub fn regions_mut(&mut self) -> impl Iterator<Item = &mut Region<M>> {
        self.regions.as_mut().iter_mut()
    }

    /// One region.
    #[must_use]
    pub fn region(&self, job: u16, region: u8) -> Option<&Region<M>> {
        let regions = self.regions.as_ref();
        let index = regions.binary_search_by_key(&(job, region), name).ok()?;
        regions.get(index)
    }

    /// One region for the agent to act on.
    #[must_use]
    pub fn region_mut(&mut self, job: u16, region: u8) -> Option<&mut Region<M>> {
        let regions = self.regions.as_mut();
        let index = regions.binary_search_by_key(&(job, region), name).ok()?;
        regions.get_mut(index)
    }

    /// Returns the counters of all packets, those for no region included.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.regions().iter().fold(self.strays, |sum, region| sum.plus(region.counters()))
    }

    /// Executes one packet of any kind, and writes the answer over it.
    ///
    /// The right to send is not checked: an `INSTALL` must come from the owning shard, a `DRAIN` from the agent, and the
    /// caller sees to that. For packets straight from a worker there is [`process_burst`](Self::process_burst).
    pub fn process(&mut self, packet: &mut [u8]) -> Verdict {
        self.process_as(None, packet)
    }

    /// The same for a packet of this flow, whatever the number of its worker.
    pub fn process_of_flow(&mut self, flow: u16, packet: &mut [u8]) -> Verdict {
        self.process_as(Some(flow), packet)
    }

    fn process_as(&mut self, flow: Option<u16>, packet: &mut [u8]) -> Verdict {
        let header = match Header::parse_without_entries(packet) {
            Ok(header) => header,
            Err(malformed) => return Verdict::Drop(self.drop_stray(DropReason::Malformed(malformed))),
        };
        let outcome = self.execute(&header, flow.unwrap_or(header.worker), packet);
        match self.answer(&header, outcome) {
            Ok(answer) => {
                answer.emit(packet);
                Verdict::Reply(answer.packet_bytes())
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Executes packets that came straight from one worker, and hands its answers to `emit`.
    ///
    /// Only `PUSH` and `PULL` packets that name this worker are executed, all others are dropped and counted (rule W3). The
    /// answers are those of [`process`](Self::process) in the same order, except that acknowledgements without values
    /// that follow each other and differ only in `seq` become one. It lists them as ranges, and with them others of the flow
    /// that were taken before, whose acknowledgement may be lost (rule W8).
    pub fn process_burst<'a>(
        &mut self,
        from: impl Into<Sender>,
        packets: impl IntoIterator<Item = &'a mut [u8]>,
        emit: impl FnMut(&[u8]),
    ) {
        self.process_tagged_burst(from, None, packets, emit);
    }

    /// The same in a job with keys: what has not the tag of its sender is dropped without an answer, and with MACs what is for another region,
    /// plan or view than there is, too (rule A3). Answers have tags.
    pub fn process_tagged_burst<'a>(
        &mut self,
        from: impl Into<Sender>,
        tags: Option<Tags<'_>>,
        packets: impl IntoIterator<Item = &'a mut [u8]>,
        mut emit: impl FnMut(&[u8]),
    ) {
        let Sender { job, worker, flow } = from.into();
        let mut acknowledged = Coalesced::new();
        for packet in packets {
            let header = match Header::parse_without_entries(packet) {
                Ok(header) => header,
                Err(malformed) => {
                    let _ = self.drop_stray(DropReason::Malformed(malformed));
                    continue;
                }
            };
            if (header.job, header.worker) != (job, worker) {
                let _ = self.drop_stray(DropReason::Foreign);
                continue;
            }
            if !matches!(header.kind, Kind::Push | Kind::Pull) {
                let _ = self.drop_stray(DropReason::Unexpected);
                continue;
            }
            if let Some(tags) = tags
                && !self.is_authentic(&header, packet, tags)
            {
                continue;
            }
            match self.execute(&header, flow, packet) {
                Outcome::Executed(
                    executed @ Executed {
                        action: Action::Pushed | Action::Duplicate, flags: Flags::NONE, ..
                    },
                ) => {
                    if !acknowledged.add(&header, executed) {
                        self.acknowledge(flow, tags, &mut acknowledged, &mut emit);
                        let fits = acknowledged.add(&header, executed);
                        debug_assert!(fits, "nothing is there that it could not go with");
                    }
                }
                outcome => {
                    if let Ok(answer) = self.answer(&header, outcome) {
                        self.acknowledge(flow, tags, &mut acknowledged, &mut emit);
                        answer.emit(packet);
                        let packet = packet.get_mut(..answer.packet_bytes()).unwrap_or_default();
                        self.sign(&answer, tags, packet);
                        emit(packet);
                    }
                }
            }
        }
        self.acknowledge(flow, tags, &mut acknowledged, &mut emit);
    }

    /// Returns true if a packet is for a region as it is here, and of its sender. Any other is counted.
    #[inline]
    fn is_authentic(&mut self, header: &Header, packet: &[u8], tags: Tags<'_>) -> bool {
        let Some(region) = self.find(header.job, header.region) else {
            let reason = match tags {
                Tags::Mac { .. } => DropReason::Stale,
                // A cookie is of no region: the packet is answered (rule A5).
                Tags::Cookie(_) if tags.is_authentic(Direction::Up, packet, 0) => return true,
                Tags::Cookie(_) => DropReason::Forged,
            };
            let _ = self.drop_stray(reason);
            return false;
        };
        let Err(refusal) = region.authenticate(header, packet, tags) else { return true };
        region.counters.count(refusal.into());
        false
    }

    /// Gives an answer its tag, in a job with keys.
    #[inline]
    fn sign(&self, answer: &Header, tags: Option<Tags<'_>>, packet: &mut [u8]) {
        if let Some(tags) = tags {
            // Without a region there are answers with cookies alone, which are of no view.
            let view = self.region(answer.job, answer.region).map_or(0, |region| region.config.view);
            tags.sign(Direction::Down, packet, view);
        }
    }

    fn acknowledge(
        &self,
        flow: u16,
        tags: Option<Tags<'_>>,
        acknowledged: &mut Coalesced,
        emit: &mut impl FnMut(&[u8]),
    ) {
        let Some(Newest { push, executed }) = acknowledged.newest() else { return };
        let Some(region) = self.region(push.job, push.region) else { return };
        let Some(taken) = region.taken_by(flow, executed.round) else { return };
        let Ok(ack) = self.answer(&push, Outcome::Executed(executed)) else { return };
        acknowledged.flush(ack, taken.next(), |seq| taken.contains(seq), &mut |packet| {
            self.sign(&ack, tags, packet);
            emit(packet);
        });
    }

    /// The header of the answer. The entries that it counts are in place.
    fn answer(&self, header: &Header, outcome: Outcome) -> Result<Header, DropReason> {
        let region = self.region(header.job, header.region);
        let (view, durable) =
            region.map_or((header.view, 0), |region| (region.config.view_on_wire(), region.durable()));
        outcome.answer(header, view, durable)
    }

    /// Carries out a packet, and counts it.
    #[inline]
    fn execute(&mut self, header: &Header, flow: u16, packet: &mut [u8]) -> Outcome {
        let Some(region) = self.find(header.job, header.region) else {
            let outcome = match header.kind {
                Kind::Ack | Kind::Nack | Kind::Stream => Outcome::Dropped(DropReason::Unexpected),
                Kind::Push | Kind::Pull | Kind::Install | Kind::Drain => {
                    Outcome::Refused(NackReason::UnknownFlow)
                }
            };
            self.strays.count(outcome);
            return outcome;
        };
        let outcome = region.execute(header, flow, packet).map_or_else(Outcome::from, Outcome::Executed);
        region.counters.count(outcome);
        outcome
    }

    fn find(&mut self, job: u16, region: u8) -> Option<&mut Region<M>> {
        let regions = self.regions.as_mut();
        if regions.get(self.recent).is_none_or(|recent| name(recent) != (job, region)) {
            self.recent = regions.binary_search_by_key(&(job, region), name).ok()?;
        }
        regions.get_mut(self.recent)
    }

    fn drop_stray(&mut self, reason: DropReason) -> DropReason {
        self.strays.count(Outcome::Dropped(reason));
        reason
    }
}

/// The order of regions, and what packets call them.
const fn name<M>(region: &Region<M>) -> (u16, u8) {
    (region.config.job, region.config.region)
}
