//! Packets of workers for regions that no switch holds: the shard takes them as a switch would.

use libra_dataplane::mutants::{Mutant, is_enabled};
use libra_dataplane::{Header, Kind, NackReason, Pipeline, RegionConfig, Verdict};

use super::{DeferredReply, ProtocolViolation, Shard};
use crate::bulk::Bulk;
use crate::cluster::Ownership;
use crate::message::{Replay, RoundContents};
use crate::region::{self, Round};
use crate::role::Link;
use crate::server::journal::RecordOf;

/// The only flow of a region that is opened for a replay: that of its worker.
const FLOW: u16 = 0;

impl Shard {
    /// Takes packets for a region that no switch holds, as a switch would, whatever their tags (rule A6), and commits what it took at once
    /// (rule V6).
    pub(in crate::server) fn replay(
        &mut self,
        link: Link,
        worker: u16,
        replay: Replay,
    ) -> Result<(), ProtocolViolation> {
        let number = replay.region;
        let region = self.regions.get(&number).ok_or(ProtocolViolation)?;
        if region.ownership != (Ownership { owner: None, view_id: replay.view_id }) {
            self.statistics.fenced += 1;
            return Ok(());
        }
        self.journal.write(&RecordOf::Replay { worker, replay: &replay });
        let (view_id, below) = (replay.view_id, replay.below);
        self.apply_replay(worker, replay)?;
        self.defer(DeferredReply::Replayed { link, region: number, view_id, below });
        Ok(())
    }

    /// A violation in it is one again when it is read from the log.
    pub(in crate::server) fn apply_replay(
        &mut self,
        worker: u16,
        replay: Replay,
    ) -> Result<(), ProtocolViolation> {
        let number = replay.region;
        let region = self.regions.get(&number).ok_or(ProtocolViolation)?;
        let plan = self.cluster.plan.as_ref().expect("there are no regions without a plan");
        if worker >= self.cluster.worker_numbers() {
            return Err(ProtocolViolation);
        }
        let mut seen = RoundContents::default();
        if let Some(flow) = region.contents.flows.get(&worker)
            && !is_enabled(Mutant::ColdReplayWithoutDedup)
        {
            seen.flows.insert(FLOW, flow.clone());
        }
        let config = region::config(&self.cluster, plan, &region.layout, region.ownership);
        let config = RegionConfig { flows: 1, ..config };
        let opened = region::open(config, region::on_wire(region.committed), &seen);
        let mut pipeline = Pipeline::new(vec![opened]).expect("it is one region");
        for Bulk(mut packet) in replay.packets {
            let header = Header::parse_without_entries(&packet).map_err(|_| ProtocolViolation)?;
            if header.kind != Kind::Push || header.worker != worker || header.region != number {
                return Err(ProtocolViolation);
            }
            let request = packet.clone();
            let mut answer = execute(&mut pipeline, &mut packet)?;
            if answer.nack_reason() == Some(NackReason::BankFull) {
                self.commit_own(number, worker, &mut pipeline);
                packet = request;
                answer = execute(&mut pipeline, &mut packet)?;
            }
            if answer.kind != Kind::Ack {
                return Err(ProtocolViolation);
            }
        }
        self.commit_own(number, worker, &mut pipeline);
        self.statistics.replays += 1;
        Ok(())
    }

    fn commit_own(
        &mut self,
        number: u8,
        worker: u16,
        pipeline: &mut Pipeline<Vec<region::SoftRegion>, Vec<u32>>,
    ) {
        let opened = pipeline.region_mut(self.cluster.job, number).expect("it was opened with this number");
        if opened.active_packets().pushes == 0 {
            return;
        }
        let Round { contents, slots, sums } = region::close_round(opened);
        let lanes = self.cluster.hot_path.lanes;
        let touched = self.regions[&number].touched_rows(lanes, &slots, sums.len());
        self.apply_sums(number, &touched.expect("the region has the layout's slots"), &sums);
        let region = self.region_mut(number);
        region.committed += 1;
        region.contents.flows.extend(contents.flows.into_values().map(|seen| (worker, seen)));
        self.statistics.rounds += 1;
    }
}

/// Returns the answer of a pipeline to a packet.
fn execute(
    pipeline: &mut Pipeline<Vec<region::SoftRegion>, Vec<u32>>,
    packet: &mut [u8],
) -> Result<Header, ProtocolViolation> {
    match pipeline.process_of_flow(FLOW, packet) {
        Verdict::Reply(length) => {
            Header::parse_without_entries(&packet[..length]).map_err(|_| ProtocolViolation)
        }
        Verdict::Drop(_) => Err(ProtocolViolation),
    }
}
