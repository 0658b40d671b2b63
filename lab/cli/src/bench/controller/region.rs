//! One region of such a cluster at its owner, a switch in software.

use core::time::Duration;

use anyhow::{Context, Result};
use libra_dataplane::Kind as PacketKind;
use libra_dataplane::{Flags, Header, PacketWriter, packet_bytes};
use libra_proto::{
    Action, Adopted, Committed, Drained, Instant, Link, LinkEvent, Message, Ownership, Peer,
    ROUNDS_BEGIN_AFTER, Role, RoundContents, SlotValues, Start, Statistics, Switch, View,
};
use serde::Serialize;

use super::Crowd;
use super::harness::{address, cluster};

const REGION: u8 = 0;
const VIEW_ID: u64 = 1;
/// With more packets the round would be closed before all have sent.
const SENDERS_MAX: u16 = 1024;

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct RegionCost {
    /// Memory of its slots and windows.
    pub(super) memory_bytes: u64,
    /// Number of workers that send a packet in a round.
    pub(super) senders: u16,
    /// That round, as a message.
    pub(super) full_round_bytes: usize,
    /// The round after it, with one packet of one worker.
    pub(super) round_bytes: usize,
}

/// A switch that holds the region, and the streams that it has opened.
struct Owner {
    role: Switch,
    now: Instant,
    crowd: Crowd,
}

impl RegionCost {
    pub(super) fn measure(crowd: Crowd, hot_rows: u64) -> Result<Self> {
        let mut owner = Owner::new(crowd, hot_rows)?;
        let senders = crowd.workers.min(SENDERS_MAX);
        (0..senders).for_each(|worker| owner.push(worker, 0));
        let full_round_bytes = owner.round()?;
        owner.push(0, 1);
        let round_bytes = owner.round()?;
        Ok(Self { memory_bytes: owner.memory_bytes()?, senders, full_round_bytes, round_bytes })
    }
}

impl Owner {
    /// One switch and one server, and the workers of the crowd.
    fn new(crowd: Crowd, hot_rows: u64) -> Result<Self> {
        let at = address(1);
        let role = Switch::new(at, 8 << 20);
        let mut owner = Self { role, now: Instant::ZERO + Duration::from_secs(1), crowd };
        owner.role.handle_start(owner.now);
        let to_controller = owner.opened()?;
        let mut cluster = cluster(crowd, hot_rows);
        cluster.shares = crowd.workers;
        let ownership = Ownership { owner: Some(0), view_id: VIEW_ID };
        cluster.view = View {
            number: VIEW_ID,
            servers: vec![address(2)],
            switches: [(0, at)].into(),
            workers: (0..crowd.workers).map(|worker| (worker, worker_address(worker))).collect(),
            ownerships: vec![ownership; usize::from(u8::MAX)],
            next_switch: 1,
            next_worker: crowd.workers,
            ..View::default()
        };
        let start = Start { you: Peer::Switch(0), share: 0, barrier: 0, cluster: cluster.into() };
        let now = owner.now;
        owner.role.handle_message(now, to_controller, Message::Start(Box::new(start)));
        let to_server = owner.opened()?;
        let (round, change) = (ROUNDS_BEGIN_AFTER, 0);
        let (contents, values) = (RoundContents::default(), SlotValues::default());
        let adopted = Adopted { region: REGION, view_id: VIEW_ID, round, contents, change, values };
        owner.role.handle_message(now, to_server, Message::Adopted(adopted));
        Ok(owner)
    }

    /// Lets the next stream that it opens be open.
    fn opened(&mut self) -> Result<Link> {
        while let Some(action) = self.role.poll_action() {
            if let Action::Connect { link, .. } = action {
                self.role.handle_link(self.now, link, LinkEvent::Opened { remote: address(0) });
                return Ok(link);
            }
        }
        anyhow::bail!("the switch opens no stream")
    }

    fn push(&mut self, worker: u16, seq: u32) {
        let header = Header {
            flags: Flags::LAST,
            job: 1,
            worker,
            plan: 1,
            view: u16::try_from(VIEW_ID).unwrap_or_default(),
            seq,
            ..Header::of_kind(PacketKind::Push)
        };
        let mut packet = vec![0; packet_bytes(1)];
        let mut writer = PacketWriter::new(header, &mut packet);
        let _fits = writer.push(0, 1);
        let bytes = writer.finish();
        self.role.handle_datagrams(self.now, worker_address(worker), &mut packet, bytes);
    }

    /// The round that holds all pushes so far, encoded; then it is committed.
    fn round(&mut self) -> Result<usize> {
        self.now = self.now + Duration::from_millis(50);
        self.role.handle_timeout(self.now);
        while let Some(action) = self.role.poll_action() {
            let Action::Send { link, message } = action else { continue };
            let bytes = message.encode().len();
            if let Message::Drained(drained) = message
                && let Drained { region: REGION, round, .. } = *drained
            {
                let values = SlotValues::default();
                let committed = Committed { region: REGION, view_id: VIEW_ID, round, values };
                self.role.handle_message(self.now, link, Message::Committed(committed));
                return Ok(bytes);
            }
        }
        anyhow::bail!("the switch closes no round with pushes of {} workers", self.crowd.workers)
    }

    fn memory_bytes(&mut self) -> Result<u64> {
        self.role.handle_message(self.now, Link(0), Message::Probe { number: 1 });
        let heartbeat = core::iter::from_fn(|| self.role.poll_action()).find_map(|action| match action {
            Action::Send {
                message: Message::Heartbeat { statistics: Statistics::Switch(counts), .. },
                ..
            } => Some(counts.memory_bytes),
            _ => None,
        });
        heartbeat.context("the switch does not answer a probe")
    }
}

fn worker_address(worker: u16) -> core::net::SocketAddr {
    address(16 + u32::from(worker))
}
