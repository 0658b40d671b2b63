//! A data plane that does later what its agent asks: one in a device, which is reached by packets and commands. The agent goes
//! on meanwhile: it answers probes, and reports that something is done when it is.
//!
//! The agent asks a [`DeferredPlane`], which hands [`Order`]s to a [`Device`]; an [`Executor`] there carries them out, one after
//! the other, on a plane that takes its time; and what became of them comes back as a [`Report`].

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use libra_dataplane::{BankPackets, Counters, RegionConfig};

use crate::authentication::TagKind;
use crate::message::{RoundContents, SlotValues};
use crate::region::Round;
use crate::role::Outgoing;
use crate::switch::plane::{Plane, Progress, WorkerPath};

/// A request of an agent to a plane.
#[derive(Debug, Clone)]
pub enum Order {
    /// See [`Plane::begin`].
    Begin {
        /// The job.
        job: u16,
    },
    /// See [`Plane::set_workers`].
    SetWorkers {
        /// Each of them.
        workers: BTreeMap<u16, WorkerPath>,
    },
    /// See [`Plane::open`].
    Open {
        /// The region.
        config: RegionConfig,
        /// The newest round that is durable.
        durable: u16,
        /// Packets that were seen before.
        contents: RoundContents,
        /// When the agent wants to look at it.
        due: BankPackets,
    },
    /// See [`Plane::forget`].
    Forget {
        /// The region.
        region: u8,
    },
    /// See [`Plane::set_active`].
    SetActive {
        /// The region.
        region: u8,
        /// True if it takes pushes.
        active: bool,
    },
    /// See [`Plane::settle`].
    Settle {
        /// The region.
        region: u8,
        /// The newest round that is durable.
        durable: u16,
    },
    /// See [`Plane::install`].
    Install {
        /// The region.
        region: u8,
        /// Values of its slots.
        values: SlotValues,
    },
    /// See [`Plane::close_round`].
    CloseRound {
        /// The region.
        region: u8,
    },
}

/// Identifies one opening of a region: the number of the order that opened it.
type Opening = u64;

/// Results of orders, and the state of the plane since.
#[derive(Debug, Clone, Default)]
pub struct Report {
    done: u64,
    /// Packets that the active bank of each region has taken.
    taken: BTreeMap<u8, (Opening, BankPackets)>,
    drained: VecDeque<(u8, Opening, Round)>,
    counters: Counters,
    unknown_senders: u64,
    memory_bytes: u64,
    failure: Option<String>,
}

impl Report {
    /// Takes over the contents of a newer one, and moves its drained rounds.
    pub fn take_over(&mut self, newer: &mut Self) {
        let mut drained = core::mem::take(&mut self.drained);
        drained.append(&mut newer.drained);
        *self = Self { drained, ..newer.clone() };
    }

    /// Nothing more will be done.
    pub fn give_up(&mut self, reason: &str) {
        self.failure.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns true if an agent that has seen `known` should look at it.
    pub fn is_news_to(&self, known: &Self) -> bool {
        self.done != known.done
            || !self.drained.is_empty()
            || self.taken != known.taken
            || self.failure != known.failure
    }
}

/// Carries out orders on a plane that has done what it is asked when it returns, however long that takes.
#[derive(Debug, Clone)]
pub struct Executor<P> {
    plane: P,
    report: Report,
    opened: BTreeMap<u8, Opening>,
}

impl<P: Plane> Executor<P> {
    /// For a plane that has no job yet.
    pub fn new(plane: P) -> Self {
        Self { plane, report: Report::default(), opened: BTreeMap::new() }
    }

    /// The plane, for packets that reach it.
    pub fn plane(&mut self) -> &mut P {
        &mut self.plane
    }

    /// The best tags that the plane can check and make.
    pub fn tags(&self) -> TagKind {
        self.plane.tags()
    }

