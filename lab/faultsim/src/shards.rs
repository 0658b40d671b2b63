//! Processes of several shards in a [`World`]: a host for each shard, and one address, as `libra-net` has one port for all of them.

use libra_proto::{Hello, Link, MemberEvent, Peer};

use crate::network::Host;
use crate::observer::Observer;
use crate::process::Event;
use crate::streams::Takes;
use crate::world::World;

impl<O: Observer> World<O> {
    /// Adds a host for one more shard of the process on another. A stream to their address is of that shard which its first message names.
    pub fn add_shard(&mut self, label: impl Into<String>, of: Host) -> Host {
        let host = self.add_host(label);
        self.machines[host].address = self.machines[of].address;
        host
    }

    /// The hosts of the shards of a process, that one first which is called.
    pub fn shards_of(&self, host: Host) -> Vec<Host> {
        let address = self.machines[host].address;
        (0..self.machines.len()).filter(|other| self.machines[*other].address == address).collect()
    }

    /// Notes which shard is on a host.
    pub(crate) fn note_shard(&mut self, host: Host, event: &Event) {
        if let Event::Member(MemberEvent::Started { you: Peer::Server(number) }) = event {
            self.shards.insert(*number, host);
        }
    }

    /// A caller names the shard that it calls: the other end of its stream is there.
    pub(crate) fn hand_over(&mut self, stream: usize, end: usize, hello: &Hello) {
        let front = self.streams.end(stream, end);
        let (host, link) = (front.actor.host, front.link);
        let Some(shard) = self.shards.get(&hello.to).copied() else { return };
        let is_of_process = self.machines[shard].address == self.machines[host].address;
        if front.takes != Takes::First || shard == host || !is_of_process {
            return;
        }
        let is_open = front.open;
        // One that is not there is missed by the shard that is called, which closes the stream.
        let Some(process) = self.machines[shard].process.as_mut().filter(|_| is_open) else {
            self.streams.end(stream, end).is_missed = true;
            return;
        };
        let own = Link(Link::ACCEPTED + process.accepted);
        process.accepted += 1;
        process.links.insert(own, (stream, end));
        let front = self.streams.end(stream, end);
        (front.actor, front.link) = (process.actor, own);
        if let Some(process) = &mut self.machines[host].process {
            process.links.remove(&link);
        }
    }
}
