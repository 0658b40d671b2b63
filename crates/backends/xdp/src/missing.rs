//! The same names in a build without the programs.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use libra_dataplane::{BankPackets, Counters, RegionConfig};
use libra_proto::{Outgoing, Plane, Round, RoundContents, SlotValues, WorkerPath};

use crate::error::{Attached, Mode, XdpError};

pub(crate) const REASON: &str = match option_env!("LIBRA_XDP_MISSING") {
    Some(reason) => reason,
    None => "it is for Linux alone",
};
const LEFT_OUT: XdpError = XdpError::LeftOut { reason: REASON };

/// There is none in this build.
#[derive(Debug)]
pub enum XdpPlane {}

impl XdpPlane {
    /// Says what is missing.
    pub fn attach(_interface: &str, _mode: Mode, _address: SocketAddr) -> Result<(Self, Attached), XdpError> {
        Err(LEFT_OUT)
    }

    /// There is nothing to wait for.
    pub fn wakes(&self) -> io::Result<OwnedFd> {
        match *self {}
    }
}

/// There are none in this build.
#[derive(Debug)]
pub enum RunTimes {}

impl RunTimes {
    /// Says what is missing.
    pub fn count() -> Result<Self, XdpError> {
        Err(LEFT_OUT)
    }

    /// There is nothing to count.
    pub fn of_packet(&self) -> Result<Option<core::time::Duration>, XdpError> {
        match *self {}
    }
}

impl Plane for XdpPlane {
    fn begin(&mut self, _job: u16) {}

    fn set_workers(&mut self, _workers: &BTreeMap<u16, WorkerPath>) {}

    fn open(&mut self, _config: RegionConfig, _durable: u16, _contents: &RoundContents, _due: BankPackets) {}

    fn forget(&mut self, _region: u8) {}

    fn set_active(&mut self, _region: u8, _active: bool) {}

    fn settle(&mut self, _region: u8, _durable: u16) {}

    fn install(&mut self, _region: u8, _values: &SlotValues) {}

    fn taken(&self, _region: u8) -> BankPackets {
        match *self {}
    }

    fn close_round(&mut self, _region: u8) -> Option<Round> {
        match *self {}
    }

    fn handle_datagrams(&mut self, _: SocketAddr, _: &mut [u8], _: usize, _: &mut Outgoing) {}

    fn counters(&self) -> Counters {
        match *self {}
    }

    fn unknown_senders(&self) -> u64 {
        match *self {}
    }

    fn memory_bytes(&self) -> u64 {
        match *self {}
    }
}

/// Says what is missing.
pub fn merge_arrivals(_interface: &str) -> Result<(), XdpError> {
    Err(LEFT_OUT)
}

/// There is none in this build.
#[derive(Debug)]
pub enum PassProgram {}

impl PassProgram {
    /// Says what is missing.
    pub fn attach(_interface: &str) -> Result<Self, XdpError> {
        Err(LEFT_OUT)
    }
}
