//! The functions of `include/libra.h`: pointers in, status out.
//!
//! All take pointers from C and rely on the conditions of their documentation: that a handle was made by this library and not freed, that a
//! pointer with a length points to as much, and that a callback and its context may be used from any thread until the handle is closed.
#![expect(unsafe_code, reason = "this is the border to C")]
#![expect(clippy::missing_safety_doc, reason = "the conditions are the same for all, and stated above")]

mod customer;
mod message;
mod node;
mod status;

pub use customer::*;
pub use message::*;
pub use node::*;
pub use status::*;
