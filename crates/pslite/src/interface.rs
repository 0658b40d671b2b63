//! The address of a network interface.
#![expect(unsafe_code, reason = "the list of interfaces is one of C")]

use std::ffi::CStr;
use std::net::Ipv4Addr;

/// The first IPv4 address of the interface with this name.
pub(crate) fn address_of(name: &str) -> Option<String> {
    let mut first = core::ptr::null_mut();
    // SAFETY: `first` is valid for a pointer to be written to it.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut next, mut found) = (first, None);
    while !next.is_null() && found.is_none() {
        // SAFETY: it is not null, and an entry of a list that is freed below and not before.
        let entry = unsafe { &*next };
        // SAFETY: names are strings of C that live as long as the list.
        let is_wanted = unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes() == name.as_bytes();
        // SAFETY: an address is null or that of a structure that begins with its family.
        let is_ip4 = is_wanted
            && !entry.ifa_addr.is_null()
            && i32::from(unsafe { (*entry.ifa_addr).sa_family }) == libc::AF_INET;
        if is_ip4 {
            // SAFETY: its family is that of this structure; it may not be aligned as the larger structure would be.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            found = Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).to_string());
        }
        next = entry.ifa_next;
    }
    // SAFETY: it is the list from above, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_loopback_interface_is_found() {
        assert_eq!(super::address_of("lo").as_deref(), Some("127.0.0.1"));
        assert_eq!(super::address_of("no such thing"), None);
    }
}
