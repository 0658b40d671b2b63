//! Results of calls, and their messages.

use core::ffi::c_char;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::mesh::MeshError;

use crate::error::CallError;

/// Result of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Ok = 0,
    /// An argument, or a variable of the environment, is invalid.
    Invalid = 1,
    /// Another process has died. Nothing of this node goes on; the message names it.
    Died = 2,
    /// Another process has finalized, and does not answer any more.
    Left = 3,
    /// A server refused a request, or the scheduler has no place for this process.
    Refused = 4,
    /// There is no such node, group, customer or request.
    Unknown = 5,
    /// The machine: a port, a thread, a connection that cannot be had.
    System = 6,
    /// A bug of this library.
    Panicked = 7,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// The message of the last call of this thread that did not end well: one line, without an end of line. Valid until the next call
/// of this thread that does not end well.
#[unsafe(no_mangle)]
pub extern "C" fn libra_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// The version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn libra_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Nothing unwinds into C.
pub(super) fn guard(call: impl FnOnce() -> Result<(), CallError>) -> Status {
    let ended = catch_unwind(AssertUnwindSafe(call));
    let error = match ended {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(error)) => error,
        Err(panic) => CallError::Panicked { message: text_of(&*panic) },
    };
    let text = error.to_string().replace('\0', " ");
    LAST_ERROR.set(CString::new(text).unwrap_or_default());
    status_of(&error)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

fn status_of(error: &CallError) -> Status {
    match error {
        CallError::Mesh(error) => match error {
            MeshError::Died { .. } => Status::Died,
            MeshError::Left { .. } | MeshError::BarrierFailed { .. } => Status::Left,
            MeshError::Refused { .. } => Status::Refused,
            MeshError::UnknownNode { .. } => Status::Unknown,
            MeshError::NotInGroup { .. } | MeshError::TooLarge => Status::Invalid,
            _ => Status::System,
        },
        CallError::Refused { .. } => Status::Refused,
        CallError::UnknownRequest { .. } => Status::Unknown,
        CallError::Thread { .. } | CallError::Switching { .. } => Status::System,
        CallError::Panicked { .. } => Status::Panicked,
        _ => Status::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: it points to a string until the next call.
        unsafe { CStr::from_ptr(libra_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn each_thread_has_its_own_last_error() {
        let died = MeshError::Died { peer: "server 0".to_owned(), reason: "killed".to_owned() };
        assert_eq!(guard(|| Err(died.into())), Status::Died);
        assert_eq!(last(), "server 0 has died: killed");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!(guard(|| Ok(())), Status::Ok);
    }

    #[test]
    fn a_panic_stays_on_this_side() {
        assert_eq!(guard(|| panic!("with {}", 7)), Status::Panicked);
        assert_eq!(last(), "the library panicked: with 7");
    }
}
