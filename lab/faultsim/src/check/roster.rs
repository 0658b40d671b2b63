//! Identities of the processes, and owners of the regions: read off the messages of the controller.

use std::collections::{BTreeMap, BTreeSet};

use libra_proto::{Kind, Ownership, Peer, View};

use super::Verdict;
use crate::network::Host;
use crate::process::Actor;

/// The members of a cluster by the hosts they are on, and the views that there have been.
#[derive(Debug, Default)]
pub struct Roster {
    /// The member that a process is, or was.
    peers: BTreeMap<Actor, Peer>,
    /// The members that it was before, too.
    were: BTreeSet<(Actor, Peer)>,
    /// The number of the newest view that arrived at a process.
    acts_on: BTreeMap<Actor, u64>,
    views: BTreeMap<u64, View>,
    /// By region and view as it is on the wire: who holds the region, and since when.
    ownerships: BTreeMap<(u8, u16), Ownership>,
}

impl Roster {
    /// Returns the member that a process is, or was.
    pub fn peer(&self, actor: Actor) -> Option<Peer> {
        self.peers.get(&actor).copied()
    }

    /// The host of a member.
    pub fn host(&self, peer: Peer) -> Option<Host> {
        self.peers.iter().find(|(_, other)| **other == peer).map(|(actor, _)| actor.host)
    }

    /// The number of the newest view that arrived at a process.
    pub fn acts_on(&self, actor: Actor) -> Option<u64> {
        self.acts_on.get(&actor).copied()
    }

    /// A view that was made.
    pub fn view(&self, number: u64) -> Option<&View> {
        self.views.get(&number)
    }

    /// The newest view that was made.
    pub fn newest(&self) -> Option<&View> {
        self.views.last_key_value().map(|(_, view)| view)
    }

    /// Number of views so far.
    pub fn views(&self) -> usize {
        self.views.len()
    }

    pub(super) fn ownership_on_wire(&self, region: u8, view: u16) -> Option<Ownership> {
        self.ownerships.get(&(region, view)).copied()
    }

    // rules V1, V3, V11
    /// A view reaches a member. A number names one view only, of which each kind receives its part, servers first; and on the wire
    /// the view ids of a region differ.
    ///
    /// None is older than what the member acts on: that would be of a controller whose cluster another one has.
    ///
    /// A view that no member received from one controller may be made by another with different contents.
    pub(super) fn view_arrives(&mut self, actor: Actor, view: &View) -> Verdict {
        let newest = self.acts_on.entry(actor).or_default();
        if view.number < *newest {
            return Err(format!("a member is told view {:#x}, and acts on {newest:#x}", view.number));
        }
        *newest = view.number;
        let kind = match self.peers.get(&actor) {
            Some(Peer::Switch(_)) => Kind::Switch,
            Some(Peer::Worker(_)) => Kind::Worker,
            Some(Peer::Server(_) | Peer::Controller) | None => Kind::Server,
        };
        if let Some(before) = self.views.get(&view.number) {
            // The numbers that newcomers get are no part of it: they may count on meanwhile. Each worker has secrets of its own.
            let View { next_switch, next_worker, ref paths, .. } = *view;
            let told = View { next_switch, next_worker, paths: paths.clone(), ..before.of(kind) };
            return if told == *view {
                Ok(())
            } else {
                Err(format!("{before:?} and {view:?} have one number"))
            };
        }
        if kind != Kind::Server {
            return Err(format!("view {:#x} reaches a {kind} before any server", view.number));
        }
        for (region, ownership) in (0u8..).zip(&view.ownerships) {
            if ownership.view_id > view.number {
                return Err(format!("region {region} is held since a view after {:#x}", view.number));
            }
            let before = self.ownerships.insert((region, ownership.view_on_wire()), *ownership);
            if let Some(before) = before.filter(|before| before != ownership) {
                return Err(format!(
                    "region {region}: {before:?} and {ownership:?} are the same on the wire"
                ));
            }
        }
        self.views.insert(view.number, view.clone());
        Ok(())
    }

    /// True if a process is this member, or was.
    pub(super) fn was(&self, actor: Actor, peer: Peer) -> bool {
        self.were.contains(&(actor, peer))
    }

    pub(super) fn started(&mut self, actor: Actor, you: Peer) {
        self.were.insert((actor, you));
        self.peers.insert(actor, you);
        self.acts_on.remove(&actor);
    }

    pub(super) fn controller_starts(&mut self, actor: Actor) {
        self.peers.insert(actor, Peer::Controller);
    }
}
