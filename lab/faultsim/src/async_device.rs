//! A switch whose data plane does later what its agent asks, as one in a device does: packets come in between.

use core::net::SocketAddr;
use std::collections::VecDeque;

use libra_dataplane::RegionConfig;
use libra_p4::{P4Plane, Sizes, Sums};
use libra_plan::Placement;
use libra_proto::{
    ArithmeticMode, Cluster, Device, Executor, Order, Outgoing, Plane, Report, SoftPlane, TagKind,
};

use crate::random::Random;
use crate::scenario::Scenario;

/// A plane behind a queue of orders.
#[derive(Debug)]
pub struct DelayedDevice<P> {
    executor: Executor<P>,
    orders: VecDeque<Order>,
    random: Random,
}

impl<P: Plane> DelayedDevice<P> {
    pub(crate) fn new(plane: P, random: Random) -> Self {
        Self { executor: Executor::new(plane), orders: VecDeque::new(), random }
    }
}

impl<P: Plane> Device for DelayedDevice<P> {
    fn check(&self, _: &RegionConfig) -> Result<(), String> {
        // Who makes it has made sure.
        Ok(())
    }

    fn tags(&self) -> TagKind {
        self.executor.tags()
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

/// The pipeline in software, late.
pub type DelayedSoft = DelayedDevice<SoftPlane>;
/// The P4 program, late.
pub type DelayedP4 = DelayedDevice<P4Plane<libra_p4model::Switch>>;

/// The sizes of a P4 program for a job; `None` if there is none, or not all its regions have room in one switch.
pub(crate) fn p4_sizes(scenario: &Scenario) -> Option<Sizes> {
    let cluster = Cluster { shares: scenario.places, ..scenario.cluster() };
    let hot_path = &cluster.hot_path;
    let plan = cluster.plan.as_ref()?;
    let bound = plan.bound() + 1;
    let lanes = hot_path.lanes;
    let is_sound = (2..=16).contains(&lanes)
        && hot_path.arithmetic == ArithmeticMode::Fixed
        && bound.is_power_of_two()
        && plan.pushes_per_bank_max() <= 0xffff;
    let placement =
        Placement::new(plan, scenario.shards(), hot_path.region_slots()).ok().filter(|_| is_sound)?;
    let sizes = Sizes {
        lanes,
        sums: Sums::Fixed { bound_bits: u8::try_from(bound.ilog2()).ok()? },
        ..Sizes::default()
    };
    sizes.check().ok()?;
    let cells = placement.regions().iter().map(|region| usize::from(region.cells(lanes)).next_power_of_two());
    let flows = placement.regions().len() * usize::from(cluster.worker_numbers()).next_power_of_two();
    // Rooms are powers of two where they may be, so half of what there is need not be enough.
    (cells.sum::<usize>() <= sizes.cells() / 2 && flows <= sizes.flows()).then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_scenarios_have_a_p4_switch() {
        let scenarios = (0..1000).map(Scenario::draw);
        let with_p4 = scenarios.filter(|scenario| scenario.has_async_devices && p4_sizes(scenario).is_some());
        let count = with_p4.filter(|scenario| scenario.sizes.switches > 0).count();
        assert!(count >= 20, "{count}");
    }
}
