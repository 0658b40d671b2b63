//! A switch whose data plane does later what its agent asks, as one in a device does: packets come in between.

use core::net::SocketAddr;
use std::collections::VecDeque;

use libra_dataplane::RegionConfig;
use libra_proto::{Device, Executor, Order, Outgoing, Plane, Report, SoftPlane};

use crate::random::Random;

/// The pipeline in software, behind a queue of orders.
#[derive(Debug)]
pub struct LateDevice {
    executor: Executor<SoftPlane>,
    orders: VecDeque<Order>,
    random: Random,
}

impl LateDevice {
    pub(crate) fn new(random: Random) -> Self {
        Self { executor: Executor::new(SoftPlane::default()), orders: VecDeque::new(), random }
    }
}

impl Device for LateDevice {
    fn check(&self, config: &RegionConfig) -> Result<(), String> {
        SoftPlane::default().check(config)
    }

    fn order(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    fn report(&mut self, known: &mut Report) {
        // It has come as far as it has: often nowhere, and now and then to the end.
        let open = self.orders.len() as u64;
        let done = *self.random.pick(&[0, 0, 1, open]);
        let now = usize::try_from(done.min(open)).unwrap_or(0);
        self.orders.drain(..now).for_each(|order| self.executor.carry_out(order));
        self.executor.look();
        known.take_over(self.executor.report());
    }

    fn handle_datagrams(
        &mut self,
        from: SocketAddr,
        datagrams: &mut [u8],
        stride: usize,
        answers: &mut Outgoing,
    ) {
        self.executor.plane().handle_datagrams(from, datagrams, stride, answers);
    }
}
