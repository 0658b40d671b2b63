//! Operations that a data plane must offer to be tested.

use std::fmt::Display;
use std::net::SocketAddrV4;
use std::ops::Range;

use libra_dataplane::{BankPackets, Counters, RegionConfig};

use crate::key::Key;
use crate::need::Need;
use crate::vector::{FlowSeqs, IpVerdict, RegionName, Sender, Slots, WorkerName};

/// A data plane, wherever it runs, with what an agent does to it.
///
/// Each vector begins with a target that has no region and no worker. An error of a method ends the vector: it is for
/// what cannot be (no such region, a device that is gone), never for a packet.
pub trait Target {
    /// Failure of the way to the data plane.
    type Error: Display;

    /// Returns true if vectors that need this can be run.
    fn offers(&self, need: Need) -> bool;

    /// Sets the address that datagrams are sent to. Not called where it does not matter.
    fn set_switch(&mut self, address: SocketAddrV4) -> Result<(), Self::Error>;

    /// From now on datagrams from this address are those of this worker.
    fn set_worker(&mut self, worker: WorkerName, address: SocketAddrV4) -> Result<(), Self::Error>;

    /// From now on packets of this worker have tags, and so have answers to it, wherever it sends from. Asked only of a target that offers
    /// [`Need::Cookie`] or [`Need::Mac`].
    fn set_key(&mut self, worker: WorkerName, key: &Key) -> Result<(), Self::Error>;

    /// Opens a region that is active and not readable, all of whose values are zero. Round `after` is durable, the next one takes
    /// packets, and `seen`, ascending by flow and number, was accepted before.
    fn open(&mut self, config: &RegionConfig, after: u16, seen: &[FlowSeqs]) -> Result<(), Self::Error>;

    /// Closes a region, with all it holds.
    fn close(&mut self, region: RegionName) -> Result<(), Self::Error>;

    /// Hands over a datagram, and returns the answer if there is one.
    fn receive(&mut self, from: Sender, datagram: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Hands over datagrams of one sender at once, and returns the answers, in order. Acknowledgements may be fewer, as far as
    /// one lists what the others would have acknowledged.
    fn receive_burst(&mut self, from: Sender, datagrams: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Self::Error> {
        datagrams.iter().filter_map(|datagram| self.receive(from, datagram).transpose()).collect()
    }

    /// Hands over a whole IPv4 packet. Asked only of a target that offers [`Need::Ip`].
    fn receive_ip(&mut self, packet: &[u8]) -> Result<IpVerdict, Self::Error>;

    /// Swaps the banks of a region. Returns the round that this closed, or `None`, with nothing done, if the idle bank is not drained.
    fn flip(&mut self, region: RegionName) -> Result<Option<u16>, Self::Error>;

    /// Takes out what is in the idle bank. Slots that hold zero may be left out.
    fn drain(&mut self, region: RegionName) -> Result<Slots, Self::Error>;

    /// Writes values.
    fn install(&mut self, region: RegionName, values: &Slots) -> Result<(), Self::Error>;

    /// The values of a region. Slots that hold zero may be left out.
    fn values(&mut self, region: RegionName) -> Result<Slots, Self::Error>;

    /// Sets the round of a region that is committed and installed.
    fn set_durable(&mut self, region: RegionName, round: u16) -> Result<(), Self::Error>;

    /// Permits or forbids reads of the values of a region.
    fn set_readable(&mut self, region: RegionName, readable: bool) -> Result<(), Self::Error>;

    /// Permits or forbids pushes to a region.
    fn set_active(&mut self, region: RegionName, active: bool) -> Result<(), Self::Error>;

    /// All sequence numbers of a flow that were accepted: ranges that ascend, with gaps between them.
    fn acked(&mut self, region: RegionName, flow: u16) -> Result<Vec<Range<u32>>, Self::Error>;

    /// Returns the packets that the active bank of a region has taken.
    fn bank(&mut self, region: RegionName) -> Result<BankPackets, Self::Error>;

    /// Returns the counters of all datagrams so far; those from addresses of no worker are not counted here.
    fn counters(&mut self) -> Result<Counters, Self::Error>;
}
