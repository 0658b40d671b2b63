//! Logs and checkpoints on a disk, real or simulated: crashes, damage, and who else reads them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod arbitrary;
mod both_disks;
mod checkpoint_crash;
mod every;
mod load;
mod log_crash;
mod python;
