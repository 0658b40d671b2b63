//! Faults of processes and machines of a [`World`]: processes crash, sleep and start again, machines lose their power.

use core::time::Duration;

use libra_proto::Role;

use crate::disks::ServerStorage;
use crate::network::Host;
use crate::observer::Observer;
use crate::process::{Actor, AnyRole, Input, Item, Process, with_role};
use crate::streams::KEEP_ALIVE;
use crate::world::{Happening, NEVER, World};

impl<O: Observer> World<O> {
    /// Starts a process on a host, whose machine has power from then on. One that runs there is killed first.
    pub fn start(&mut self, host: Host, role: AnyRole) {
        self.start_process(host, role, None);
    }

    /// The same, with what it has on its disk.
    pub(crate) fn start_process(&mut self, host: Host, role: AnyRole, storage: Option<ServerStorage>) {
        self.crash(host);
        self.note_of(host, "starts");
        self.hash.event(self.now, host, 9);
        let machine = &mut self.machines[host];
        let actor = Actor { host, before: machine.started };
        machine.started += 1;
        self.observer.process_starts(self.now, actor, &role);
        machine.process = Some(Process::new(actor, role, self.now, storage));
        if !machine.powered {
            machine.powered = true;
            // The new kernel has none of the old streams, and resets those that the other ends still have.
            for (stream, end) in
                self.streams.find(|end, other| end.actor.host == host && !end.open && other.open)
            {
                self.say_closed(stream, 1 - end, "connection reset");
            }
        }
        self.retry_attempts();
        self.act(host, |role, now| with_role!(role, role => role.handle_start(now)));
    }

    /// The process of a host is gone, without a word of its own. The kernel resets its streams.
    pub fn crash(&mut self, host: Host) {
        for (stream, end) in self.end_process(host) {
            // A reset may overtake what was sent before it.
            self.streams.end(stream, 1 - end).discards = self.random.chance(0.5);
            self.say_closed(stream, 1 - end, "connection reset");
        }
    }

    /// The process of a host comes to its end by itself: what it has sent still arrives.
    pub fn exit(&mut self, host: Host) {
        for (stream, end) in self.end_process(host) {
            self.say_closed(stream, 1 - end, "closed by the other end");
        }
    }

    /// A host loses its power: no peer is notified.
    pub fn fail_machine(&mut self, host: Host) {
        let streams = self.end_process(host);
        self.machines[host].powered = false;
        if let Some(disk) = &self.machines[host].disk {
            disk.crash();
        }
        for (stream, end) in streams {
            // If it stays away, keep-alives notice; until then the other end may detect it in other ways.
            let item = Item::Closed { reason: "connection timed out" };
            self.schedule(self.now + KEEP_ALIVE, Happening::Stream { stream, end: 1 - end, item });
        }
    }

    /// Takes a process away. Returns its ends of the streams it had.
    fn end_process(&mut self, host: Host) -> Vec<(usize, usize)> {
        let Some(process) = self.machines[host].process.take() else { return Vec::new() };
        self.note_of(host, "is gone");
        self.hash.event(self.now, host, 10);
        self.observer.process_ends(self.now, process.actor);
        self.wakes[host] = NEVER;
        self.attempts.retain(|_, attempt| attempt.from != host);
        let streams: Vec<(usize, usize)> = process.links.into_values().collect();
        for (stream, end) in &streams {
            self.streams.end(*stream, *end).open = false;
        }
        streams
    }

    /// A process goes to sleep: what arrives waits for it, its timers do not fire, its streams stay open.
    pub fn pause(&mut self, host: Host) {
        let Some(process) = &mut self.machines[host].process else { return };
        process.pause();
        self.wakes[host] = NEVER;
        self.hash.event(self.now, host, 11);
        self.note_of(host, "sleeps");
    }

    /// A process wakes up, with old ideas. Its late timer fires before or after it learns what it has missed.
    pub fn resume(&mut self, host: Host) {
        let Some(process) = self.machines[host].process.as_mut().filter(|process| process.is_paused()) else {
            return;
        };
        let inbox = process.resume();
        self.hash.event(self.now, host, 12);
        self.note_of(host, "wakes up");
        let timer_first = self.random.chance(0.5);
        if timer_first {
            self.fire_late(host);
        }
        let mut inbox = inbox.into_iter().peekable();
        while let Some(input) = inbox.next() {
            match input {
                Input::Stream { stream, end, item } => self.hand_in_item(stream, end, item),
                Input::Datagram { from, bytes: mut burst } => {
                    let stride = burst.len();
                    let mut last = stride;
                    // What waits together is received together.
                    while let Some(Input::Datagram { bytes, .. }) = inbox.next_if(|next| {
                        matches!(next, Input::Datagram { from: other, bytes }
                            if *other == from && last == stride && bytes.len() <= stride && burst.len() < 1 << 16)
                    }) {
                        last = bytes.len();
                        burst.extend_from_slice(&bytes);
                    }
                    self.hand_in_datagrams(host, from, burst, stride);
                }
            }
        }
        self.fire_late(host);
    }

    /// The clock of a process jumps ahead, as that of a machine that was suspended or moved: many of its timers are over at once. What is on
    /// its way may arrive before it notices.
    pub fn jump_clock(&mut self, host: Host, by: Duration) {
        let noticed_at = self.now + self.random.up_to(Duration::from_millis(5));
        let Some(process) = &mut self.machines[host].process else { return };
        process.jump(by);
        if !process.is_paused() {
            let due = process.wakes_at().unwrap_or(NEVER);
            self.wakes[host] = if due <= self.now { noticed_at } else { due };
        }
        self.hash.event(self.now, host, 13);
        self.note_of(host, &format!("has a clock that jumps by {by:?}"));
    }

    /// Wakes a process whose timer is over.
    fn fire_late(&mut self, host: Host) {
        let due = self.machines[host].process.as_ref().and_then(Process::wakes_at);
        if due.is_some_and(|due| due <= self.now) {
            self.act(host, AnyRole::handle_timeout);
        } else {
            self.act(host, |_, _| {});
        }
    }

    /// True if a process runs on a host and is awake.
    pub fn is_awake(&self, host: Host) -> bool {
        self.machines[host].process.as_ref().is_some_and(|process| !process.is_paused())
    }

    /// True if a process runs on a host, awake or not.
    pub fn is_alive(&self, host: Host) -> bool {
        self.machines[host].process.is_some()
    }
}
