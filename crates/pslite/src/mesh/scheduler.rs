//! The scheduler's state: processes that have joined or left, and barriers. It only computes.

use std::collections::{BTreeMap, BTreeSet};

use super::control::{Control, Join};
use super::roster::{Member, NodeRole, Roster, SCHEDULER, ids_of, is_in, server_id, worker_id};

/// The number of a stream to a process.
pub(super) type Stream = u64;

/// A message to send, and its stream; the scheduler's own process is `None`.
pub(super) type Envelope = (Option<Stream>, Control);

/// The result of a request to join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Others are still missing.
    Waiting,
    /// All processes are there.
    Complete,
    /// There is no place for it, and why.
    Refused(String),
}

#[derive(Debug)]
pub(super) struct Scheduler {
    workers: u16,
    servers: u16,
    /// Text for all processes.
    notice: String,
    /// Processes that have joined, in this order.
    arrived: Vec<Arrival>,
    roster: Option<Roster>,
    /// Number of nodes that have come to the barrier of a group.
    barriers: BTreeMap<i32, usize>,
    /// First nodes of processes that have left.
    left: BTreeSet<i32>,
}

#[derive(Debug, Clone)]
struct Arrival {
    stream: Stream,
    role: NodeRole,
    host: String,
    port: u16,
}

impl Scheduler {
    pub(super) fn new(workers: u16, servers: u16, notice: String) -> Self {
        let (arrived, barriers, left) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { workers, servers, notice, arrived, roster: None, barriers, left }
    }

    pub(super) fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    /// A process wants to join, from this address.
    pub(super) fn join(&mut self, stream: Stream, join: Join, address: String) -> Joined {
        if (join.workers, join.servers) != (self.workers, self.servers) {
            return Joined::Refused(format!(
                "it was started for {} workers and {} servers, and the scheduler for {} and {}",
                join.workers, join.servers, self.workers, self.servers
            ));
        }
        let host = join.host.unwrap_or(address);
        self.arrive(Arrival { stream, role: join.role, host, port: join.port })
    }

    /// A process has one more customer.
    pub(super) fn join_again(&mut self, stream: Stream) -> Joined {
        match self.arrived.iter().find(|arrival| arrival.stream == stream).cloned() {
            Some(arrival) => self.arrive(arrival),
            None => Joined::Refused("it never joined".to_owned()),
        }
    }

    fn arrive(&mut self, arrival: Arrival) -> Joined {
        let room = match arrival.role {
            NodeRole::Worker => self.workers,
            NodeRole::Server => self.servers,
            NodeRole::Scheduler => 0,
        };
        let there = self.arrived.iter().filter(|other| other.role == arrival.role).count();
        if there >= usize::from(room) {
            return Joined::Refused(format!("there is no place for another {}", arrival.role));
        }
        self.arrived.push(arrival);
        if self.arrived.len() < usize::from(self.workers) + usize::from(self.servers) {
            return Joined::Waiting;
        }
        self.complete();
        Joined::Complete
    }

    fn complete(&mut self) {
        let (mut workers, mut servers) = (0, 0);
        let mut owners: BTreeMap<Stream, i32> = BTreeMap::new();
        let members = self.arrived.iter().map(|arrival| {
            let (count, id): (&mut u16, fn(u16) -> i32) = match arrival.role {
                NodeRole::Server => (&mut servers, server_id),
                _ => (&mut workers, worker_id),
            };
            let id = id(*count);
            *count += 1;
            let owner = *owners.entry(arrival.stream).or_insert(id);
            Member { id, owner, role: arrival.role, host: arrival.host.clone(), port: arrival.port }
        });
        let members = members.collect();
        self.roster = Some(Roster { you: SCHEDULER, members, notice: self.notice.clone() });
    }

    /// Returns the message to each process once all are there.
    pub(super) fn rosters(&self) -> Vec<Envelope> {
        let Some(roster) = &self.roster else { return Vec::new() };
        let processes =
            self.arrived.iter().zip(&roster.members).filter(|(_, member)| member.id == member.owner);
        let told = processes.map(|(arrival, member)| {
            (Some(arrival.stream), Control::Roster(Roster { you: member.id, ..roster.clone() }))
        });
        told.collect()
    }

    /// Returns true if the process behind a stream has taken a place.
    pub(super) fn has_joined(&self, stream: Stream) -> bool {
        self.arrived.iter().any(|arrival| arrival.stream == stream)
    }

    /// The first node of the process behind a stream, if it has one yet.
    pub(super) fn node_of(&self, stream: Stream) -> Option<i32> {
        let position = self.arrived.iter().position(|arrival| arrival.stream == stream)?;
        self.roster.as_ref().map(|roster| roster.members[position].owner)
    }

    /// Describes the process behind a stream, in words.
    pub(super) fn name_of(&self, stream: Stream) -> String {
        let position = self.arrived.iter().position(|arrival| arrival.stream == stream);
        match (position, &self.roster) {
            (Some(position), Some(roster)) => roster.members[position].to_string(),
            (Some(position), None) => {
                let Arrival { role, host, .. } = &self.arrived[position];
                format!("a {role} at {host}, before the others came")
            }
            (None, _) => "a process that never joined".to_owned(),
        }
    }