    /// Returns true if a region is open.
    pub fn has_regions(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Carries out the next order.
    pub fn carry_out(&mut self, order: Order) {
        let number = self.report.done + 1;
        match order {
            Order::Begin { job } => {
                self.opened.clear();
                self.plane.begin(job);
            }
            Order::SetWorkers { workers } => self.plane.set_workers(&workers),
            Order::Open { config, durable, contents, due } => {
                self.opened.insert(config.region, number);
                self.plane.open(config, durable, &contents, due);
            }
            Order::Forget { region } => {
                self.opened.remove(&region);
                self.plane.forget(region);
            }
            Order::SetActive { region, active } => self.plane.set_active(region, active),
            Order::Settle { region, durable } => self.plane.settle(region, durable),
            Order::Install { region, values } => self.plane.install(region, &values),
            Order::CloseRound { region } => {
                let round = self.plane.close_round(region);
                let round = round.expect("a plane that is deferred does not defer by itself");
                if self.plane.failure().is_none() {
                    self.report.drained.push_back((region, self.opened[&region], round));
                }
            }
        }
        self.report.done = number;
        self.look();
    }

    /// Looks at what the plane has taken.
    pub fn look(&mut self) {
        self.plane.clear_wakeups();
        let taken =
            self.opened.iter().map(|(&region, &opening)| (region, (opening, self.plane.taken(region))));
        self.report.taken = taken.collect();
        self.report.counters = self.plane.counters();
        self.report.unknown_senders = self.plane.unknown_senders();
        self.report.memory_bytes = self.plane.memory_bytes();
        self.report.failure = self.plane.failure();
    }

    /// Returns the report.
    pub fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}

/// Carries out orders, each once and in their order, sooner or later.
pub trait Device {
    /// Checks that it can hold a region like this.
    ///
    /// # Errors
    /// The reason, and the remedy.
    fn check(&self, config: &RegionConfig) -> Result<(), String>;

    /// The best tags that its plane can check and make.
    fn tags(&self) -> TagKind;

    /// Takes an order.
    fn order(&mut self, order: Order);

    /// Brings a report up to date.
    fn report(&mut self, known: &mut Report);

    /// Takes datagrams that came over the socket of the switch; none come for a device elsewhere.
    fn handle_datagrams(
        &mut self,
        _from: SocketAddr,
        _datagrams: &mut [u8],
        _stride: usize,
        _answers: &mut Outgoing,
    ) {
    }
}

/// A plane in a device.
#[derive(Debug, Clone)]
pub struct DeferredPlane<D> {
    device: D,
    asked: u64,
    opened: BTreeMap<u8, Opening>,
    report: Report,
}

impl<D: Device> DeferredPlane<D> {
    /// A plane in a device that has carried out no order yet.
    pub fn new(device: D) -> Self {
        Self { device, asked: 0, opened: BTreeMap::new(), report: Report::default() }
    }

    fn order(&mut self, order: Order) {
        self.asked += 1;
        self.device.order(order);
    }
}

impl<D: Device> Plane for DeferredPlane<D> {
    fn begin(&mut self, job: u16) {
        self.opened.clear();
        self.order(Order::Begin { job });
    }

    fn set_workers(&mut self, workers: &BTreeMap<u16, WorkerPath>) {
        self.order(Order::SetWorkers { workers: workers.clone() });
    }

    fn tags(&self) -> TagKind {
        self.device.tags()
    }

    fn check(&self, config: &RegionConfig) -> Result<(), String> {
        self.device.check(config)
    }

    fn open(&mut self, config: RegionConfig, durable: u16, contents: &RoundContents, due: BankPackets) {
        let region = config.region;
        self.order(Order::Open { config, durable, contents: contents.clone(), due });
        self.opened.insert(region, self.asked);
    }

    fn forget(&mut self, region: u8) {
        if self.opened.remove(&region).is_some() {
            self.order(Order::Forget { region });
        }
    }

    fn set_active(&mut self, region: u8, active: bool) {
        self.order(Order::SetActive { region, active });
    }

    fn settle(&mut self, region: u8, durable: u16) {
        self.order(Order::Settle { region, durable });
    }

    fn install(&mut self, region: u8, values: &SlotValues) {
        self.order(Order::Install { region, values: values.clone() });
    }

    fn clear_wakeups(&mut self) {
        self.device.report(&mut self.report);
    }

    fn taken(&self, region: u8) -> BankPackets {
        let taken = self.report.taken.get(&region);
        let taken = taken.filter(|(opening, _)| self.opened.get(&region) == Some(opening));
        taken.map(|(_, taken)| *taken).unwrap_or_default()
    }

    fn close_round(&mut self, region: u8) -> Option<Round> {
        self.order(Order::CloseRound { region });
        None
    }

    fn drained(&mut self) -> Option<(u8, Round)> {
        loop {
            let (region, opening, round) = self.report.drained.pop_front()?;
            // The contents of a region that was released meanwhile are for its present owner to bring.
            if self.opened.get(&region) == Some(&opening) {
                return Some((region, round));
            }
        }
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn progress(&self) -> Progress {
        Progress { asked: self.asked, done: self.report.done }
    }

    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    ) {
        self.device.handle_datagrams(from, datagrams, stride, answers);
    }

    fn counters(&self) -> Counters {
        self.report.counters
    }

    fn unknown_senders(&self) -> u64 {
        self.report.unknown_senders
    }

    fn memory_bytes(&self) -> u64 {
        self.report.memory_bytes
    }

    fn failure(&self) -> Option<String> {
        self.report.failure.clone()
    }
}
