//! The messages about the cluster in its present view that members are sent: made once for each kind, since they are many, but for what has
//! secrets of one member.

use super::members::kind_of;
use crate::authentication::TagKind;
use crate::cluster::{Cluster, Peer, View};
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
    pub(super) fn view(&mut self, cluster: &Cluster, member: Peer) -> Shared<View> {
        let make = || cluster.view_of(member).into();
        // The paths of each worker have secrets of their own.
        if cluster.hot_path.tags != TagKind::Off && matches!(member, Peer::Worker(_)) {
            return make();
        }
        self.of(kind_of(member)).view.get_or_insert_with(make).clone()
    }

    /// For one that starts.
    pub(super) fn cluster(&mut self, cluster: &Cluster, member: Peer) -> Shared<Cluster> {
        let make = || cluster.of(member).into();
        if cluster.secret.is_some() && !matches!(member, Peer::Server(_)) {
            return make();
        }
        self.of(kind_of(member)).cluster.get_or_insert_with(make).clone()
    }
}
