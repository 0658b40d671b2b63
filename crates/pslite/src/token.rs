//! The token in the environment of the process, where other processes of the user could read it.
#![expect(unsafe_code, reason = "the environment is one of C")]

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};

use libra_client::TOKEN_VARIABLE;

/// Overwrites the token in the memory that the kernel shows to others as the environment of this process. The process has it as
/// before, and so have the programs that it starts.
pub(crate) fn hide() {
    // A system without /proc shows it to no other process.
    let _ = move_away();
}

fn move_away() -> Option<()> {
    let shown = fs::read("/proc/self/environ").ok()?;
    let wanted = format!("\0{TOKEN_VARIABLE}=");
    let entries = [b"\0", &shown[..]].concat();
    let place = entries.windows(wanted.len()).position(|bytes| bytes == wanted.as_bytes())?;
    let place = place + TOKEN_VARIABLE.len() + 1;
    let length = shown[place..].iter().position(|byte| *byte == 0)?;
    // Fields are counted from 1, and the second, the name, may have blanks: `env_start` is field 50 (proc_pid_stat(5)).
    let status = fs::read_to_string("/proc/self/stat").ok()?;
    let start: u64 = status.rsplit_once(") ")?.1.split(' ').nth(50 - 3)?.parse().ok()?;
    let mut memory = OpenOptions::new().write(true).open("/proc/self/mem").ok()?;
    if let Some(token) = env::var_os(TOKEN_VARIABLE) {
        // SAFETY: the variable is there, so the C library makes a copy of it, and then replaces one pointer of the environment. A
        // thread that reads the environment at that moment finds the one text or the other, and both stay where they are.
        unsafe { env::set_var(TOKEN_VARIABLE, token) };
    }
    memory.seek(SeekFrom::Start(start + u64::try_from(place).ok()?)).ok()?;
    memory.write_all(&vec![b'*'; length]).ok()
}