    /// A node has come to the barrier of a group.
    pub(super) fn barrier(&mut self, group: i32) -> Vec<Envelope> {
        let Some(ids) = ids_of(group, self.workers, self.servers) else { return Vec::new() };
        *self.barriers.entry(group).or_default() += 1;
        if self.barriers[&group] == ids.len() {
            self.barriers.remove(&group);
            return self.to_group(group, &Control::Released { group });
        }
        self.fail_barriers()
    }

    /// A process leaves.
    pub(super) fn leave(&mut self, stream: Stream) -> Vec<Envelope> {
        if let Some(node) = self.node_of(stream) {
            self.left.insert(node);
        }
        self.fail_barriers()
    }

    /// Fails barriers at which nodes wait, and to which a node that has left will never come.
    fn fail_barriers(&mut self) -> Vec<Envelope> {
        let Some(roster) = &self.roster else { return Vec::new() };
        let gone: Vec<&Member> =
            roster.members.iter().filter(|member| self.left.contains(&member.owner)).collect();
        let mut envelopes = Vec::new();
        for group in self.barriers.keys().copied() {
            if let Some(member) = gone.iter().find(|member| is_in(member.id, group)) {
                let reason = format!("{member} has finalized, and will not come to the barrier");
                envelopes.extend(self.to_group(group, &Control::BarrierFailed { group, reason }));
            }
        }
        envelopes
    }

    fn to_group(&self, group: i32, control: &Control) -> Vec<Envelope> {
        let Some(roster) = &self.roster else { return Vec::new() };
        let mut streams = BTreeSet::new();
        if is_in(SCHEDULER, group) {
            streams.insert(None);
        }
        for (arrival, member) in self.arrived.iter().zip(&roster.members) {
            if is_in(member.id, group) && !self.left.contains(&member.owner) {
                streams.insert(Some(arrival.stream));
            }
        }
        streams.into_iter().map(|stream| (stream, control.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::roster::{EVERYBODY, WORKER_GROUP};
    use super::*;

    fn join(role: NodeRole) -> Join {
        Join { role, workers: 2, servers: 1, host: None, port: 7 }
    }

    fn complete() -> Scheduler {
        let mut scheduler = Scheduler::new(2, 1, "a notice".into());
        assert_eq!(scheduler.join(1, join(NodeRole::Worker), "a".into()), Joined::Waiting);
        assert_eq!(scheduler.join(2, join(NodeRole::Server), "b".into()), Joined::Waiting);
        assert_eq!(scheduler.join(3, join(NodeRole::Worker), "c".into()), Joined::Complete);
        scheduler
    }

    #[test]
    fn everybody_gets_a_number_and_hears_of_all() {
        let scheduler = complete();
        let told = scheduler.rosters();
        let Control::Roster(roster) = &told[1].1 else { panic!("{told:?}") };
        assert_eq!((told.len(), told[1].0, roster.you), (3, Some(2), 8));
        assert_eq!(roster.notice, "a notice");
        let ids: Vec<_> = roster.members.iter().map(|member| (member.id, member.host.as_str())).collect();
        assert_eq!(ids, [(9, "a"), (8, "b"), (11, "c")]);
        assert_eq!(scheduler.name_of(3), "worker 1 (node 11) at c");
    }

    #[test]
    fn customers_of_one_process_share_its_first_number() {
        let mut scheduler = Scheduler::new(2, 1, "a notice".into());
        scheduler.join(1, join(NodeRole::Worker), "a".into());
        assert_eq!(scheduler.join_again(1), Joined::Waiting);
        assert_eq!(scheduler.join(2, join(NodeRole::Server), "b".into()), Joined::Complete);
        assert_eq!(scheduler.rosters().len(), 2);
        assert_eq!(scheduler.roster().unwrap().find(11).unwrap().owner, 9);
        assert!(scheduler.barrier(WORKER_GROUP).is_empty());
        assert_eq!(scheduler.barrier(WORKER_GROUP), [(Some(1), Control::Released { group: WORKER_GROUP })]);
    }

    #[test]
    fn surplus_or_mismatched_nodes_are_refused_with_a_reason() {
        let mut scheduler = complete();
        let Joined::Refused(reason) = scheduler.join(4, join(NodeRole::Server), "d".into()) else { panic!() };
        assert_eq!(reason, "there is no place for another server");
        let other = Join { workers: 3, ..join(NodeRole::Worker) };
        let Joined::Refused(reason) = scheduler.join(4, other, "d".into()) else { panic!() };
        assert_eq!(reason, "it was started for 3 workers and 1 servers, and the scheduler for 2 and 1");
    }

    #[test]
    fn a_barrier_opens_when_all_have_come_and_again_the_next_time() {
        let mut scheduler = complete();
        for _ in 0..2 {
            for _ in 0..3 {
                assert!(scheduler.barrier(EVERYBODY).is_empty());
            }
            let streams: Vec<_> =
                scheduler.barrier(EVERYBODY).into_iter().map(|(stream, _)| stream).collect();
            assert_eq!(streams, [None, Some(1), Some(2), Some(3)]);
        }
    }

    #[test]
    fn a_barrier_of_a_node_that_has_left_fails() {
        let mut scheduler = complete();
        assert!(scheduler.barrier(WORKER_GROUP).is_empty());
        let told = scheduler.leave(3);
        let reason = "worker 1 (node 11) at c has finalized, and will not come to the barrier".to_owned();
        assert_eq!(told, [(Some(1), Control::BarrierFailed { group: WORKER_GROUP, reason })]);
    }
}
