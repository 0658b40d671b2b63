//! Descriptors that the runtime watches for one thing alone.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch a descriptor. Must be called inside a runtime.
pub(crate) fn watch<T: AsRawFd + Into<OwnedFd>>(descriptor: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    #[expect(deprecated, reason = "its successor is unsafe, for owners that change; these do not")]
    AsyncFd::with_interest(descriptor, interest)
}
