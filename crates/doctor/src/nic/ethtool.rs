//! Settings of interfaces, by netlink: what the program `ethtool` shows, without it.

use core::fmt::Display;
use std::io;

use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::err::RouterError;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;
use neli::{Size, ToBytes};

use super::Rings;
use crate::finding::Unseen;

// Numbers of <linux/ethtool_netlink.h>.
const FEATURES_GET: u8 = 11;
const RINGS_GET: u8 = 15;
const COALESCE_GET: u8 = 19;
const HEADER: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const RINGS_RX_MAX: u16 = 2;
const RINGS_RX: u16 = 6;
const COALESCE_RX_USECS: u16 = 2;
// Numbers of <linux/netdev.h>, since Linux 6.3.
const NETDEV_DEV_GET: u8 = 1;
const NETDEV_IFINDEX: u16 = 1;
const NETDEV_XDP_FEATURES: u16 = 3;
const XDP_BASIC: u64 = 1;

type Message = Genlmsghdr<u8, u16>;
type Attribute = Nlattr<u16, Buffer>;

/// Asks about one interface.
pub(super) struct Ethtool {
    router: NlRouter,
    interface: String,
}

impl Ethtool {
    pub(super) fn connect(interface: &str) -> Result<Self, Unseen> {
        let (router, _) =
            NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(failed("netlink"))?;
        Ok(Self { router, interface: interface.to_owned() })
    }

    /// Returns the names of the offloads that are on.
    pub(super) fn features(&self) -> Result<Vec<String>, Unseen> {
        let answer = self.ask(FEATURES_GET, "offloads")?;
        names(&answer).map_err(failed("offloads"))
    }

    pub(super) fn rings(&self) -> Result<Rings, Unseen> {
        let answer = self.ask(RINGS_GET, "rings")?;
        let number =
            |kind| number(&answer, kind).ok_or_else(|| Unseen("rings: the device has none".to_owned()));
        Ok(Rings { now: number(RINGS_RX)?, most: number(RINGS_RX_MAX)? })
    }

    pub(super) fn coalescing(&self) -> Result<u32, Unseen> {
        let answer = self.ask(COALESCE_GET, "coalescing")?;
        number(&answer, COALESCE_RX_USECS).ok_or_else(|| Unseen("coalescing: the device has none".to_owned()))
    }

    /// Returns whether the driver of an interface runs XDP programs.
    pub(super) fn native_xdp(&self, index: u32) -> Result<bool, Unseen> {
        const WHAT: &str = "XDP of the driver (shown since Linux 6.3)";
        let attributes = [attribute(NETDEV_IFINDEX, index).map_err(failed(WHAT))?];
        let answer = self.send("netdev", NETDEV_DEV_GET, attributes, WHAT)?;
        let found = answer.attrs().get_attr_handle().get_attr_payload_as::<u64>(NETDEV_XDP_FEATURES);
        found.map(|features| features & XDP_BASIC != 0).map_err(failed(WHAT))
    }

    fn ask(&self, command: u8, what: &'static str) -> Result<Message, Unseen> {
        let header = || -> Result<_, Box<dyn std::error::Error>> {
            let name = attribute(HEADER_DEV_NAME, self.interface.as_str())?;
            Ok(attribute(HEADER, ())?.nest(&name)?)
        };
        self.send("ethtool", command, [header().map_err(failed(what))?], what)
    }

    fn send(
        &self,
        family: &str,
        command: u8,
        attributes: [Attribute; 1],
        what: &'static str,
    ) -> Result<Message, Unseen> {
        let family = self.router.resolve_genl_family(family).map_err(failed(what))?;
        let attributes: GenlBuffer<u16, Buffer> = attributes.into_iter().collect();
        let message = GenlmsghdrBuilder::default().cmd(command).version(1).attrs(attributes).build();
        let message = message.map_err(failed(what))?;
        let answers = self
            .router
            .send::<_, _, u16, Message>(family, NlmF::REQUEST | NlmF::ACK, NlPayload::Payload(message))
            .map_err(failed(what))?;
        let mut found = None;
        for answer in answers {
            match answer {
                Ok(answer) => found = answer.get_payload().cloned().or(found),
                Err(RouterError::Nlmsgerr(refusal)) => {
                    return Err(Unseen::because(what, io::Error::from_raw_os_error(-*refusal.error())));
                }
                Err(error) => return Err(failed(what)(error)),
            }
        }
        found.ok_or_else(|| Unseen::because(what, "the kernel has no answer"))
    }
}

fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> Unseen {
    move |error| Unseen::because(what, error)
}

fn number(message: &Message, kind: u16) -> Option<u32> {
    message.attrs().get_attr_handle().get_attr_payload_as(kind).ok()
}

/// The names in the set of active features.
fn names(message: &Message) -> Result<Vec<String>, neli::err::DeError> {
    let handle = message.attrs().get_attr_handle();
    let active = handle.get_nested_attributes::<u16>(FEATURES_ACTIVE)?;
    let bits = active.get_nested_attributes::<u16>(BITSET_BITS)?;
    let mut names = Vec::new();
    for bit in bits.iter().filter(|bit| *bit.nla_type().nla_type() == BITS_BIT) {
        let bit = bit.get_attr_handle::<u16>()?;
        names.push(bit.get_attr_payload_as_with_len::<String>(BIT_NAME)?);
    }
    Ok(names)
}

fn attribute(kind: u16, payload: impl Size + ToBytes) -> Result<Attribute, Box<dyn std::error::Error>> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build()?;
    Ok(NlattrBuilder::default().nla_type(kind).nla_payload(payload).build()?)
}
