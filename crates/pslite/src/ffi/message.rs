//! Messages as C sees them.

use core::ffi::{c_char, c_void};
use core::{ptr, slice};
use std::sync::Arc;

use crate::mesh::{Bytes, Meta, OutgoingMessage, Received};

use crate::error::CallError;

/// A message has this flag if it is a request, and not a response.
pub const FLAG_REQUEST: u32 = 1;
/// It brings values.
pub const FLAG_PUSH: u32 = 2;
/// It asks for values.
pub const FLAG_PULL: u32 = 4;
/// It has a text, and no arrays.
pub const FLAG_SIMPLE: u32 = 8;
/// It is the response to a request that could not be served; the text has the reason.
pub const FLAG_REFUSED: u32 = 16;

/// A message that has come. Its arrays live as long as it does.
pub struct Buffer {
    _received: Arc<Received>,
}

/// A message. One that is handed to a callback lives until that returns; to keep its arrays, keep its buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The node that sent it.
    pub sender: i32,
    /// The application that it is for.
    pub app: i32,
    /// Customer that made the request, in the process of the worker.
    pub customer: i32,
    /// Number of the request among those of that customer.
    pub timestamp: i32,
    /// A command, or whatever the application likes.
    pub head: i32,
    /// Messages with a higher one are handled first, those with the same one in order.
    pub priority: i32,
    /// Type of the values: a number of the application's, and 9 for float.
    pub value_type: u32,
    /// LIBRA_FLAG_REQUEST and others.
    pub flags: u32,
    /// A text, not ended by a zero.
    pub text: *const c_char,
    /// Its length.
    pub text_bytes: usize,
    /// Keys.
    pub keys: *const u64,
    /// Number of keys.
    pub key_count: usize,
    /// Values.
    pub values: *const c_void,
    /// Number of bytes of the values.
    pub value_bytes: usize,
    /// Number of values of each key, or nothing if all have as many.
    pub lengths: *const i32,
    /// Number of keys that have a length.
    pub length_count: usize,
    /// Holds the arrays of a message that has come; null in one that is to be sent.
    pub buffer: *const Buffer,
}

/// Called once when the arrays of a message that was sent are not needed any more, from any thread. It must not call this library.
pub type Release = Option<unsafe extern "C" fn(owner: *mut c_void)>;

/// Keeps the arrays of a message alive until as many calls of libra_buffer_release. Returns the buffer to release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_buffer_retain(buffer: *const Buffer) -> *const Buffer {
    if !buffer.is_null() {
        // SAFETY: buffers come from `with_message`, where they are the inside of an `Arc`.
        unsafe { Arc::increment_strong_count(buffer) };
    }
    buffer
}

/// The arrays of a message are not needed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_buffer_release(buffer: *const Buffer) {
    if !buffer.is_null() {
        // SAFETY: the caller has retained it, and so owns a reference.
        unsafe { Arc::decrement_strong_count(buffer) };
    }
}

/// Shows a message to C.
pub(super) fn with_message(received: &Arc<Received>, show: impl FnOnce(&Message)) {
    let Received { sender, meta, payload } = &**received;
    let flags = [
        (meta.request, FLAG_REQUEST),
        (meta.push, FLAG_PUSH),
        (meta.pull, FLAG_PULL),
        (meta.simple, FLAG_SIMPLE),
        (meta.refused, FLAG_REFUSED),
    ];
    let buffer = Arc::new(Buffer { _received: Arc::clone(received) });
    show(&Message {
        sender: *sender,
        app: meta.app,
        customer: meta.customer,
        timestamp: meta.timestamp,
        head: meta.head,
        priority: meta.priority,
        value_type: meta.value_type,
        flags: flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag),
        text: payload.text().as_ptr().cast(),
        text_bytes: payload.text().len(),
        keys: payload.keys().as_ptr(),
        key_count: payload.keys().len(),
        values: payload.values().as_ptr().cast(),
        value_bytes: payload.values().len(),
        lengths: payload.lengths().as_ptr(),
        length_count: payload.lengths().len(),
        buffer: Arc::as_ptr(&buffer),
    });
}

/// Notified when the arrays are needed no more.
struct Owner {
    release: unsafe extern "C" fn(owner: *mut c_void),
    owner: *mut c_void,
}

// SAFETY: `libra_send` asks for a function that may be called from any thread, and calls it once.
unsafe impl Send for Owner {}
// SAFETY: nothing is done with it but to drop it.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: as asked for by `libra_send`.
        unsafe { (self.release)(self.owner) }
    }
}

/// Bytes that C owns.
struct Borrowed {
    start: *const u8,
    length: usize,
    _owner: Arc<Owner>,
}

// SAFETY: the bytes do not change until the owner is released, which is not before this is dropped.
unsafe impl Send for Borrowed {}
// SAFETY: as above; they are only read.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see above.
        unsafe { bytes_of(self.start, self.length) }
    }
}

/// # Safety
/// `start` points to as many bytes, or there are none.
unsafe fn bytes_of<'a>(start: *const u8, length: usize) -> &'a [u8] {
    let start = if length == 0 { ptr::dangling() } else { start };
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(start, length) }
}

/// Takes a message over from C. Without a `release` its arrays are copied.
///
/// # Safety
/// Its pointers point to as much as its lengths; with a `release` until that was called.
pub(super) unsafe fn outgoing_of(
    message: &Message,
    release: Release,
    owner: *mut c_void,
) -> Result<OutgoingMessage, CallError> {
    // Whatever happens from here on, it is released.
    let owner = release.map(|release| Arc::new(Owner { release, owner }));
    let section = |start: *const u8, length: usize, what| {
        if length == 0 {
            return Ok(Bytes::default());
        }
        if start.is_null() {
            return Err(CallError::Null { what });
        }
        Ok(match &owner {
            Some(owner) => Bytes::new(Borrowed { start, length, _owner: Arc::clone(owner) }),
            // SAFETY: as the caller promises.
            None => Bytes::new(unsafe { bytes_of(start, length) }.to_vec()),
        })
    };
    let has = |flag| message.flags & flag != 0;
    let meta = Meta {
        app: message.app,
        customer: message.customer,
        timestamp: message.timestamp,
        head: message.head,
        priority: message.priority,
        value_type: message.value_type,
        request: has(FLAG_REQUEST),
        push: has(FLAG_PUSH),
        pull: has(FLAG_PULL),
        simple: has(FLAG_SIMPLE),
        refused: has(FLAG_REFUSED),
        internal: false,
    };
    // Texts are short, and seldom have an owner that outlives the call.
    let text = if message.text_bytes == 0 {
        Bytes::default()
    } else if message.text.is_null() {
        return Err(CallError::Null { what: "text" });
    } else {
        // SAFETY: as the caller promises.
        Bytes::new(unsafe { bytes_of(message.text.cast(), message.text_bytes) }.to_vec())
    };
    Ok(OutgoingMessage {
        meta,
        text,
        keys: section(message.keys.cast(), message.key_count * size_of::<u64>(), "keys")?,
        values: section(message.values.cast(), message.value_bytes, "values")?,
        lengths: section(message.lengths.cast(), message.length_count * size_of::<i32>(), "lengths")?,
    })
}
