//! All members of a cluster, as far as its controller sees them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use libra_plan::{Budget, HotRow, Plan, Provenance, Scale, TableShape};
use libra_proto::{
    Action, Cluster, Controller, ControllerEvent, HotPath, Instant, Join, Kind, Link, LinkEvent, Message,
    Role, Sizes, TagKind, VERSION,
};
use libra_store::{Init, Optimizer, TableSpec};
use serde::Serialize;

use super::Crowd;
use crate::bench::usage::{processor_time, resident_bytes};

/// Datagrams of switches wait in a buffer as large as this.
const RECEIVE_BYTES: u32 = 8 << 20;

/// Cost to the controller of one message to every member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Cost {
    /// Time of the processor.
    pub(super) milliseconds: f64,
    /// Of all messages, encoded.
    pub(super) bytes: u64,
    /// The largest message to the first member of each kind.
    pub(super) server_bytes: u64,
    pub(super) switch_bytes: u64,
    pub(super) worker_bytes: u64,
    /// Of frames that the controller has made before the first receiver can read one, at most.
    pub(super) waiting_bytes: u64,
    /// Of this process while they wait, beyond what it had before the cluster, at most.
    pub(super) resident_bytes: u64,
}

pub(super) struct ControllerHarness {
    crowd: Crowd,
    controller: Controller,
    kinds: BTreeMap<Link, Kind>,
    now: Instant,
    /// Memory of this process before the cluster.
    resident_before: u64,
    cost: Cost,
}

/// A job with as many hot rows.
pub(super) fn cluster(crowd: Crowd, hot_rows: u64) -> Cluster {
    let rule = Optimizer::Sgd { rate: 1.0 }.into();
    let table = TableSpec { name: "rows".into(), keys: 0..2 * hot_rows, width: 1, rule, init: Init::Zero };
    let shape = TableShape { name: table.name.clone(), keys: table.keys.clone(), width: 1, hot: true };
    let plan = Plan {
        number: 1,
        provenance: Provenance { tool: "libra-lab bench controller".to_owned(), ..Provenance::default() },
        tables: vec![shape],
        budget: Budget::default(),
        headroom_bits: 12,
        predicted_share: 0.5,
        rows: (0..hot_rows).map(|key| HotRow { key, count: 2 * hot_rows - key, scale: Scale(0) }).collect(),
    };
    Cluster::new(1, vec![table], Some(plan), HotPath::for_workers(crowd.workers))
}

/// Address of a member.
pub(super) fn address(number: u32) -> SocketAddr {
    let [_, _, high, low] = number.to_be_bytes();
    SocketAddr::from(([10, 1, high, low], 7000))
}

impl ControllerHarness {
    pub(super) fn new(crowd: Crowd, hot_rows: u64) -> Self {
        let resident_before = resident_bytes().unwrap_or(0);
        let sizes = Sizes { servers: crowd.servers, switches: crowd.switches, workers: crowd.workers };
        Self {
            crowd,
            controller: Controller::new(sizes, cluster(crowd, hot_rows)),
            kinds: BTreeMap::new(),
            now: Instant::ZERO + Duration::from_secs(1),
            resident_before,
            cost: Cost::default(),
        }
    }

    /// All members join and are started.
    pub(super) fn start(&mut self) -> Result<Cost> {
        self.cost = Cost::default();
        let Crowd { servers, switches, workers, .. } = self.crowd;
        for (kind, count) in [(Kind::Server, servers), (Kind::Switch, switches), (Kind::Worker, workers)] {
            for _ in 0..count {
                self.join(kind)?;
            }
        }
        let has_started = |event: &ControllerEvent| *event == ControllerEvent::Started;
        self.await_event(has_started).context("the cluster did not start")
    }

    /// A standby joins, and all members receive the view.
    pub(super) fn change_view(&mut self) -> Result<Cost> {
        self.cost = Cost::default();
        self.join(Kind::Switch)?;
        let is_settled = |event: &ControllerEvent| matches!(event, ControllerEvent::Settled { .. });
        self.await_event(is_settled).context("the view did not reach all members")
    }

    fn await_event(&mut self, is_it: impl Fn(&ControllerEvent) -> bool) -> Result<Cost> {
        while let Some(event) = self.controller.poll_event() {
            if is_it(&event) {
                return Ok(self.cost);
            }
        }
        bail!("the controller has reported no such event")
    }

    /// A process joins, and everything that follows from it.
    fn join(&mut self, kind: Kind) -> Result<()> {
        let number = u32::try_from(self.kinds.len())?;
        let (link, at) = (Link(Link::ACCEPTED + u64::from(number)), address(number));
        self.kinds.insert(link, kind);
        let (stream, datagrams) = if kind == Kind::Server { (Some(at), None) } else { (None, Some(at)) };
        let (is_restartable, is_slow, receive_bytes) = (false, false, RECEIVE_BYTES);
        let join = Join {
            version: VERSION,
            kind,
            stream,
            shards: 1,
            datagrams,
            receive_bytes,
            is_restartable,
            is_slow,
            tags: TagKind::Mac,
            http: None,
        };
        let frame = Message::Join(join).encode();
        let began = processor_time();
        self.controller.handle_link(self.now, link, LinkEvent::Opened { remote: at });
        self.cost.milliseconds += milliseconds(processor_time() - began);
        self.deliver(vec![(link, frame)])
    }

    /// Delivers messages to the controller, and the answers of its members, until none is left.
    fn deliver(&mut self, mut frames: Vec<(Link, Vec<u8>)>) -> Result<()> {
        while !frames.is_empty() {
            let began = processor_time();
            for (link, frame) in frames.drain(..) {
                let message = Message::decode(&frame)?;
                self.controller.handle_message(self.now, link, message);
            }
            // Its messages wait in frames until the streams take them.
            let (mut waiting, mut answered) = (Vec::new(), Vec::new());
            while let Some(action) = self.controller.poll_action() {
                let Action::Send { link, message } = action else { bail!("the controller closes a stream") };
                let frame = message.encode();
                answered.push((link, viewed(&message)));
                waiting.push((link, frame));
            }
            self.cost.milliseconds += milliseconds(processor_time() - began);
            self.count(&waiting)?;
            let answers = answered.into_iter().filter_map(|(link, answer)| Some((link, answer?.encode())));
            frames = answers.collect();
        }
        Ok(())
    }

    fn count(&mut self, waiting: &[(Link, Vec<u8>)]) -> Result<()> {
        let cost = &mut self.cost;
        let mut together = 0;
        for (link, frame) in waiting {
            let bytes = u64::try_from(frame.len())?;
            together += bytes;
            let kind = *self.kinds.get(link).context("a message to no member")?;
            let first = self.kinds.iter().find(|(_, other)| **other == kind);
            if first.is_some_and(|(first, _)| first == link) {
                let largest = match kind {
                    Kind::Server => &mut cost.server_bytes,
                    Kind::Switch => &mut cost.switch_bytes,
                    Kind::Worker => &mut cost.worker_bytes,
                };
                *largest = bytes.max(*largest);
            }
        }
        cost.bytes += together;
        if together > cost.waiting_bytes {
            cost.waiting_bytes = together;
            cost.resident_bytes = resident_bytes()?.saturating_sub(self.resident_before);
        }
        Ok(())
    }
}

/// Answer of a member.
fn viewed(message: &Message) -> Option<Message> {
    let number = match message {
        Message::Start(start) => start.cluster.view.number,
        Message::View(view) => view.number,
        _ => return None,
    };
    Some(Message::Viewed { number })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
