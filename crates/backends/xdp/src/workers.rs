//! The workers that the program takes packets from: their addresses, names and tags.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use libra_dataplane::{BodyKey, Tags};

use crate::error::XdpError;
use crate::layout::{BODY_KEY_WORDS, TAGS_COOKIE, TAGS_MAC, TAGS_OFF, WORKER_WORDS};

/// A worker's address as it is on the wire, and zeros.
type Key = [u8; 8];

pub(crate) struct Workers {
    named: HashMap<MapData, Key, [u64; WORKER_WORDS]>,
    body_keys: Array<MapData, [u32; BODY_KEY_WORDS]>,
    /// Those that were written, by the place of their job: all workers of a job have the same.
    written: BTreeMap<u16, BodyKey>,
}

/// A worker's name, and the place of its job.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) job: u16,
    pub(crate) worker: u16,
    pub(crate) place: u16,
}

impl Workers {
    /// Those of a program that was loaded, which has none.
    pub(crate) fn of(loaded: &mut Ebpf) -> Result<Self, XdpError> {
        let mut take = |name| loaded.take_map(name).expect("the object has this map");
        Ok(Self {
            named: take("workers").try_into()?,
            body_keys: take("body_keys").try_into()?,
            written: BTreeMap::new(),
        })
    }

    /// Says that datagrams from an address are those of a worker, and what tags they have.
    pub(crate) fn set(
        &mut self,
        address: SocketAddrV4,
        name: Name,
        tags: Option<Tags<'_>>,
    ) -> Result<(), XdpError> {
        // Before the first packet that it is for.
        if let Some(Tags::Mac { body, .. }) = tags
            && self.written.get(&name.place) != Some(body)
        {
            self.body_keys.set(name.place.into(), body.words(), 0)?;
            self.written.insert(name.place, body.clone());
        }
        Ok(self.named.insert(key(&address), words(name, tags), 0)?)
    }

    /// Forgets all but those at these addresses.
    pub(crate) fn retain(&mut self, addresses: &[SocketAddrV4]) -> Result<(), XdpError> {
        let wanted: Vec<_> = addresses.iter().map(key).collect();
        let there: Vec<_> = self.named.keys().collect::<Result<_, _>>()?;
        for gone in there.iter().filter(|key| !wanted.contains(key)) {
            self.named.remove(gone)?;
        }
        Ok(())
    }
}

/// As `struct worker` of `bpf/memory.h`.
pub(crate) fn words(Name { job, worker, place }: Name, tags: Option<Tags<'_>>) -> [u64; WORKER_WORDS] {
    let (kind, cookie, [up, down]) = match tags {
        None => (TAGS_OFF, 0, [[0; 2]; 2]),
        Some(Tags::Cookie(cookie)) => (TAGS_COOKIE, cookie, [[0; 2]; 2]),
        Some(Tags::Mac { keys, .. }) => (TAGS_MAC, 0, [keys.up.words(), keys.down.words()]),
    };
    let [[j0, j1], [w0, w1], [p0, p1], [k0, k1]] = [job, worker, place, kind].map(u16::to_ne_bytes);
    let name = u64::from_ne_bytes([j0, j1, w0, w1, p0, p1, k0, k1]);
    [name, cookie, up[0], up[1], down[0], down[1]]
}

fn key(address: &SocketAddrV4) -> Key {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    [a, b, c, d, high, low, 0, 0]
}
