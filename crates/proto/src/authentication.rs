//! Secrets of a job: evidence of who calls (passes, rule S7), and keys of the tags of packets (rules A1 to A5).
//!
//! Each is derived from one above it by HKDF-Expand with SHA-256 (RFC 5869), so what a member has lets it play no other:
//!
//! ```text
//!  secret of the job             controllers, servers
//!   ├─ secret of a member        that worker or switch
//!   │   └─ pass                  shown to one server, or to the controller
//!   └─ secret of a switch        that switch
//!       ├─ body key              its workers
//!       └─ secret of a path      one worker: the keys of both directions, or a cookie
//! ```

use core::fmt;
use std::sync::Arc;

use libra_dataplane::{BODY_KEY_BYTES, BodyKey, PathKeys, TAG_KEY_BYTES, TagKey, Tags};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use serde::{Deserialize, Serialize};

use crate::cluster::Peer;

/// The kind of tags of the packets of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TagKind {
    /// Packets have none.
    #[default]
    Off,
    /// A number that is the same in all packets of a path: for data planes that cannot compute a MAC.
    Cookie,
    /// A MAC of each packet.
    Mac,
}

impl fmt::Display for TagKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Off => "off",
            Self::Cookie => "cookie",
            Self::Mac => "mac",
        })
    }
}

/// 32 bytes that look random: of a job, of one member, or of the path between two.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; SECRET_BYTES]);

const SECRET_BYTES: usize = 32;

/// Evidence that the controller has given a member its place. It counts at one callee.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass([u8; 16]);

impl Secret {
    /// The secret of a job: bytes that were drawn for it, and for nothing else.
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// The secret of a member, from that of its job.
    pub(crate) fn of_member(&self, member: Peer) -> Self {
        Self(self.derive("member", &name(member)))
    }

    /// The pass that a member shows to another, from the secret of the former.
    pub(crate) fn pass(&self, callee: Peer) -> Pass {
        Pass(self.derive("pass", &name(callee)))
    }

    /// The secrets of the path of a worker to a switch, from the secret of the switch.
    pub(crate) fn path(&self, worker: u16) -> PathSecrets {
        PathSecrets { body: self.body(), path: self.of_path(worker) }
    }

    /// The tags of that path at the switch, which has the body key already.
    pub(crate) fn path_tags(&self, kind: TagKind, worker: u16, body: &Arc<BodyKey>) -> Option<PathTags> {
        tags_of(kind, &self.of_path(worker), || Arc::clone(body))
    }

    fn of_path(&self, worker: u16) -> Self {
        Self(self.derive("path", &worker.to_be_bytes()))
    }

    /// The body key of a switch, from its secret.
    pub(crate) fn body_key(&self) -> Arc<BodyKey> {
        self.body().expand_body_key()
    }

    /// The secret that the body key follows from: workers are sent this, which is shorter.
    fn body(&self) -> Self {
        Self(self.derive("body", &[]))
    }

    fn expand_body_key(&self) -> Arc<BodyKey> {
        Arc::new(BodyKey::from_bytes(&self.derive::<BODY_KEY_BYTES>("body key", &[])))
    }

    fn derive<const N: usize>(&self, purpose: &str, of: &[u8]) -> [u8; N] {
        let mut bytes = [0; N];
        let info = ["libra ".as_bytes(), purpose.as_bytes(), &[0], of];
        let key = Prk::new_less_safe(HKDF_SHA256, &self.0);
        let filled = key.expand(&info, Length(N)).and_then(|expanded| expanded.fill(&mut bytes));
        filled.expect("HKDF makes up to 8,160 bytes");
        bytes
    }
}

/// A member in bytes, each another.
fn name(member: Peer) -> [u8; 3] {
    let (kind, number) = match member {
        Peer::Controller => (0, 0),
        Peer::Server(number) => (1, number),
        Peer::Switch(number) => (2, number),
        Peer::Worker(number) => (3, number),
    };
    let [high, low] = number.to_be_bytes();
    [kind, high, low]
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The secrets of the path between a worker and a switch, which both have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSecrets {
    /// Of the body key, which is the same for all workers of the switch.
    body: Secret,
    path: Secret,
}

impl PathSecrets {
    /// The tags of the path; none if the packets of the job have none.
    pub(crate) fn tags(&self, kind: TagKind) -> Option<PathTags> {
        tags_of(kind, &self.path, || self.body.expand_body_key())
    }
}

/// The tags of a path, from its secret. MACs alone need the body key.
fn tags_of(kind: TagKind, path: &Secret, body: impl FnOnce() -> Arc<BodyKey>) -> Option<PathTags> {
    let key = |purpose| TagKey::from_bytes(path.derive::<TAG_KEY_BYTES>(purpose, &[]));
    match kind {
        TagKind::Off => None,
        TagKind::Cookie => Some(PathTags::Cookie(u64::from_be_bytes(path.derive("cookie", &[])))),
        TagKind::Mac => {
            Some(PathTags::Mac { body: body(), keys: PathKeys { up: key("up"), down: key("down") } })
        }
    }
}

/// The tags of packets between a worker and a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathTags {
    /// See [`Tags::Cookie`].
    Cookie(u64),
    /// See [`Tags::Mac`].
    Mac {
        /// The key that compresses entries, one for all workers of the switch.
        body: Arc<BodyKey>,
        /// The keys of MACs.
        keys: PathKeys,
    },
}

impl PathTags {
    /// As the data plane takes them.
    pub fn tags(&self) -> Tags<'_> {
        match self {
            Self::Cookie(cookie) => Tags::Cookie(*cookie),
            Self::Mac { body, keys } => Tags::Mac { body, keys: *keys },
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pass")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    // rule S7
    #[test]
    fn each_member_and_callee_has_a_pass_of_its_own() {
        let job = Secret::new([7; SECRET_BYTES]);
        let members: Vec<Peer> = [Peer::Server, Peer::Switch, Peer::Worker]
            .into_iter()
            .flat_map(|kind| [0, 1, 255, 256, u16::MAX].map(kind))
            .chain([Peer::Controller])
            .collect();
        let passes: BTreeSet<[u8; 16]> = members
            .iter()
            .flat_map(|caller| {
                let secret = job.of_member(*caller);
                members.iter().map(move |callee| secret.pass(*callee).0)
            })
            .collect();
        assert_eq!(passes.len(), members.len() * members.len());
    }

    // rule A1
    #[test]
    fn paths_share_the_body_key_and_nothing_else() {
        let switch = Secret::new([7; SECRET_BYTES]).of_member(Peer::Switch(3));
        let [one, other] = [1, 2].map(|worker| switch.path(worker).tags(TagKind::Mac).unwrap());
        let (PathTags::Mac { body, keys }, PathTags::Mac { body: same, keys: others }) = (one, other) else {
            panic!("tags of another kind than was asked for");
        };
        assert_eq!(body, same);
        let distinct: BTreeSet<[u64; 2]> =
            [keys.up, keys.down, others.up, others.down].map(|key| key.words()).into();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn secrets_are_not_printed() {
        let job = Secret::new([0x41; SECRET_BYTES]);
        let path = job.of_member(Peer::Switch(0)).path(0);
        let printed = format!(
            "{job:?} {:?} {path:?} {:?} {:?}",
            job.pass(Peer::Controller),
            path.tags(TagKind::Mac),
            path.tags(TagKind::Cookie).map(|tags| format!("{:?}", tags.tags())),
        );
        assert!(!printed.contains("65") && !printed.contains("41"), "{printed}");
    }
}
