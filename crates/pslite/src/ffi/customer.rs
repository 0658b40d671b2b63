//! Customers, and the messages between them.

use core::ffi::c_void;
use core::slice;
use std::sync::Arc;

use super::message::{Message, Release, outgoing_of, with_message};
use super::node::{Context, Node, reference, write};
use super::status::{Status, guard};
use crate::customer;
use crate::error::CallError;
use crate::exchange::Exchange;

/// One customer of an application: requests of its own, and a thread that handles messages for it, in order.
pub struct Customer {
    customer: Arc<customer::Customer>,
    exchange: Arc<Exchange>,
}

/// Called with every message, from the thread of the customer: the next one waits until it returns. A response counts for
/// libra_customer_wait once it has returned. It must not throw or jump.
pub type MessageCallback = Option<unsafe extern "C" fn(context: *mut c_void, message: *const Message)>;

/// Makes a customer. Workers may have several of one application; elsewhere the one whose number is that of the application gets all its
/// messages. Earlier messages are not lost. If `held` is not 0, nothing is handled before libra_customer_release or libra_customer_serve_sums.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_open(
    node: *const Node,
    app: i32,
    number: i32,
    callback: MessageCallback,
    context: *mut c_void,
    held: i32,
    customer: *mut *mut Customer,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let node = unsafe { reference(node, "node") }?;
        let callback = callback.ok_or(CallError::Null { what: "callback" })?;
        if customer.is_null() {
            return Err(CallError::Null { what: "customer" });
        }
        let context = Context(context);
        let handler: customer::Handler = Box::new(move |received| {
            // SAFETY: see the module above.
            with_message(received, |message| unsafe { callback(context.get(), message) });
        });
        let opened = node.exchange.open((app, number), node.node.clone(), held != 0, handler)?;
        let opened = Box::new(Customer { customer: opened, exchange: Arc::clone(&node.exchange) });
        // SAFETY: see the module above.
        unsafe { write(customer, Box::into_raw(opened), "customer") }
    })
}

/// Handles messages that have come, and everything from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_release(customer: *const Customer) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        unsafe { reference(customer, "customer") }?.customer.release();
        Ok(())
    })
}

/// Has the library answer requests with keys, in place of the callback: each key has a sum of all floats that were pushed to it. They begin with
/// `count` values; all others with zero. Ignored the second time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_serve_sums(
    customer: *const Customer,
    keys: *const u64,
    values: *const f32,
    count: usize,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let customer = unsafe { reference(customer, "customer") }?;
        if count == 0 {
            customer.customer.serve_sums(&[], &[]);
            return Ok(());
        }
        if keys.is_null() || values.is_null() {
            return Err(CallError::Null { what: "keys and values" });
        }
        // SAFETY: see the module above.
        let (keys, values) =
            unsafe { (slice::from_raw_parts(keys, count), slice::from_raw_parts(values, count)) };
        customer.customer.serve_sums(keys, values);
        Ok(())
    })
}

/// Handles messages that have come, stops, and frees the customer. No callback is running any more when it returns, unless it was called from one.
/// Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_close(customer: *mut Customer) {
    if !customer.is_null() {
        // SAFETY: see the module above.
        let customer = unsafe { Box::from_raw(customer) };
        customer.exchange.remove(&customer.customer);
        customer.customer.close();
    }
}

/// Numbers a request to which `answers` nodes will respond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_begin(
    customer: *const Customer,
    answers: usize,
    timestamp: *mut i32,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let customer = unsafe { reference(customer, "customer") }?;
        if timestamp.is_null() {
            return Err(CallError::Null { what: "timestamp" });
        }
        // SAFETY: likewise.
        unsafe { write(timestamp, customer.customer.tracker.begin(answers), "timestamp") }
    })
}

/// Waits until a request has all its responses, and their callbacks have returned. Not LIBRA_STATUS_OK if a server has refused it, or
/// a process has died.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_wait(customer: *const Customer, timestamp: i32) -> Status {
    // SAFETY: see the module above.
    guard(|| unsafe { reference(customer, "customer") }?.customer.wait(timestamp))
}

/// The number of responses to a request that have been handled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_answers(customer: *const Customer, timestamp: i32) -> usize {
    // SAFETY: see the module above.
    unsafe { customer.as_ref() }.map_or(0, |customer| customer.customer.answers(timestamp))
}

/// Counts responses that no node will send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_customer_add_answers(
    customer: *const Customer,
    timestamp: i32,
    count: usize,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let customer = unsafe { reference(customer, "customer") }?;
        customer.customer.tracker.answered(timestamp, None, count, None);
        Ok(())
    })
}

/// Sends a message to a node: a request, or the response to one. It arrives once, and after all that this process has sent to that node before.
/// Without `release` its arrays are copied; otherwise they must not change until `release(owner)` was called, which happens once, even if
/// the call does not end well. If a request of this customer cannot be sent, the wait for it ends, too. `sender` and `buffer` of the message
/// are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_send(
    customer: *const Customer,
    recipient: i32,
    message: *const Message,
    release: Release,
    owner: *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let message = unsafe { reference(message, "message") }?;
        // SAFETY: likewise; before anything else may fail, so that it is released.
        let outgoing = unsafe { outgoing_of(message, release, owner) }?;
        // SAFETY: likewise.
        let Customer { customer, exchange } = unsafe { reference(customer, "customer") }?;
        let (timestamp, is_own) =
            (outgoing.meta.timestamp, outgoing.meta.request && outgoing.meta.customer == customer.number);
        if is_own {
            customer.tracker.asked(timestamp, recipient);
        }
        exchange.send(customer, recipient, outgoing).map_err(|error| {
            let error = CallError::from(error);
            if is_own {
                customer.tracker.refuse(timestamp, error.clone());
            }
            error
        })
    })
}
