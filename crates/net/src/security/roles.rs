//! Roles of a peer, as far as its end of a stream shows.

use core::fmt;

use libra_proto::{Kind, Message, Peer};

/// One of the kinds of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Controller,
    Server,
    Switch,
    Worker,
}

const NAMES: [(&str, Role); 4] = [
    ("controller", Role::Controller),
    ("server", Role::Server),
    ("switch", Role::Switch),
    ("worker", Role::Worker),
];

impl Role {
    /// The role that a first message claims.
    pub(crate) fn claimed(message: &Message) -> Option<Self> {
        match message {
            Message::Join(join) => Some(join.kind.into()),
            Message::Rejoin(rejoin) => Some(rejoin.join.kind.into()),
            Message::Hello(hello) => Some(hello.from.into()),
            Message::Restoring(_) => Some(Self::Server),
            _ => None,
        }
    }
}

impl From<Kind> for Role {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server,
            Kind::Switch => Self::Switch,
            Kind::Worker => Self::Worker,
        }
    }
}

impl From<Peer> for Role {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Controller => Self::Controller,
            Peer::Server(_) => Self::Server,
            Peer::Switch(_) => Self::Switch,
            Peer::Worker(_) => Self::Worker,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, role)| role == self).map_or("", |(name, _)| name);
        formatter.write_str(name)
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles(u8);

impl Roles {
    /// A peer with the token may be anything, and so may any peer where nothing is protected.
    pub(crate) const ALL: Self = Self(0b1111);
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn has(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// The roles in names of a certificate: `libra://role/worker` and so on. Other names are left alone.
    pub(crate) fn in_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let roles = names.filter_map(|name| {
            let wanted = name.strip_prefix("libra://role/")?;
            NAMES.iter().find(|(name, _)| *name == wanted).map(|(_, role)| *role)
        });
        roles.fold(Self::NONE, |roles, role| Self(roles.0 | 1 << role as u8))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            NAMES.iter().filter(|(_, role)| self.has(*role)).map(|(name, _)| *name).collect();
        formatter.write_str(if names.is_empty() { "no role" } else { "" })?;
        formatter.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_those_that_names_say() {
        let names =
            ["https://example.org/", "libra://role/worker", "libra://role/king", "libra://role/server"];
        let roles = Roles::in_names(names.into_iter());
        assert!(roles.has(Role::Worker) && roles.has(Role::Server));
        assert!(!roles.has(Role::Switch) && !roles.has(Role::Controller));
        assert_eq!(roles.to_string(), "server, worker");
        assert_eq!(Roles::NONE.to_string(), "no role");
    }
}
