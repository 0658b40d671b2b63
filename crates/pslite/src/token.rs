//! The token in the environment of the process, where other processes of the user could read it.
#![expect(unsafe_code, reason = "the environment is one of C")]

use std::env;

use libra_client::{TOKEN_VARIABLE, hide_token};

/// Overwrites the token in the memory that the kernel shows to others as the environment of this process. The process has it as
/// before, and so have the programs that it starts.
pub(crate) fn hide() {
    if let Some(token) = env::var_os(TOKEN_VARIABLE) {
        // SAFETY: the variable is there, so the C library makes a copy of it, and then replaces one pointer of the environment. A
        // thread that reads the environment at that moment finds the one text or the other, and both stay where they are.
        unsafe { env::set_var(TOKEN_VARIABLE, token) };
        hide_token();
    }
}
