//! Exactly once, to the bit: the sums that shards apply are those of the packets that the contents of rounds name, each packet once.

use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::{Entry, Packet};
use libra_plan::Placement;
use libra_proto::{
    AckedSet, Adopted, ArithmeticMode, Committed, Drained, HotPath, Ownership, Peer, ROUNDS_BEGIN_AFTER,
    Replay, RoundContents,
};

use super::Verdict;
use super::packets::{Flow, Packets};
use super::slots::Slots;
use crate::rows::{Rows, Sums};

/// One region as its shard must see it.
#[derive(Debug)]
struct Region {
    shard: u16,
    /// For each slot where its value lies among all values.
    values: Vec<usize>,
    /// The last cell, for padding.
    padding: u16,
    /// The newest round that is applied.
    round: u64,
    /// The shard takes nothing from owners before this view.
    fence: u64,
    /// The last that came from each owner.
    drained: BTreeMap<u64, Drained>,
    /// Replays of workers that came while no switch held the region and were not answered, by worker and view.
    replays: BTreeMap<(u16, u64), VecDeque<Vec<u32>>>,
    /// Packets of replays that were applied since the last round whose number is known. They are at most as many rounds.
    replayed: u64,
}

impl Region {
    /// True if a packet came to the shard, in a round or in a replay.
    fn has_come(&self, worker: u16, seq: u32) -> bool {
        let replayed = self.replays.range((worker, 0)..=(worker, u64::MAX));
        let in_round =
            |drained: &Drained| drained.contents.flows.get(&worker).is_some_and(|acked| is_named(acked, seq));
        replayed.flat_map(|(_, replays)| replays).any(|seqs| seqs.contains(&seq))
            || self.drained.values().any(in_round)
    }

    /// The newest round that the shard may have applied without having said so. A round without packets is in no contents.
    fn newest_unsaid(&self) -> u64 {
        let newest = self.round + self.replayed;
        let is_next = |drained: &Drained| drained.round == newest + 1 && drained.sums.0.is_empty();
        newest + u64::from(self.drained.values().any(is_next))
    }
}

/// All regions, and what of them is applied.
#[derive(Debug)]
pub(super) struct Rounds {
    regions: Vec<Region>,
    arithmetic: ArithmeticMode,
    /// Of each region.
    lanes: u16,
    applied: Sums,
    /// Of all sums that were applied, without signs.
    magnitudes: Sums,
    /// Bound of the difference between `applied` and what shards have applied.
    doubt: Sums,
    committed: u64,
    /// Sums that are about to be applied.
    news: Slots,
}

impl Rounds {
    pub(super) fn new(rows: &Rows, placement: Option<&Placement>, hot_path: &HotPath) -> Self {
        let arithmetic = hot_path.arithmetic;
        let layouts = placement.map_or(&[][..], Placement::regions);
        let region = |layout: &libra_plan::RegionLayout| Region {
            shard: layout.shard,
            padding: layout.cells(hot_path.lanes) - 1,
            values: layout.rows.iter().flat_map(|row| rows.range(row.key)).collect(),
            round: ROUNDS_BEGIN_AFTER,
            fence: 0,
            drained: BTreeMap::new(),
            replays: BTreeMap::new(),
            replayed: 0,
        };
        Self {
            regions: layouts.iter().map(region).collect(),
            arithmetic,
            lanes: hot_path.lanes.into(),
            applied: Sums::zero(rows),
            magnitudes: Sums::zero(rows),
            doubt: Sums::zero(rows),
            committed: 0,
            news: Slots::new(arithmetic, f64::from(-rows.scale).exp2()),
        }
    }

    /// The sums of all that was applied by the hot path.
    pub(super) fn applied(&self) -> &Sums {
        &self.applied
    }

