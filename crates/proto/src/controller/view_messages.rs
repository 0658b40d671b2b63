//! The messages about the cluster in its present view that members are sent: made once for each kind, since they are many.

use crate::cluster::{Cluster, View};
use crate::message::Kind;
use crate::shared::Shared;

/// Made when it is first sent. It is of one view: the next begins with none.
#[derive(Debug, Clone, Default)]
pub(super) struct ViewMessages {
    servers: OfKind,
    switches: OfKind,
    workers: OfKind,
}

#[derive(Debug, Clone, Default)]
struct OfKind {
    view: Option<Shared<View>>,
    cluster: Option<Shared<Cluster>>,
}

impl ViewMessages {
    fn of(&mut self, kind: Kind) -> &mut OfKind {
        match kind {
            Kind::Server => &mut self.servers,
            Kind::Switch => &mut self.switches,
            Kind::Worker => &mut self.workers,
        }
    }

    /// For a member that has started.
    pub(super) fn view(&mut self, cluster: &Cluster, kind: Kind) -> Shared<View> {
        self.of(kind).view.get_or_insert_with(|| cluster.view.of(kind).into()).clone()
    }

    /// For one that starts.
    pub(super) fn cluster(&mut self, cluster: &Cluster, kind: Kind) -> Shared<Cluster> {
        let make = || Cluster { view: cluster.view.of(kind), ..cluster.clone() }.into();
        self.of(kind).cluster.get_or_insert_with(make).clone()
    }
}
