//! An adversary on the path: it has read datagrams of workers and switches, and sends others, with any sender's address and right checksums.
//! Nothing of that may count if packets have MACs. If they have cookies, it has read nothing, and guesses.

use libra_dataplane::{ENTRY_BYTES, Flags, HEADER_BYTES, Header, Kind, PacketWriter, packet_bytes};
use libra_plan::shard_of;
use libra_proto::{Answered, ColdPush, Hello, Message, Pass, Peer, TagKind};

use crate::check::Overheard;
use crate::runner::{Kind as HostKind, ScenarioRunner};

/// Datagrams that it sends at once.
const FORGERIES: usize = 30;

impl ScenarioRunner {
    /// A process with the token of the cluster, and without the pass of a worker, calls a server in the name of one, and pushes.
    pub(crate) fn send_impostor(&mut self) {
        let Some(server) = self.pick(HostKind::Server, false) else { return };
        let Some(Peer::Server(shard)) =
            self.world.actor(server).and_then(|actor| self.world.observer.roster.peer(actor))
        else {
            return;
        };
        let Some(user) = self.users.values().find(|user| user.is_there()) else { return };
        let (worker, host) = (user.worker, user.host);
        let cluster = self.scenario.cluster();
        let shards = self.scenario.shards();
        let Some(key) = cluster.tables[0].keys.clone().find(|key| shard_of(*key, shards) == shard) else {
            return;
        };
        self.count_fault("impostor");
        let hello = Hello {
            instance: cluster.instance,
            from: Peer::Worker(worker),
            pass: Pass::default(),
            to: shard,
            answered: Answered::default(),
        };
        let push = ColdPush {
            number: 1 << 40,
            keys: [key].as_slice().into(),
            gradients: vec![1.0; cluster.tables[0].width].into(),
            answer: false,
        };
        self.world.call_as_stranger(host, server, &[Message::Hello(hello), Message::Push(push)]);
    }

    pub(crate) fn forge_packets(&mut self) {
        self.count_fault("forged packets");
        for _ in 0..FORGERIES {
            let seen = self.world.observer.overheard();
            if seen.is_empty() {
                return;
            }
            // The newest may still be on its way.
            let newest = seen.len() - 1;
            let place = if self.random.chance(0.3) { newest } else { self.random.index(seen.len()) };
            let original = seen[place].clone();
            let forged = if self.scenario.hot_path.tags == TagKind::Mac {
                self.forge_from(original)
            } else {
                self.guess(original)
            };
            if let Some(Overheard { from, to, bytes }) =
                forged.filter(|forged| self.world.is_awake(forged.to))
            {
                let from = self.world.address(from);
                self.world.inject(from, to, bytes);
            }
        }
    }

    /// A datagram of a peer that knows everything but the keys.
    fn forge_from(&mut self, original: Overheard) -> Option<Overheard> {
        let Overheard { from, to, mut bytes } = original;
        let header = Header::parse(&bytes).ok()?;
        match self.random.below(8) {
            // As it was, late.
            0 => {}
            1 => {
                for _ in 0..self.random.within(1..=3) {
                    let bit = self.random.index(8 * bytes.len());
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
            // The entries at the end alone, where they are filled up.
            2 if header.entries > 0 => {
                let at = bytes.len() - 1 - self.random.index(ENTRY_BYTES.min(bytes.len() - HEADER_BYTES));
                bytes[at] ^= 1 << self.random.below(8);
            }
            3 if header.kind == Kind::Push => {
                // What was lost on its way seems to be taken.
                let round = header.durable.wrapping_add(self.random.small(1..=9));
                let ack = Header { kind: Kind::Ack, flags: Flags::NONE, entries: 0, round, ..header };
                return Some(Overheard { from: to, to: from, bytes: ack.to_bytes().to_vec() });
            }
            3 => return Some(Overheard { from: to, to: from, bytes }),
            4 => self.with_another_header(header).emit(&mut bytes),
            5 => bytes = self.with_entries_of_another(header)?,
            6 => {
                let others = self.alive(HostKind::Worker);
                let other = *others.get(self.random.index(others.len().max(1)))?;
                let worker = self.users.get(&other)?.worker;
                Header { worker, ..header }.emit(&mut bytes);
                return Some(if from == other || to == other {
                    Overheard { from, to, bytes }
                } else if self.alive(HostKind::Worker).contains(&from) {
                    Overheard { from: other, to, bytes }
                } else {
                    Overheard { from, to: other, bytes }
                });
            }
            _ => {
                let entries = header.entries.checked_sub(1)?;
                bytes.truncate(packet_bytes(entries));
                Header { entries, ..header }.emit(&mut bytes);
            }
        }
        Some(Overheard { from, to, bytes })
    }

    /// The header of an answer or a request that would do harm, with the tag of another.
    fn with_another_header(&mut self, header: Header) -> Header {
        let durable = header.durable.wrapping_add(self.random.small(1..=255));
        let seq = header.seq.saturating_add(u32::from(self.random.small(0..=40)));
        match (header.kind, self.random.below(4)) {
            (Kind::Push, _) => Header { seq: seq.saturating_add(1), ..header },
            (_, 0) => Header { durable, ..header },
            (_, 1) => Header { kind: Kind::Ack, flags: Flags::NONE, seq, durable, ..header },
            (_, 2) => Header { round: header.round.wrapping_add(1), seq, ..header },
            _ => Header { durable, seq, view: header.view.wrapping_add(1), ..header },
        }
    }

    /// The packet with the entries of another one that was overheard.
    fn with_entries_of_another(&mut self, header: Header) -> Option<Vec<u8>> {
        let seen = self.world.observer.overheard();
        let other = &seen[self.random.index(seen.len())].bytes;
        let packet = libra_dataplane::Packet::parse(other).ok()?;
        let mut bytes = vec![0; packet_bytes(packet.header.entries)];
        let mut writer = PacketWriter::new(header, &mut bytes);
        writer.extend(packet.entries().map(|entry| (entry.cell, entry.value)));
        let length = writer.finish();
        bytes.truncate(length);
        Some(bytes)
    }

    /// A datagram of a peer that knows all but what is in packets: their tags.
    fn guess(&mut self, original: Overheard) -> Option<Overheard> {
        let Overheard { from, to, mut bytes } = original;
        let header = Header::parse(&bytes).ok()?;
        Header { tag: self.random.bits(), ..self.with_another_header(header) }.emit(&mut bytes);
        Some(Overheard { from, to, bytes })
    }
}
