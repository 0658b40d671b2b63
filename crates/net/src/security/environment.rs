//! The token in the environment of the process, where other processes of the user could read it.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};

/// Variable of the environment that has the token.
pub const TOKEN_VARIABLE: &str = "LIBRA_TOKEN";

/// Overwrites the token in the memory that the kernel shows to others as the environment of this process, where the program was
/// started with it. What the C library has copied since is not changed.
pub fn hide_token() {
    // A system without /proc shows it to no other process.
    let _ = overwrite();
}

fn overwrite() -> Option<()> {
    let (offset, length) = find(&fs::read("/proc/self/environ").ok()?)?;
    // Fields are counted from 1, and the second, the name, may have blanks: `env_start` is field 50 (proc_pid_stat(5)).
    let status = fs::read_to_string("/proc/self/stat").ok()?;
    let start: u64 = status.rsplit_once(") ")?.1.split(' ').nth(50 - 3)?.parse().ok()?;
    let mut memory = OpenOptions::new().write(true).open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(start + u64::try_from(offset).ok()?)).ok()?;
    memory.write_all(&vec![b'*'; length]).ok()
}

/// Finds the token in an environment: its offset, and its bytes.
fn find(environment: &[u8]) -> Option<(usize, usize)> {
    let wanted = format!("{TOKEN_VARIABLE}=");
    let mut offset = 0;
    for entry in environment.split(|byte| *byte == 0) {
        if let Some(token) = entry.strip_prefix(wanted.as_bytes()) {
            return Some((offset + wanted.len(), token.len()));
        }
        offset += entry.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found_behind_names_that_end_like_its_own() {
        assert_eq!(find(b"A=1\0MY_LIBRA_TOKEN=no\0LIBRA_TOKEN=abc\0B=2\0"), Some((34, 3)));
        assert_eq!(find(b"LIBRA_TOKEN=abc"), Some((12, 3)));
        assert_eq!(find(b"A=LIBRA_TOKEN=abc\0"), None);
        assert_eq!(find(b""), None);
    }
}
