//! The machine: buffers, cores, memory, limits.

mod cgroup;
mod judge;
mod read;

use libra_net::ReceiveBuffer;

use self::cgroup::Limits;
#[cfg(test)]
use self::cgroup::Quota;
pub(crate) use self::judge::judge;
pub(crate) use self::read::{line, number, read};
use crate::finding::Unseen;

/// Facts of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// The user is root.
    pub(crate) is_root: bool,
    /// Capabilities of this process that members use.
    pub(crate) capabilities: Result<Capabilities, Unseen>,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// The receive buffer that a member gets.
    pub(crate) receive_buffer: Result<ReceiveBuffer, Unseen>,
    /// `net.core.rmem_max`.
    pub(crate) rmem_max: Result<u64, Unseen>,
    /// `net.core.netdev_max_backlog`.
    pub(crate) backlog: Result<u64, Unseen>,
    /// Cores that this process may run on.
    pub(crate) cores: Result<Vec<usize>, Unseen>,
    /// Limits of its control groups.
    pub(crate) limits: Limits,
    /// Cores of each NUMA node.
    pub(crate) nodes: Result<Vec<Vec<usize>>, Unseen>,
    /// Two threads share a core.
    pub(crate) is_smt: Result<bool, Unseen>,
    /// Governor of the frequency of cores.
    pub(crate) governor: Result<String, Unseen>,
    /// Clock of the kernel.
    pub(crate) clocksource: Result<String, Unseen>,
    /// Vector instructions.
    pub(crate) vectors: Vectors,
    /// Bytes of memory that are available.
    pub(crate) memory: Result<u64, Unseen>,
    /// When memory comes in huge pages: `always`, `madvise` or `never`.
    pub(crate) huge_pages: Result<String, Unseen>,
    /// File descriptors that a process may have.
    pub(crate) descriptors: u64,
    /// The kernel has its BTF.
    pub(crate) has_btf: bool,
}

/// Capabilities that members use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Large buffers, and programs on interfaces.
    pub(crate) net_admin: bool,
    /// Programs in the kernel.
    pub(crate) bpf: bool,
    /// Programs that follow pointers.
    pub(crate) perfmon: bool,
}

/// Vector instructions of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vectors {
    /// Those that every processor of its kind has.
    Common,
    /// AVX2.
    Avx2,
    /// AVX-512.
    Avx512,
}

#[cfg(test)]
mod tests;
