//! The members of a mesh and their numbers: those of ps-lite, on which its applications rely.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The node of the scheduler, and the group of it alone.
pub const SCHEDULER: i32 = 1;
/// The group of all servers. Groups are added to name their union.
pub const SERVER_GROUP: i32 = 2;
/// The group of all workers.
pub const WORKER_GROUP: i32 = 4;
/// The group of all nodes.
pub const EVERYBODY: i32 = SCHEDULER + SERVER_GROUP + WORKER_GROUP;

/// Roles of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeRole {
    /// Numbers all nodes, and holds the barriers.
    Scheduler,
    /// Answers requests of workers.
    Server,
    /// Makes requests.
    Worker,
}

impl fmt::Display for NodeRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Scheduler => "scheduler",
            Self::Server => "server",
            Self::Worker => "worker",
        })
    }
}

/// The node of the server with this rank.
#[must_use]
pub fn server_id(rank: u16) -> i32 {
    2 * i32::from(rank) + 8
}

/// The node of the worker with this rank.
#[must_use]
pub fn worker_id(rank: u16) -> i32 {
    2 * i32::from(rank) + 9
}

/// The rank of a node among those of its role; 0 for the scheduler.
#[must_use]
pub fn rank_of(id: i32) -> i32 {
    ((id - 8) / 2).max(0)
}

/// The nodes of a group, or this node alone; `None` if there is neither.
#[must_use]
pub fn ids_of(group: i32, workers: u16, servers: u16) -> Option<Vec<i32>> {
    let all_workers = (0..workers).map(worker_id);
    let all_servers = (0..servers).map(server_id);
    if (1..=EVERYBODY).contains(&group) {
        let mut ids = Vec::new();
        if group & WORKER_GROUP != 0 {
            ids.extend(all_workers);
        }
        if group & SERVER_GROUP != 0 {
            ids.extend(all_servers);
        }
        if group & SCHEDULER != 0 {
            ids.push(SCHEDULER);
        }
        return Some(ids);
    }
    all_workers.chain(all_servers).find(|id| *id == group).map(|id| vec![id])
}

/// Returns true if a node is of a group, or is it.
#[must_use]
pub fn is_in(id: i32, group: i32) -> bool {
    if !(1..=EVERYBODY).contains(&group) {
        return id == group;
    }
    let of = match id {
        SCHEDULER => SCHEDULER,
        id if id % 2 == 0 => SERVER_GROUP,
        _ => WORKER_GROUP,
    };
    group & of != 0
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) id: i32,
    /// The first node of its process: several customers of one process count as a worker each.
    pub(super) owner: i32,
    pub(super) role: NodeRole,
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, role, host, port, .. } = self;
        match role {
            NodeRole::Scheduler => write!(formatter, "the scheduler at {host}:{port}"),
            NodeRole::Server => write!(formatter, "server {} (node {id}) at {host}:{port}", rank_of(*id)),
            NodeRole::Worker => write!(formatter, "worker {} (node {id}) at {host}", rank_of(*id)),
        }
    }
}

/// All processes but the scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Roster {
    /// The first node of the process that this is for.
    pub(super) you: i32,
    pub(super) members: Vec<Member>,
    /// Text that the scheduler was given for all processes.
    pub(super) notice: String,
}

impl Roster {
    pub(super) fn find(&self, id: i32) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The nodes of a role that stand for a process.
    pub(super) fn processes(&self, role: NodeRole) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.role == role && member.id == member.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ranks_and_groups_are_those_of_ps_lite() {
        assert_eq!([server_id(0), server_id(3), worker_id(0), worker_id(3)], [8, 14, 9, 15]);
        assert_eq!([SCHEDULER, 8, 9, 10, 15].map(rank_of), [0, 0, 0, 1, 3]);
        assert_eq!(ids_of(EVERYBODY, 2, 1).unwrap(), [9, 11, 8, SCHEDULER]);
        assert_eq!(ids_of(SERVER_GROUP, 2, 1).unwrap(), [8]);
        assert_eq!(ids_of(11, 2, 1).unwrap(), [11]);
        for unknown in [-1, 0, 10, 13, i32::MAX] {
            assert_eq!(ids_of(unknown, 2, 1), None);
        }
        for group in 1..=EVERYBODY {
            for id in [SCHEDULER, 8, 9, 11] {
                assert_eq!(is_in(id, group), ids_of(group, 2, 1).unwrap().contains(&id), "{id} in {group}");
            }
        }
    }
}
