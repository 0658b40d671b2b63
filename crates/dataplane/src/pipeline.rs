//! The pipeline: a packet in, its answer out, in the same buffer.

use core::fmt;
use core::marker::PhantomData;

use crate::coalesce::Coalesced;
use crate::config::Memory;
use crate::counters::{Counters, DropReason, Fate, Verdict};
use crate::execute::Refusal;
use crate::region::{Region, Taken};
use crate::wire::{Answer, Flags, Header, Kind, NackReason};

/// Executes packets on the regions of a switch.
///
/// `R` holds the regions, a `Vec` or an array; `M` is their [`Memory`]. The pipeline keeps them in the order of
/// (job, region).
#[derive(Debug, Clone)]
pub struct Pipeline<R, M> {
    regions: R,
    /// Where the last packet's region is: the next packet is mostly for the same.
    recent: usize,
    /// Packets that are for no region of this switch.
    strays: Counters,
    memory: PhantomData<M>,
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
    /// If two regions now have the same job and number. They stay, and which one takes packets is not said.
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

    /// What became of all packets, those for no region included.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.regions().iter().fold(self.strays, |sum, region| sum.plus(region.counters()))
    }

    /// Executes one packet of any kind, and writes the answer over it.
    ///
    /// Who may send what is not asked: an `INSTALL` must come from the owning shard, a `DRAIN` from the agent, and the
    /// caller sees to that. For packets straight from a worker there is [`process_burst`](Self::process_burst).
    pub fn process(&mut self, packet: &mut [u8]) -> Verdict {
        let answered = match Header::parse_without_entries(packet) {
            Ok(header) => self.execute(&header, packet).map(|answer| header.answered(answer)),
            Err(malformed) => Err(self.drop_stray(DropReason::Malformed(malformed))),
        };
        match answered {
            Ok(header) => {
                header.emit(packet);
                Verdict::Reply(header.packet_bytes())
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Executes packets that came straight from one worker, `from` = (job, worker), and hands its answers to `emit`.
    ///
    /// Only `PUSH` and `PULL` packets that name this worker are executed, all others are dropped and counted (rule W3). The
    /// answers are those of [`process`](Self::process) in the same order, except that acknowledgements without values
    /// that follow each other and differ only in `seq` become one. It lists them as ranges, and with them others of the flow
    /// that were taken before, whose acknowledgement may be lost (rule W8).
    pub fn process_burst<'a>(
        &mut self,
        from: (u16, u16),
        packets: impl IntoIterator<Item = &'a mut [u8]>,
        mut emit: impl FnMut(&[u8]),
    ) {
        let mut acknowledged = Coalesced::new();
        for packet in packets {
            let header = match Header::parse_without_entries(packet) {
                Ok(header) => header,
                Err(malformed) => {
                    let _ = self.drop_stray(DropReason::Malformed(malformed));
                    continue;
                }
            };
            if (header.job, header.worker) != from {
                let _ = self.drop_stray(DropReason::Foreign);
                continue;
            }
            if !matches!(header.kind, Kind::Push | Kind::Pull) {
                let _ = self.drop_stray(DropReason::Unexpected);
                continue;
            }
            match self.execute(&header, packet) {
                Ok(answer) if answer.kind == Kind::Ack && answer.flags == Flags::NONE => {
                    if !acknowledged.add(&header, answer) {
                        self.acknowledge(&mut acknowledged, &mut emit);
                        let fits = acknowledged.add(&header, answer);
                        debug_assert!(fits, "nothing is there that it could not go with");
                    }
                }
                Ok(answer) => {
                    self.acknowledge(&mut acknowledged, &mut emit);
                    let header = header.answered(answer);
                    header.emit(packet);
                    emit(packet.get(..header.packet_bytes()).unwrap_or_default());
                }
                Err(_) => {}
            }
        }
        self.acknowledge(&mut acknowledged, &mut emit);
    }

    fn acknowledge(&self, acknowledged: &mut Coalesced, emit: &mut impl FnMut(&[u8])) {
        let Some((push, ack)) = acknowledged.newest() else { return };
        let taken =
            self.region(push.job, push.region).and_then(|region| region.taken_by(push.worker, ack.epoch));
        let next = taken.map_or(0, Taken::next);
        acknowledged.flush(next, |seq| taken.is_some_and(|taken| taken.contains(seq)), emit);
    }

    /// Everything but the header of the answer. The entries that the answer counts are in place.
    #[inline]
    fn execute(&mut self, header: &Header, packet: &mut [u8]) -> Result<Answer, DropReason> {
        let Some(region) = self.find(header.job, header.region) else {
            return match header.kind {
                Kind::Ack | Kind::Nack | Kind::Stream => Err(self.drop_stray(DropReason::Unexpected)),
                Kind::Push | Kind::Pull | Kind::Install | Kind::Drain => {
                    self.strays.count(Fate::Refused(NackReason::UnknownFlow));
                    Ok(Answer::refusal(NackReason::UnknownFlow, header.view, 0))
                }
            };
        };
        match region.execute(header, packet) {
            Ok((deed, answer)) => {
                region.counters.count(Fate::Done(deed));
                Ok(answer)
            }
            Err(Refusal::Nack(reason)) => {
                region.counters.count(Fate::Refused(reason));
                Ok(region.refusal(reason))
            }
            Err(Refusal::Drop(reason)) => {
                region.counters.count(Fate::Dropped(reason));
                Err(reason)
            }
        }
    }

    fn find(&mut self, job: u16, region: u8) -> Option<&mut Region<M>> {
        let regions = self.regions.as_mut();
        if regions.get(self.recent).is_none_or(|recent| name(recent) != (job, region)) {
            self.recent = regions.binary_search_by_key(&(job, region), name).ok()?;
        }
        regions.get_mut(self.recent)
    }

    fn drop_stray(&mut self, reason: DropReason) -> DropReason {
        self.strays.count(Fate::Dropped(reason));
        reason
    }
}

/// The order of regions, and what packets call them.
const fn name<M>(region: &Region<M>) -> (u16, u8) {
    (region.config.job, region.config.region)
}
