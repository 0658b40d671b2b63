//! Memory of tensors and arrays as slices.
//!
//! The package keeps an object referenced while it calls with its address, so the memory lives as long as the call. Other threads may
//! write to it meanwhile, as they may with the operators of any tensor library that releases the lock of the interpreter.
#![expect(unsafe_code, reason = "this is the border to Python")]

/// A type whose values are any bits.
pub(crate) trait Plain: Copy {}
impl Plain for i64 {}
impl Plain for i32 {}
impl Plain for u64 {}
impl Plain for f32 {}

/// Returns the memory of an array that is read.
///
/// # Panics
/// The address is not that of an array of this type.
pub(crate) fn input<'a, T: Plain>(address: usize, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    check::<T>(address);
    // SAFETY: the package passes the address of an array with this many elements of this type, which it references during the call.
    unsafe { std::slice::from_raw_parts(address as *const T, len) }
}

/// Returns the memory of an array that is written.
///
/// # Panics
/// The address is not that of an array of this type.
pub(crate) fn output<'a, T: Plain>(address: usize, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    check::<T>(address);
    // SAFETY: as above, and the package has made the array for this call alone.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
}

fn check<T>(address: usize) {
    assert_ne!(address, 0, "an array has an address");
    assert_eq!(address % align_of::<T>(), 0, "an array is aligned to its elements");
}
