//! A process of a cluster.

use core::ffi::{c_char, c_void};
use core::time::Duration;
use std::ffi::{CStr, CString};
use std::sync::Arc;

use crate::mesh::{self, Mailbox, NodeRole};

use super::status::{Status, guard};
use crate::environment;
use crate::error::CallError;
use crate::exchange::Exchange;
use crate::hot::{Job, Preparation};
use crate::profile::Profile;

/// Time for handlers to handle messages that have come, when a node is closed.
const SETTLE: Duration = Duration::from_secs(10);

/// The line of a program for which LIBRA_INSECURE is set.
const INSECURE: &str =
    "warning: LIBRA_INSECURE: any process that reaches a port of this program may join, read and change it";

/// A process of a cluster: the scheduler, a server or a worker.
pub struct Node {
    pub(super) node: mesh::Node,
    pub(super) exchange: Arc<Exchange>,
    job: Job,
}

/// Role of a process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Numbers all nodes, and holds the barriers.
    Scheduler = 0,
    /// Answers requests of workers.
    Server = 1,
    /// Makes requests.
    Worker = 2,
}

/// Called when another process has died: `message` names it, and lives until the callback returns.
pub type FailureCallback = Option<unsafe extern "C" fn(context: *mut c_void, message: *const c_char)>;

pub(super) unsafe fn reference<'a, T>(pointer: *const T, what: &'static str) -> Result<&'a T, CallError> {
    // SAFETY: pointers of callers are null or valid.
    unsafe { pointer.as_ref() }.ok_or(CallError::Null { what })
}

pub(super) unsafe fn write<T>(to: *mut T, value: T, what: &'static str) -> Result<(), CallError> {
    if to.is_null() {
        return Err(CallError::Null { what });
    }
    // SAFETY: pointers of callers are null or valid.
    unsafe { to.write(value) };
    Ok(())
}

unsafe fn text<'a>(pointer: *const c_char, what: &'static str) -> Result<&'a str, CallError> {
    if pointer.is_null() {
        return Err(CallError::Null { what });
    }
    // SAFETY: a text of a caller ends with a zero.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| CallError::NotText { what })
}

/// Sets a variable for this library alone; it goes before the one of the process. For libra_node_open, which reads them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_environment_set(name: *const c_char, value: *const c_char) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        environment::set(name, value);
        Ok(())
    })
}

/// Opens the node of this process, with the role of DMLC_ROLE and the other variables, and calls the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_open(node: *mut *mut Node) -> Status {
    guard(|| {
        let environment::Configuration { node: settings, verbose, is_insecure, switch, job, profile } =
            environment::read()?;
        let profile = profile.map(Profile::new);
        let exchange = Arc::new(Exchange::new(settings.role, verbose, profile));
        if is_insecure {
            exchange.note(0, &INSECURE);
        }
        let preparation = switch.as_ref().map(|switch| Preparation::new(switch, &settings.security));
        let preparation = preparation.transpose()?;
        let notice = preparation.as_ref().map_or_else(String::new, |prepared| prepared.address().to_string());
        let settings = mesh::NodeSettings { notice, ..settings };
        let opened = mesh::Node::open(settings, Arc::clone(&exchange) as Arc<dyn Mailbox>)?;
        let opened =
            Box::into_raw(Box::new(Node { node: opened, exchange, job: Job::new(job, preparation) }));
        // SAFETY: see the module above.
        unsafe { write(node, opened, "node") }.inspect_err(|_| {
            // SAFETY: there is no other pointer to it.
            drop(unsafe { Box::from_raw(opened) });
        })
    })
}

/// Takes a place, and waits until all processes have one and, if the scheduler has a plan, a switch is there. Each further customer of a worker that takes part in barriers calls it, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_join(node: *const Node) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let Node { node, exchange, job } = unsafe { reference(node, "node") }?;
        node.join()?;
        exchange.profile().map_or(Ok(()), |profile| profile.begin(node))?;
        job.begin(node, exchange)
    })
}

/// Waits until all nodes of a group have called this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_barrier(node: *const Node, group: i32) -> Status {
    // SAFETY: see the module above.
    guard(|| Ok(unsafe { reference(node, "node") }?.node.barrier(group)?))
}

