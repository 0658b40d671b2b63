//! Has the kernel merge the datagrams that come by an interface (GRO). Network cards come with that turned on, veth pairs do not.

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

use crate::error::XdpError;

const ATTEMPTED: &str = "merging what comes by an interface (GRO)";

// Numbers of <linux/ethtool_netlink.h>.
const FEATURES_SET: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

type Message = Genlmsghdr<u8, u16>;
type Attribute = Nlattr<u16, Buffer>;

/// Has the kernel merge the datagrams that come by an interface of this network namespace. Each acknowledgement of an XDP switch is a
/// datagram of its own; merged, a worker receives many in one call. It stays so when this process ends, like `ethtool -K IF gro on`.
///
/// # Errors
/// If there is no such interface, or the kernel does not do it.
pub fn merge_arrivals(interface: &str) -> Result<(), XdpError> {
    let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty()).map_err(failed)?;
    let family = router.resolve_genl_family("ethtool").map_err(failed)?;
    let message = request(interface).map_err(failed)?;
    let answers = router
        .send::<_, _, u16, Message>(family, NlmF::REQUEST | NlmF::ACK, NlPayload::Payload(message))
        .map_err(failed)?;
    for answer in answers {
        match answer {
            Ok(_) => {}
            Err(RouterError::Nlmsgerr(refusal)) => {
                let error = io::Error::from_raw_os_error(-*refusal.error());
                return Err(match error.raw_os_error() {
                    Some(NO_DEVICE) => XdpError::NoInterface { name: interface.to_owned() },
                    _ => XdpError::system(ATTEMPTED, &error),
                });
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

fn failed(error: impl Display) -> XdpError {
    XdpError::Kernel { attempted: ATTEMPTED, reason: error.to_string() }
}

/// That one feature of an interface is wanted, and the others stay as they are.
fn request(interface: &str) -> Result<Message, Box<dyn std::error::Error>> {
    let feature = nest(BITS_BIT, &[attribute(BIT_NAME, "rx-gro")?, attribute(BIT_VALUE, ())?])?;
    let wanted = nest(FEATURES_WANTED, &[nest(BITSET_BITS, &[feature])?])?;
    let header = nest(FEATURES_HEADER, &[attribute(HEADER_DEV_NAME, interface)?])?;
    let attributes: GenlBuffer<u16, Buffer> = [header, wanted].into_iter().collect();
    Ok(GenlmsghdrBuilder::default().cmd(FEATURES_SET).version(1).attrs(attributes).build()?)
}

fn nest(kind: u16, inside: &[Attribute]) -> Result<Attribute, Box<dyn std::error::Error>> {
    inside.iter().try_fold(attribute(kind, ())?, |outside, attribute| Ok(outside.nest(attribute)?))
}

fn attribute(kind: u16, payload: impl Size + ToBytes) -> Result<Attribute, Box<dyn std::error::Error>> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build()?;
    Ok(NlattrBuilder::default().nla_type(kind).nla_payload(payload).build()?)
}
