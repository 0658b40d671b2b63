//! Handling of the messages on the streams of a node.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Shared, State};
use crate::mesh::control::Control;
use crate::mesh::error::MeshError;
use crate::mesh::link::{Link, LinkEvents};
use crate::mesh::message::{Payload, Received};
use crate::mesh::scheduler::Joined;

impl Shared {
    fn joined(&self, state: &mut State, link: &Link, joined: Joined) {
        match joined {
            Joined::Waiting => {}
            Joined::Refused(reason) => link.send_control(&Control::Refused { reason }),
            Joined::Complete => {
                let (envelopes, roster) = match &state.scheduler {
                    Some(scheduler) => (scheduler.rosters(), scheduler.roster().cloned()),
                    None => return,
                };
                for (stream, control) in &envelopes {
                    let link = stream.and_then(|stream| state.links.get(&stream));
                    if let (Some(link), Control::Roster(roster)) = (link, control) {
                        link.set_peer(roster.you);
                        self.route(roster.you, link);
                    }
                }
                state.roster = roster;
                self.send_all(state, envelopes);
            }
        }
    }
}

impl LinkEvents for Shared {
    fn control(&self, link: &Arc<Link>, control: Control) {
        self.mailbox.note(2, &format_args!("control: {control:?}"));
        match control {
            Control::Join(join) => {
                let address = link.remote_host().unwrap_or_default();
                let what = join.role;
                self.mailbox.note(1, &format_args!("a {what} has come from {address}"));
                let mut state = self.state.lock();
                let joined =
                    state.scheduler.as_mut().map(|scheduler| scheduler.join(link.number, join, address));
                if let Some(joined) = joined {
                    self.joined(&mut state, link, joined);
                }
            }
            Control::JoinAgain => {
                let mut state = self.state.lock();
                let joined = state.scheduler.as_mut().map(|scheduler| scheduler.join_again(link.number));
                if let Some(joined) = joined {
                    self.joined(&mut state, link, joined);
                }
            }
            Control::Roster(roster) => {
                self.id.store(roster.you, Ordering::Release);
                self.mailbox
                    .note(1, &format_args!("all processes are there, and this is node {}", roster.you));
                let mut state = self.state.lock();
                for link in state.links.values() {
                    link.set_sender(roster.you);
                }
                state.roster = Some(roster);
                self.changed.notify_all();
            }
            Control::Hello { from } => {
                // No other number is in the roster, and to keep a route to any number that a stranger sends would fill the memory.
                if !self.is_numbered(from) {
                    return;
                }
                link.set_peer(from);
                self.route(from, link);
                let _state = self.state.lock();
                self.changed.notify_all();
            }
            Control::Barrier { group } => {
                let mut state = self.state.lock();
                // A process that has died may have come before, and nothing opens for those that remain: all of them are told the same.
                if state.failure.is_some() {
                    return;
                }
                let envelopes =
                    state.scheduler.as_mut().map(|scheduler| scheduler.barrier(group)).unwrap_or_default();
                self.send_all(&mut state, envelopes);
            }
            Control::Bye => {
                self.mailbox.note(1, &format_args!("{} has finalized", self.name_of(link)));
                let mut state = self.state.lock();
                let envelopes = state
                    .scheduler
                    .as_mut()
                    .map(|scheduler| scheduler.leave(link.number))
                    .unwrap_or_default();
                self.send_all(&mut state, envelopes);
                // A process that leaves because another has died is not the cause.
                let has_failed = state.failure.is_some();
                drop(state);
                if let Some(node) = link.peer().filter(|_| !has_failed) {
                    self.mailbox.left(node, &MeshError::Left { peer: self.name_of(link) });
                }
            }
            Control::Died { node, peer, reason } => {
                self.fail(node, MeshError::Died { peer, reason: reason.clone() }, &reason);
            }
            said @ (Control::Released { .. } | Control::BarrierFailed { .. } | Control::Refused { .. }) => {
                Self::take_note(&mut self.state.lock(), &said);
                self.changed.notify_all();
            }
        }
    }

    fn application(&self, received: Received) -> Option<Payload> {
        self.mailbox.note(2, &format_args!("from {}: {:?}", received.sender, received.meta));
        self.mailbox.deliver(received)
    }

    fn ended(&self, link: &Arc<Link>, reason: &io::Error) {
        self.link_broke(link, reason);
        let mut state = self.state.lock();
        let has_joined = match &state.scheduler {
            Some(scheduler) => scheduler.has_joined(link.number),
            None => link.peer().is_some(),
        };
        // Of a stranger nothing stays, its socket neither.
        if !has_joined && !self.closing.load(Ordering::Acquire) {
            state.links.remove(&link.number);
            drop(state);
            if reason.kind() != io::ErrorKind::UnexpectedEof {
                self.turn_away(link.remote_host().unwrap_or_default(), reason);
            }
        }
    }
}
