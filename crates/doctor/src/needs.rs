//! The job that a machine is examined for.

use std::path::PathBuf;

use libra_net::Security;

/// The job that this machine and its network are examined for.
#[derive(Debug, Clone)]
pub struct Needs {
    /// Workers of the job.
    pub workers: u16,
    /// Members of the job that run on this machine.
    pub members: u16,
    /// Rows of the job, and the servers that divide them.
    pub tables: Option<Tables>,
    /// Bytes of memory that a server may take for its rows.
    pub memory_limit: Option<u64>,
    /// MTU that packets of the hot path fill.
    pub mtu: u16,
    /// State directory of a server.
    pub state_directory: Option<PathBuf>,
    /// Checkpoints that a server keeps.
    pub checkpoints_kept: u32,
    /// A switch of this machine adds up in the kernel.
    pub kernel_plane: Option<KernelPlane>,
    /// Interfaces; without any all that are up.
    pub interfaces: Vec<String>,
    /// The core to which a member is bound.
    pub cpu: Option<usize>,
    /// Protection of the streams of a cluster, for a controller that is called.
    pub security: Security,
}

impl Default for Needs {
    /// One member of a job of 32 workers, without a disk.
    fn default() -> Self {
        Self {
            workers: 32,
            members: 1,
            tables: None,
            memory_limit: None,
            mtu: 1500,
            state_directory: None,
            checkpoints_kept: 2,
            kernel_plane: None,
            interfaces: Vec::new(),
            cpu: None,
            security: Security::NONE,
        }
    }
}

impl Needs {
    /// Returns the bytes of memory that one server needs for its rows, if that is known.
    pub(crate) fn row_bytes(&self) -> Option<u64> {
        let all = self.tables.map(|tables| tables.server_bytes());
        all.into_iter().chain(self.memory_limit).min()
    }
}

/// Rows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// All rows.
    pub rows: u64,
    /// Values of a row.
    pub width: u32,
    /// Values that the optimizer keeps for a row.
    pub state: u32,
    /// Processes of servers that divide the rows.
    pub servers: u16,
}

/// Bytes that a row takes beside its values: key, index, and room for growth.
const ROW_OVERHEAD_BYTES: u64 = 16;

impl Tables {
    /// Returns the bytes of memory that one server needs for its rows.
    #[must_use]
    pub fn server_bytes(&self) -> u64 {
        let values = u64::from(self.width) + u64::from(self.state);
        let row = values.saturating_mul(size_of::<f32>() as u64) + ROW_OVERHEAD_BYTES;
        self.rows.saturating_mul(row).div_ceil(u64::from(self.servers.max(1)))
    }
}

/// The data plane in the kernel, as far as this program has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPlane {
    /// The reason why this build has none.
    pub left_out: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_bounds_the_rows_of_a_server() {
        let tables = Some(Tables { rows: 1000, width: 4, state: 0, servers: 1 });
        let bytes = |tables, memory_limit| Needs { tables, memory_limit, ..Needs::default() }.row_bytes();
        assert_eq!([bytes(None, None), bytes(None, Some(7))], [None, Some(7)]);
        assert_eq!([bytes(tables, Some(7)), bytes(tables, Some(1 << 30))], [Some(7), Some(32_000)]);
    }

    #[test]
    fn memory_of_a_server_counts_values_and_state() {
        let adam = Tables { rows: 1000, width: 16, state: 33, servers: 2 };
        assert_eq!(adam.server_bytes(), 500 * (49 * 4 + 16));
        let huge = Tables { rows: u64::MAX, width: 16, state: 0, servers: 0 };
        assert_eq!(huge.server_bytes(), u64::MAX);
    }
}
