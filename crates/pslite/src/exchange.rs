//! Brings messages to customers, and keeps those whose customer is not there yet.

use core::fmt::Display;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::mesh::{Mailbox, MeshError, Node, NodeRole, OutgoingMessage, Payload, Received};

use crate::customer::{Customer, Handler};
use crate::error::CallError;
use crate::hot::{APPLICATION, HotRequests};
use crate::profile::Profile;

/// Application and number.
type Address = (i32, i32);

/// Called once when a process has died.
pub(crate) type FailureHandler = Box<dyn Fn(&str) + Send + Sync>;

/// All customers of a node.
pub(crate) struct Exchange {
    role: NodeRole,
    verbose: u8,
    places: RwLock<Places>,
    on_failure: Mutex<OnFailure>,
    /// Sends requests of a worker of which some keys are hot, if there is a plan.
    hot: OnceLock<Arc<HotRequests>>,
    /// Counts pushes, if a plan of them is wanted.
    profile: Option<Profile>,
}

#[derive(Default)]
struct OnFailure {
    handler: Option<FailureHandler>,
    /// The text of the first death.
    told: Option<String>,
}

#[derive(Default)]
struct Places {
    customers: HashMap<Address, Arc<Customer>>,
    /// Messages for customers that were not there.
    waiting: HashMap<Address, Vec<Received>>,
    failure: Option<MeshError>,
}

impl Exchange {
    pub(crate) fn new(role: NodeRole, verbose: u8, profile: Option<Profile>) -> Self {
        let (places, on_failure) = (RwLock::default(), Mutex::default());
        Self { role, verbose, places, on_failure, hot: OnceLock::new(), profile }
    }

    /// Makes a customer, which gets everything that came for it before.
    pub(crate) fn open(
        &self,
        (app, number): Address,
        node: Node,
        is_held: bool,
        handler: Handler,
    ) -> Result<Arc<Customer>, CallError> {
        let mut places = self.places.write();
        if places.customers.contains_key(&(app, number)) {
            return Err(CallError::CustomerExists { app, customer: number });
        }
        let waiting = places.waiting.remove(&(app, number)).unwrap_or_default();
        let customer = Customer::start(app, number, node, is_held, waiting, handler)?;
        if let Some(failure) = &places.failure {
            customer.tracker.fail(failure);
        }
        places.customers.insert((app, number), Arc::clone(&customer));
        Ok(customer)
    }

    /// Counts pushes for a plan, if one is wanted.
    pub(crate) fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// From now on requests may have hot keys.
    pub(crate) fn set_hot(&self, hot: Arc<HotRequests>) {
        self.hot.get_or_init(|| hot);
    }

    /// Sends a message of a customer.
    pub(crate) fn send(
        &self,
        customer: &Arc<Customer>,
        recipient: i32,
        outgoing: OutgoingMessage,
    ) -> Result<(), MeshError> {
        if let Some(profile) = self.profile.as_ref().filter(|_| outgoing.meta.app == APPLICATION) {
            profile.on_push(&customer.node, &outgoing);
        }
        match self.hot.get() {
            Some(hot) if outgoing.meta.request && outgoing.meta.app == APPLICATION => {
                hot.send(customer, recipient, outgoing)
            }
            _ => customer.node.send(recipient, outgoing),
        }
    }

    pub(crate) fn remove(&self, customer: &Customer) {
        let address = (customer.app, customer.number);
        self.places.write().customers.remove(&address);
    }

    /// Waits until all customers have handled the messages that came for them.
    pub(crate) fn settle(&self, timeout: Duration) {
        for customer in self.customers() {
            customer.settle(timeout);
        }
    }

    /// A handler that is set after a death is called at once.
    pub(crate) fn set_on_failure(&self, handler: FailureHandler) {
        let mut on_failure = self.on_failure.lock();
        match on_failure.told.clone() {
            Some(text) => {
                drop(on_failure);
                handler(&text);
            }
            None => on_failure.handler = Some(handler),
        }
    }

    fn customers(&self) -> Vec<Arc<Customer>> {
        let places = self.places.read();
        places.customers.values().cloned().collect()
    }

    /// Workers may have several customers of an application; elsewhere the one of its number gets everything.
    fn address_of(&self, received: &Received) -> Address {
        let app = received.meta.app;
        if self.role == NodeRole::Worker { (app, received.meta.customer) } else { (app, app) }
    }
}

impl Mailbox for Exchange {
    fn deliver(&self, received: Received) -> Option<Payload> {
        let received = match self.hot.get() {
            Some(hot) if !received.meta.request && received.meta.app == APPLICATION => {
                hot.receive(received)?
            }
            _ => received,
        };
        let address = self.address_of(&received);
        let find = |places: &Places| places.customers.get(&address).cloned();
        let customer = find(&self.places.read());
        if let Some(customer) = customer {
            return customer.deliver(received);
        }
        let mut places = self.places.write();
        match find(&places) {
            Some(customer) => {
                drop(places);
                customer.deliver(received)
            }
            None => {
                places.waiting.entry(address).or_default().push(received);
                None
            }
        }
    }

    fn fail(&self, error: &MeshError) {
        self.places.write().failure = Some(error.clone());
        for customer in self.customers() {
            customer.tracker.fail(error);
        }
        let text = error.to_string();
        let handler = {
            let mut on_failure = self.on_failure.lock();
            on_failure.told = Some(text.clone());
            on_failure.handler.take()
        };
        if let Some(handler) = handler {
            handler(&text);
        }
    }

    fn left(&self, node: i32, error: &MeshError) {
        for customer in self.customers() {
            customer.tracker.left(node, error);
        }
    }

    fn note(&self, level: u8, text: &dyn Display) {
        if level <= self.verbose {
            // In one piece: other processes write there, too.
            let line = format!("libra: {} {}: {text}\n", self.role, std::process::id());
            eprint!("{line}");
        }
    }
}
