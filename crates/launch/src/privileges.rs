//! Privileges that a process gives up once it needs them no more.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

/// Keeps nothing but the use of maps of BPF programs (`CAP_BPF`), if this thread has that, and no program that it starts can have more.
/// The capabilities are those of a thread: to be called before others are started.
///
/// # Errors
/// The kernel refuses it.
pub fn keep_bpf_alone() -> io::Result<()> {
    let kept = capabilities(None)?.permitted & CapabilitySet::BPF;
    keep(kept)
}

/// Keeps nothing.
///
/// # Errors
/// The kernel refuses it.
pub fn keep_none() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_capabilities_cannot_have_them_again() {
        // Of a thread of its own: others of the test go on as they are.
        let thread = std::thread::spawn(|| {
            keep_bpf_alone().unwrap();
            let sets = capabilities(None).unwrap();
            assert!(CapabilitySet::BPF.contains(sets.permitted | sets.effective), "{sets:?}");
            keep_none().unwrap();
            let sets = capabilities(None).unwrap();
            assert!((sets.permitted | sets.effective | sets.inheritable).is_empty(), "{sets:?}");
            let wanted = CapabilitySet::NET_ADMIN;
            let wanted = CapabilitySets { effective: wanted, permitted: wanted, inheritable: wanted };
            assert!(set_capabilities(None, wanted).is_err());
        });
        thread.join().unwrap();
    }
}