    /// Returns how far from their right sums rows may be after all that was applied, and after other updates up to these magnitudes: the error of tables,
    /// and then the rounding of each update to f32. All other sums are whole numbers, of which nothing is lost.
    pub(super) fn tolerances(&self, others: &Sums) -> Vec<f64> {
        let row = |((doubt, hot), other): ((&f64, &f64), &f64)| match self.arithmetic {
            ArithmeticMode::Fixed | ArithmeticMode::F32 => 0.0,
            ArithmeticMode::Table => {
                doubt + (hot + other) * f64::from(f32::EPSILON) * (self.committed as f64 + 1.0)
            }
        };
        self.doubt.0.iter().zip(&self.magnitudes.0).zip(&others.0).map(row).collect()
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// The newest round of a region that is applied, at most.
    pub(super) fn round(&self, region: u8) -> u64 {
        self.regions.get(usize::from(region)).map_or(0, |region| region.round + region.replayed)
    }

    fn region(&mut self, region: u8) -> Result<&mut Region, String> {
        self.regions.get_mut(usize::from(region)).ok_or_else(|| format!("there is no region {region}"))
    }

    // rules W13, W14
    /// A worker sends a packet: beyond one lane with an entry for each.
    pub(super) fn entries_sent(&mut self, packet: &Packet<'_>) -> Verdict {
        let (number, lanes, entries) = (packet.header.region, self.lanes, packet.entries());
        // A probe has none.
        if lanes == 1 || entries.len() == 0 {
            return Ok(());
        }
        let region = self.region(number)?;
        let is_sound = |entry: Entry| {
            if entry.cell == region.padding { entry.value == 0 } else { entry.cell < region.padding }
        };
        if entries.len() != usize::from(lanes) || !entries.clone().all(is_sound) {
            let entries: Vec<Entry> = entries.collect();
            return Err(format!("region {number}: a packet for {lanes} lanes has {entries:?}"));
        }
        match of_slots(entries, lanes, region.padding)
            .find(|(slot, _)| usize::from(*slot) >= region.values.len())
        {
            Some((slot, _)) => Err(format!("region {number}: a packet names slot {slot}, which has no row")),
            None => Ok(()),
        }
    }

    // rule V3
    /// A shard reports that it acts on a view: it takes nothing from those who held its regions before.
    pub(super) fn fenced(&mut self, shard: u16, ownerships: &[Ownership], packets: &Packets) -> Verdict {
        for (number, ownership) in (0..).zip(ownerships) {
            if self.shard_of(number) == Some(shard) {
                self.raise_fence(number, ownership.view_id, packets)?;
            }
        }
        Ok(())
    }

    /// The shard of a region acts on this ownership, if not on a later one.
    fn raise_fence(&mut self, number: u8, view_id: u64, packets: &Packets) -> Verdict {
        if view_id > self.region(number)?.fence {
            self.doubt_unsaid(number, packets)?;
            self.region(number)?.fence = view_id;
        }
        Ok(())
    }

    /// The last round of an owner that is fenced may be applied though no answer was sent. Its packets then come again, in several replays or what
    /// the next owner adopts, and add nothing: here they count as what they are worth, give or take the error of the sums of each replay. The
    /// rows have the sums of the round, whose error is another.
    fn doubt_unsaid(&mut self, number: u8, packets: &Packets) -> Verdict {
        let region = &self.regions[usize::from(number)];
        let unsaid = region.drained.get(&region.fence).filter(|drained| drained.round > region.round);
        let Some(drained) = unsaid.cloned() else { return Ok(()) };
        self.news.begin(region.values.len());
        for (&worker, acked) in &drained.contents.flows {
            let Some(flow) = packets.flow(worker, number) else { continue };
            for seq in flow.unapplied().filter(|seq| is_named(acked, *seq)) {
                self.add_packet(number, flow, seq)?;
            }
        }
        let sums = self.sums_of(&drained)?;
        let values = &self.regions[usize::from(number)].values;
        for ((value, sum), (exact, _)) in values.iter().zip(sums).zip(self.news.sums()) {
            self.doubt.0[*value] += (self.news.worth(sum) - exact).abs();
        }
        Ok(())
    }

    // rule T18
    /// A worker's flow into a region restarts: what came of it before is of other packets.
    pub(super) fn restart_flow(&mut self, number: u8, worker: u16, view_id: u64) {
        let Ok(region) = self.region(number) else { return };
        for drained in region.drained.values_mut() {
            drained.contents.flows.remove(&worker);
        }
        region.replays.retain(|&(of, view), _| of != worker || view >= view_id);
    }

    /// The shard of a region.
    pub(super) fn shard_of(&self, region: u8) -> Option<u16> {
        self.regions.get(usize::from(region)).map(|region| region.shard)
    }

    // rule E3
    /// A round reaches a shard, which may take it or not.
    pub(super) fn drained_arrives(&mut self, drained: &Drained, packets: &Packets) -> Verdict {
        let region = self.region(drained.region)?;
        let mut drained = drained.clone();
        // It may come once more when a flow has restarted meanwhile, whose numbers are others now (rule T18).
        drained.contents.flows.retain(|worker, _| !packets.is_over(*worker, drained.region, drained.view_id));
        match region.drained.get(&drained.view_id) {
            Some(before) if before.round == drained.round && *before != drained => Err(format!(
                "region {}: round {} of view {:#x} is two rounds",
                drained.region, drained.round, drained.view_id
            )),
            // Messages of a stream that broke may arrive after those of the next one.
            Some(before) if before.round > drained.round => Ok(()),
            _ => {
                region.drained.insert(drained.view_id, drained);
                Ok(())
            }
        }
    }

    // rules E4, E5, V3
    /// A shard reports that it has applied a round.
    pub(super) fn committed_sent(&mut self, committed: &Committed, packets: &mut Packets) -> Verdict {
        let Committed { region: number, view_id, round, .. } = *committed;
        let region = self.region(number)?;
        if view_id < region.fence {
            let fence = region.fence;
            return Err(format!(
                "region {number}: round {round} of view {view_id:#x} is committed after {fence:#x} began"
            ));
        }
        if round <= region.round {
            return Ok(()); // It came again, and is answered again.
        }
        if round > region.round + region.replayed + 1 {
            let last = region.round;
            return Err(format!("region {number}: round {round} is committed after {last}"));
        }
        let Some(drained) = region.drained.get(&view_id).filter(|drained| drained.round == round) else {
            return Err(format!(
                "region {number}: round {round} of view {view_id:#x} is committed, and no switch sent it"
            ));
        };
        let drained = drained.clone();
        (region.round, region.replayed) = (round, 0);
        self.apply(&drained, packets)
    }

    // rules E2, E5
    /// Applies what the contents of a round name and was not applied before, and compares its sums with those of the round.
    fn apply(&mut self, drained: &Drained, packets: &mut Packets) -> Verdict {
        let number = drained.region;
        let slots = self.regions[usize::from(number)].values.len();
        self.news.begin(slots);
        for (&worker, flow) in &drained.contents.flows {
            self.take_acked(number, packets.flow_mut(worker, number), flow).map_err(|what| {
                format!("region {number}, round {}, worker {worker}: {what}", drained.round)
            })?;
        }
        let sums = self.sums_of(drained)?;
        let applied: Vec<_> = sums.into_iter().map(|sum| (self.news.worth(sum), 0.0)).collect();
        self.commit(number, &applied);
        Ok(())
    }

    /// Returns the sums of a round by slot, which must be those of the news.
    fn sums_of(&self, drained: &Drained) -> Result<Vec<u32>, String> {
        let number = drained.region;
        let mut sums = vec![0; self.regions[usize::from(number)].values.len()];
        let runs = drained.slots.iter().flat_map(|&(first, count)| first..first + count);
        for (slot, sum) in runs.zip(&drained.sums.0) {
            // The last block of slots may reach into the padding.
            match sums.get_mut(usize::from(slot)) {
                Some(into) => *into = *sum,
                None if *sum == 0 => {}
                None => return Err(format!("region {number}: slot {slot} has a sum and no row")),
            }
        }
        match self.news.first_wrong(&sums) {
            None => Ok(sums),
            Some((slot, made)) => Err(format!(
                "region {number}, round {}: slot {slot} holds {:#x}, its packets make {made:#x}",
                drained.round, sums[slot]
            )),
        }
    }

    /// Adds the packets of a flow that an acked set names beyond what is applied. The set must name all of that, too.
    fn take_acked(&mut self, number: u8, flow: &mut Flow, acked: &AckedSet) -> Verdict {
        let contains = |seq| is_named(acked, seq);
        if flow.applied_below() > acked.below && !(acked.below..flow.applied_below()).all(contains) {
            return Err(format!(
                "the acked set ends at {}, {} was reached before",
                acked.below,
                flow.applied_below()
            ));
        }
        if let Some(lost) = flow.applied_above().iter().find(|seq| !contains(**seq)) {
            return Err(format!("{lost} was acked before, and is no more"));
        }
        let below = flow.applied_below()..acked.below;
        let above = acked.above.iter().flat_map(|&(first, count)| first..first + count);
        for seq in below.chain(above) {
            self.add_news(number, flow, seq)?;
        }
        Ok(())
    }

    /// Adds a packet, if it is not applied yet, and returns true if it was not.
    fn add_news(&mut self, number: u8, flow: &mut Flow, seq: u32) -> Result<bool, String> {
        if flow.is_applied(seq) {
            return Ok(false);
        }
        self.add_packet(number, flow, seq)?;
        flow.apply(seq);
        Ok(true)
    }

    fn add_packet(&mut self, number: u8, flow: &Flow, seq: u32) -> Verdict {
        let entries =
            flow.entries(seq).ok_or_else(|| format!("the acked set names {seq}, which was never sent"))?;
        let padding = self.regions[usize::from(number)].padding;
        for (slot, value) in of_slots(entries, self.lanes, padding) {
            if !self.news.add(slot, value) {
                return Err(format!("{seq} has an entry for slot {slot}, which has no row"));
            }
        }
        Ok(())
    }

    /// The shard has applied this to the slots of a region, or what is so far from it.
    fn commit(&mut self, region: u8, sums: &[(f64, f64)]) {
        self.committed += 1;
        let values = &self.regions[usize::from(region)].values;
        for (value, (sum, doubt)) in values.iter().zip(sums) {
            self.applied.0[*value] += sum;
            self.magnitudes.0[*value] += sum.abs() + doubt;
            self.doubt.0[*value] += doubt;
        }
    }

    /// The news are applied by the shard, and so many packets made them outside of a round of an owner.
    fn commit_replayed(&mut self, region: u8, packets: u64) {
        if packets > 0 {
            // A shard opens a bank for them, and another whenever that is full.
            self.regions[usize::from(region)].replayed += packets;
            let sums: Vec<_> = self.news.sums().collect();
            self.commit(region, &sums);
        }
    }

    /// Adds up the packets of one flow that are applied.
    pub(super) fn add_flow(&self, region: u8, flow: &Flow, sums: &mut Sums) {
        let Some(layout) = self.regions.get(usize::from(region)) else { return };
        let applied = (0..flow.applied_below()).chain(flow.applied_above().iter().copied());
        let packets = applied.filter_map(|seq| flow.entries(seq));
        for (slot, word) in packets.flat_map(|entries| of_slots(entries, self.lanes, layout.padding)) {
            if let Some(value) = layout.values.get(usize::from(slot)) {
                sums.0[*value] += self.news.worth(word);
            }
        }
    }

    /// Returns what shards may have applied without having said so, by round: values, and what is added to each. A round is answered once the log
    /// has it, and by then the region may have no owner any more. Living workers have replayed their packets in it.
    pub(super) fn unsaid(&self, packets: &Packets) -> Vec<Vec<(usize, f64)>> {
        let mut unsaid = Vec::new();
        for (number, region) in (0..).zip(&self.regions) {
            for drained in region.drained.values().filter(|drained| drained.round > region.round) {
                let mut changes = Vec::new();
                for (&worker, acked) in &drained.contents.flows {
                    let Some(flow) = packets.flow(worker, number) else { continue };
                    let named = flow.unapplied().filter(|seq| is_named(acked, *seq));
                    let entries = named.filter_map(|seq| flow.entries(seq));
                    let words = entries.flat_map(|entries| of_slots(entries, self.lanes, region.padding));
                    let values = words.filter_map(|(slot, word)| {
                        Some((*region.values.get(usize::from(slot))?, self.news.worth(word)))
                    });
                    changes.extend(values);
                }
                if !changes.is_empty() {
                    unsaid.push(changes);
                }
            }
        }
        unsaid
    }

    // rules D6, V4
    /// A shard sends a new owner the round to go on from.
    pub(super) fn adopted_sent(&mut self, adopted: &Adopted, packets: &mut Packets) -> Verdict {
        let number = adopted.region;
        let region = self.region(number)?;
        if adopted.view_id < region.fence {
            let fence = region.fence;
            return Err(format!(
                "region {number}: view {:#x} adopts it after {fence:#x} began",
                adopted.view_id
            ));
        }
        self.raise_fence(number, adopted.view_id, packets)?;
        self.find_unsaid(number, &adopted.contents, packets)?;
        let region = self.region(number)?;
        if !(region.round..=region.newest_unsaid()).contains(&adopted.round) {
            return Err(format!(
                "region {number}: adopted after round {}, {} is committed",
                adopted.round, region.round
            ));
        }
        (region.round, region.replayed) = (adopted.round, 0);
        check_contents_are_exact(number, &adopted.contents, packets)
    }

    // rule L1
    /// Finds what a shard has applied and not reported: it reports nothing before its log has it, and then its process ended, or the stream broke. It must have come to
    /// it in a round or in a replay.
    fn find_unsaid(&mut self, number: u8, contents: &RoundContents, packets: &mut Packets) -> Verdict {
        let slots = self.region(number)?.values.len();
        self.news.begin(slots);
        let mut news = 0;
        for (&worker, named) in &contents.flows {
            let above = named.above.iter().flat_map(|&(first, count)| first..first + count);
            let flow = packets.flow_mut(worker, number);
            for seq in (flow.applied_below()..named.below).chain(above) {
                let is_news = self.add_news(number, flow, seq)?;
                if is_news && !self.regions[usize::from(number)].has_come(worker, seq) {
                    return Err(format!(
                        "region {number}: worker {worker}: {seq} is in the adopted contents, and never came"
                    ));
                }
                news += u64::from(is_news);
            }
        }
        self.commit_replayed(number, news);
        Ok(())
    }

    /// A worker brings packets to a shard, which may take them or not.
    pub(super) fn replay_arrives(&mut self, worker: u16, replay: &Replay) {
        let Ok(region) = self.region(replay.region) else { return };
        let seqs = replay.packets.iter().filter_map(|packet| libra_dataplane::Header::parse(&packet.0).ok());
        let seqs = seqs.map(|header| header.seq).collect();
        region.replays.entry((worker, replay.view_id)).or_default().push_back(seqs);
    }

    // rule V6
    /// A shard reports that it has applied every packet of a replay, and so all of that worker below a number.
    pub(super) fn replayed_sent(
        &mut self,
        (number, view_id): (u8, u64),
        below: u32,
        to: Option<Peer>,
        packets: &mut Packets,
    ) -> Verdict {
        // Without a stream the recipient is unknown.
        let Some(Peer::Worker(worker)) = to else { return Ok(()) };
        let region = self.region(number)?;
        if view_id < region.fence {
            return Err(format!("region {number}: a replay of view {view_id:#x} is taken after it ended"));
        }
        self.raise_fence(number, view_id, packets)?;
        let region = self.region(number)?;
        let replays = region.replays.get_mut(&(worker, view_id));
        let Some(seqs) = replays.and_then(VecDeque::pop_front) else {
            return Err(format!(
                "region {number}: a replay of worker {worker} is answered, and there was none"
            ));
        };
        let slots = region.values.len();
        self.news.begin(slots);
        let mut news = 0;
        for seq in seqs {
            news += u64::from(self.add_news(number, packets.flow_mut(worker, number), seq)?);
        }
        self.commit_replayed(number, news);
        match packets.flow_mut(worker, number).unapplied().next().filter(|seq| *seq < below) {
            None => Ok(()),
            Some(seq) => Err(format!(
                "region {number}: worker {worker} receives that all below {below} is applied, {seq} is not"
            )),
        }
    }
}

fn is_named(acked: &AckedSet, seq: u32) -> bool {
    seq < acked.below || acked.above.iter().any(|&(first, count)| (first..first + count).contains(&seq))
}

/// The slots that the entries of a packet address, and their words; padding addresses none.
fn of_slots(
    entries: impl Iterator<Item = Entry>,
    lanes: u16,
    padding: u16,
) -> impl Iterator<Item = (u16, u32)> {
    let lane = (0..lanes).cycle();
    let rows = entries.zip(lane).filter(move |(entry, _)| entry.cell != padding);
    rows.map(move |(entry, lane)| (entry.cell.saturating_mul(lanes).saturating_add(lane), entry.value))
}

/// Checks that an acked set names exactly what is applied of each flow.
fn check_contents_are_exact(region: u8, contents: &RoundContents, packets: &Packets) -> Verdict {
    for ((worker, _), flow) in packets.flows().filter(|((_, other), _)| *other == region) {
        let none = AckedSet::default();
        let named = contents.flows.get(&worker).unwrap_or(&none);
        let above = named.above.iter().flat_map(|&(first, count)| first..first + count);
        let applied = (0..flow.applied_below()).chain(flow.applied_above().iter().copied());
        if !(0..named.below).chain(above).eq(applied) {
            return Err(format!(
                "region {region}: the adopted set of worker {worker} is {named:?}, applied is all below {} and {:?}",
                flow.applied_below(),
                flow.applied_above()
            ));
        }
    }
    Ok(())
}