/// Lets handlers finish messages that have come, takes leave of all processes, and ends all connections. The handle stays, for customers to be
/// closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_close(node: *const Node) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let node = unsafe { reference(node, "node") }?;
        node.exchange.settle(SETTLE);
        node.job.end(&node.node, SETTLE, &node.exchange);
        let written = node.exchange.profile().map_or(Ok(()), |profile| profile.end(&node.node));
        node.node.close();
        written
    })
}

/// Frees a node that was closed, and whose customers are freed. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_free(node: *mut Node) {
    if !node.is_null() {
        // SAFETY: see the module above.
        drop(unsafe { Box::from_raw(node) });
    }
}

/// The role of this process; a scheduler if `node` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_role(node: *const Node) -> Role {
    // SAFETY: see the module above.
    match unsafe { node.as_ref() }.map(|node| node.node.role()) {
        Some(NodeRole::Worker) => Role::Worker,
        Some(NodeRole::Server) => Role::Server,
        _ => Role::Scheduler,
    }
}

/// The number of this node: 1 for the scheduler, 8, 10, 12, .. for servers, 9, 11, 13, .. for workers; 0 before it has joined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_id(node: *const Node) -> i32 {
    // SAFETY: see the module above.
    unsafe { node.as_ref() }.map_or(0, |node| node.node.id())
}

/// The number of workers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_workers(node: *const Node) -> i32 {
    // SAFETY: see the module above.
    unsafe { node.as_ref() }.map_or(0, |node| i32::from(node.node.workers()))
}

/// The number of servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_servers(node: *const Node) -> i32 {
    // SAFETY: see the module above.
    unsafe { node.as_ref() }.map_or(0, |node| i32::from(node.node.servers()))
}

/// Writes as many of these numbers as fit, and how many there are.
unsafe fn write_numbers(
    numbers: &[i32],
    to: *mut i32,
    room: usize,
    count: *mut usize,
) -> Result<(), CallError> {
    // SAFETY: as the caller promises.
    unsafe { write(count, numbers.len(), "count") }?;
    if room < numbers.len() {
        return Err(CallError::TooSmall { room, needed: numbers.len() });
    }
    if !numbers.is_empty() {
        if to.is_null() {
            return Err(CallError::Null { what: "ids" });
        }
        // SAFETY: there is room, as was checked.
        unsafe { core::ptr::copy_nonoverlapping(numbers.as_ptr(), to, numbers.len()) };
    }
    Ok(())
}

/// The nodes of a group: 1 for the scheduler, 2 for servers, 4 for workers, or a sum of these; or one node by itself. `count` is their
/// number, even if `room` is not enough for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_ids(
    node: *const Node,
    group: i32,
    ids: *mut i32,
    room: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let numbers = unsafe { reference(node, "node") }?.node.ids_of(group)?;
        // SAFETY: likewise.
        unsafe { write_numbers(&numbers, ids, room, count) }
    })
}

/// The nodes that have died, or that were silent for so many seconds: of all at the scheduler, of the scheduler elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_dead(
    node: *const Node,
    seconds: u32,
    ids: *mut i32,
    room: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let node = unsafe { reference(node, "node") }?;
        let numbers = node.node.dead_nodes(Duration::from_secs(u64::from(seconds)));
        // SAFETY: likewise.
        unsafe { write_numbers(&numbers, ids, room, count) }
    })
}

/// LIBRA_STATUS_OK as long as no process has died.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_failure(node: *const Node) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let failure = unsafe { reference(node, "node") }?.node.failure();
        failure.map_or(Ok(()), |failure| Err(failure.into()))
    })
}

/// The context of a callback.
pub(super) struct Context(pub(super) *mut c_void);

// SAFETY: it is documented that callbacks come from other threads.
unsafe impl Send for Context {}
// SAFETY: likewise.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Has a callback called once if a process dies, from a thread of the library; if one has died already, before this returns. Calls that
/// wait return the error anyway; this is for code that waits for something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libra_node_on_failure(
    node: *const Node,
    callback: FailureCallback,
    context: *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: see the module above.
        let node = unsafe { reference(node, "node") }?;
        let callback = callback.ok_or(CallError::Null { what: "callback" })?;
        let context = Context(context);
        node.exchange.set_on_failure(Box::new(move |text| {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // SAFETY: see the module above.
            unsafe { callback(context.get(), text.as_ptr()) }
        }));
        Ok(())
    })
}
