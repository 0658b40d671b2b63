//! What a user chooses, and why it may not work.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Where on the way of a packet the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In the driver of the interface, before the kernel makes anything of a frame.
    Native,
    /// In the network stack: slower, on any interface.
    Generic,
    /// Native if that is possible, else generic.
    #[default]
    Auto,
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "native" => Ok(Self::Native),
            "generic" => Ok(Self::Generic),
            "auto" => Ok(Self::Auto),
            _ => Err("it is native, generic or auto"),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Auto => "auto",
        })
    }
}

/// How a program came to be where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attached {
    /// In the driver.
    Native,
    /// In the stack, as asked for.
    Generic,
    /// In the stack, since the driver would not have it.
    Instead {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Attached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => formatter.write_str("native"),
            Self::Generic => formatter.write_str("generic"),
            Self::Instead { reason } => {
                write!(formatter, "generic, which is slower, as native is not possible: {reason}")
            }
        }
    }
}

/// Why there is no data plane in the kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The programs are not in this build.
    #[error(
        "the XDP plane was left out of this build ({reason}): install clang on Linux (`apt-get install clang`) and build again"
    )]
    LeftOut {
        /// What was missing when it was built.
        reason: &'static str,
    },
    /// This user may not do it.
    #[error(
        "the kernel does not permit {attempted}: run it as root, or with the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// What was refused.
        attempted: &'static str,
    },
    /// There is no such interface.
    #[error("there is no interface {name} (in this network namespace)")]
    NoInterface {
        /// What was asked for.
        name: String,
    },
    /// The kernel's verifier does not accept the program.
    #[error("this kernel does not accept the program; its verifier ends with:\n{log}")]
    Rejected {
        /// The last lines that it said.
        log: String,
    },
    /// The interface does not take the program.
    #[error("{interface} does not take the program in {mode} mode: {reason}")]
    Attach {
        /// Which.
        interface: String,
        /// In which mode.
        mode: Mode,
        /// What the kernel said, and what can be done.
        reason: String,
    },
    /// Something else in the kernel.
    #[error("{attempted}: {reason}")]
    Kernel {
        /// What was attempted.
        attempted: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// The program looks for datagrams to one address of IPv4.
    #[error(
        "the XDP plane needs one address of IPv4, and {address} is none: say which with --listen IP:PORT"
    )]
    Address {
        /// What it was given.
        address: SocketAddr,
    },
    /// The program adds in one lane.
    #[error(
        "the XDP plane has regions of one lane, not of {lanes}: run the job with --lanes 1, or this switch with --plane udp"
    )]
    Lanes {
        /// What was asked for.
        lanes: u8,
    },
    /// There is no room for another job.
    #[error("one XDP program serves no more than {} jobs", crate::JOBS_MAX)]
    Jobs,
    /// Somebody names a region that is not open.
    #[error("region {region} of job {job} is not open")]
    NoRegion {
        /// Its job.
        job: u16,
        /// Its number.
        region: u8,
    },
}

impl XdpError {
    /// For what is known by an error of the system.
    #[cfg_attr(not(has_programs), expect(dead_code, reason = "there is nothing to fail"))]
    pub(crate) fn system(attempted: &'static str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Self::NotPermitted { attempted };
        }
        Self::Kernel { attempted, reason: error.to_string() }
    }
}
