//! Places at which a switch adds up: in its own process, in the kernel, or in a device.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libra_net::{NodeOptions, is_local};
use libra_p4::Sizes;
use libra_xdp::{Attached, Mode, PassProgram, XdpPlane, merge_arrivals};
use serde::{Deserialize, Serialize};

use crate::p4::{P4Arguments, P4Switch};
use crate::parent_guard;

/// Data planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaneKind {
    /// In the process of the switch, behind a UDP socket
    #[default]
    Udp,
    /// In the kernel, by an XDP program on an interface: needs Linux, and CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN
    Xdp,
}

/// Data planes of a switch: those that benchmarks set up, and one that was set up before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchPlane {
    /// In the process of the switch, behind a UDP socket
    #[default]
    Udp,
    /// In the kernel, by an XDP program on an interface: needs Linux, and CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN
    Xdp,
    /// In a P4 switch, with this process as its agent: see docs/operating/p4.md
    P4,
}

impl From<PlaneKind> for SwitchPlane {
    fn from(plane: PlaneKind) -> Self {
        match plane {
            PlaneKind::Udp => Self::Udp,
            PlaneKind::Xdp => Self::Xdp,
        }
    }
}

impl SwitchPlane {
    /// Checks that it has so many lanes, before anything is set up for it.
    pub fn check_lanes(self, lanes: u8) -> Result<()> {
        let of_p4 = Sizes::default().lanes;
        match self {
            Self::Xdp if lanes > 1 => {
                bail!("--lanes {lanes}: the XDP plane has one lane; take --plane udp, or no --lanes")
            }
            Self::P4 if lanes != of_p4 => {
                bail!("--lanes {lanes}: the P4 program has {of_p4}; take --lanes {of_p4}")
            }
            _ => Ok(()),
        }
    }
}

/// Returns the reason why this build has no data plane in the kernel; none if it has one.
pub fn kernel_plane_left_out() -> Option<&'static str> {
    libra_xdp::left_out()
}

/// The data plane of a switch.
#[derive(Args, Debug)]
pub struct PlaneArguments {
    /// Place at which packets are added up
    #[arg(long, value_name = "PLANE", value_enum, default_value_t)]
    plane: SwitchPlane,
    /// With --plane xdp, and with --bmv2: the interface that workers are reached by
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// With --plane xdp: in the driver (native), in the stack of the kernel (generic), or native if the driver can (auto)
    #[arg(long, value_name = "MODE", default_value = "auto")]
    xdp_mode: Mode,
    #[command(flatten)]
    p4: P4Arguments,
}

impl PlaneArguments {
    /// Returns the P4 switch at `listen`, if that is wanted.
    pub fn p4(&self, listen: Option<SocketAddr>) -> Result<Option<P4Switch>> {
        match (self.plane, self.p4.given()) {
            (SwitchPlane::P4, _) => self.p4.attach(listen, self.interface.as_deref()).map(Some),
            (_, Some(option)) => bail!("{option} goes with --plane p4"),
            (_, None) => Ok(None),
        }
    }

    /// Returns the default address for datagrams: a plane in the kernel needs the address by which workers will call it.
    pub fn listen(&self, options: &NodeOptions) -> Result<Option<SocketAddr>> {
        if self.plane != SwitchPlane::Xdp {
            return Ok(None);
        }
        let controller = &options.controller;
        let addresses = controller.resolve_within(options.connect_timeout)?;
        // No packet is sent: the system only returns which of its addresses it would send from.
        let from = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(addresses.as_slice())?;
            socket.local_addr()
        };
        let address = from().with_context(|| format!("--listen is needed: no way leads to {controller}"))?;
        Ok(Some(SocketAddr::new(address.ip(), 0)))
    }

    /// Attaches the plane in the kernel for datagrams at `address`, if that is wanted.
    pub fn attach(&self, options: &NodeOptions, address: SocketAddr) -> Result<Option<(XdpPlane, Attached)>> {
        if self.plane != SwitchPlane::Xdp {
            if self.interface.is_some() {
                bail!("--interface goes with --plane xdp");
            }
            return Ok(None);
        }
        let Some(interface) = &self.interface else {
            bail!("--plane xdp needs --interface, the one that workers are reached by");
        };
        let controller = &options.controller;
        let addresses = controller.resolve_within(options.connect_timeout)?;
        if addresses.into_iter().all(is_local) && interface != "lo" {
            bail!(
                "--controller {controller} is this machine alone: workers that come by {interface} must reach it, too"
            );
        }
        let attached = XdpPlane::attach(interface, self.xdp_mode, address);
        attached.map(Some).with_context(|| format!("--plane xdp --interface {interface}"))
    }
}

/// Puts a program that lets everything pass onto an interface, for as long as this runs. The end of a veth pair that is not the
/// switch's needs one: without it the kernel drops the answers of an XDP switch at the other end. Also has the interface merge what
/// comes by it, as `ethtool -K IF gro on` does.
#[derive(Args, Debug)]
pub struct PassArguments {
    /// The interface
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Ends with its standard input: for processes that another one has started
    #[arg(long, hide = true, alias = "leashed")]
    exit_with_parent: bool,
}

/// Runs `xdp-pass`.
pub fn pass(arguments: &PassArguments) -> Result<()> {
    let _attached = PassProgram::attach(&arguments.interface)?;
    println!("{} has a program that lets everything pass, until this ends", arguments.interface);
    if let Err(error) = merge_arrivals(&arguments.interface) {
        eprintln!("libra: workers behind {} receive each answer by itself: {error}", arguments.interface);
    }
    if arguments.exit_with_parent {
        parent_guard::exit_with_parent(|_| ())?;
    }
    loop {
        std::thread::park();
    }
}
