//! Choices of the user, and the errors that they can cause.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Point on the way of a packet at which the program runs.
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

/// Mode in which a program was attached, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attached {
    /// In the driver.
    Native,
    /// In the stack, as asked for.
    Generic,
    /// In the stack, since the driver would not have it.
    Instead {
        /// Reason why the faster mode was not possible.
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

/// Reason why there is no data plane in the kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The programs are not in this build.
    #[error(
        "the XDP plane was left out of this build ({reason}): install clang on Linux (`apt-get install clang`) and build again"
    )]
    LeftOut {
        /// The part that was missing when it was built.
        reason: &'static str,
    },
    /// This user may not do it.
    #[error(
        "the kernel does not permit {attempted}: run it as root, or with the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// The operation that was refused.
        attempted: &'static str,
    },
    /// There is no such interface.
    #[error("there is no interface {name} (in this network namespace)")]
    NoInterface {
        /// The name that was asked for.
        name: String,
    },
    /// The kernel's verifier does not accept the program.
    #[error("this kernel does not accept the program; its verifier ends with:\n{log}")]
    Rejected {
        /// Its last lines.
        log: String,
    },
    /// The interface does not take the program.
    #[error("{interface} does not take the program in {mode} mode: {reason}")]
    Attach {
        /// The interface.
        interface: String,
        /// In which mode.
        mode: Mode,
        /// The error of the kernel, and the remedy.
        reason: String,
    },
    /// Something else in the kernel.
    #[error("{attempted}: {reason}")]
    Kernel {
        /// The operation that was attempted.
        attempted: &'static str,
        /// The error of the kernel.
        reason: String,
    },
    /// The program looks for datagrams to one address of IPv4.
    #[error("the XDP plane needs one address of IPv4, and {address} is none: set it with --listen IP:PORT")]
    Address {
        /// The address that was given.
        address: SocketAddr,
    },
    /// The program adds in one lane.
    #[error(
        "the XDP plane has regions of one lane, not of {lanes}: run the job with --lanes 1, or this switch with --plane udp"
    )]
    Lanes {
        /// The number that was asked for.
        lanes: u8,
    },
    /// There is no room for another job.
    #[error("one XDP program serves no more than {} jobs", crate::JOBS_MAX)]
    Jobs,
    /// A region was named that is not open.
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
