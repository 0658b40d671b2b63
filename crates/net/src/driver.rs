//! The loop that drives a role: sockets and clock on one side, the five verbs of the role on the other.

use core::ops::ControlFlow;
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;

use libra_proto::turn::{Drain, DueTimer, Output, STREAM_INPUTS_MAX};
use libra_proto::{Action, Instant, LinkEvent, Outgoing, Role};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tracing::debug;

use crate::datagrams::DatagramSocket;
use crate::door::{Caller, Door, Entrance};
use crate::inspection::Inspections;
use crate::links::{Input, Links};
use crate::sched::set_sched_batch;
use crate::supervisor::Pulse;

/// After so many turns the runtime has one: a socket that is always readable would keep it from looking at streams, so that a switch in
/// a flood of packets would be taken for dead, and long before that its rounds would wait for the shards' answers until banks are full.
const TURNS_MAX: u32 = 4;
/// With nothing to wait for, the loop still looks up this often.
const IDLE: Duration = Duration::from_secs(3600);
/// And with a door this often: streams that were turned away wake no task.
const IDLE_WITH_DOOR: Duration = Duration::from_secs(1);

/// The sockets and streams of a role.
pub(crate) struct Ports {
    /// Port for peers that call.
    pub(crate) entrance: Option<Entrance>,
    pub(crate) datagrams: Option<DatagramSocket>,
    /// Becomes readable when a data plane elsewhere has something for the role to look at.
    pub(crate) wakes: Option<AsyncFd<OwnedFd>>,
    pub(crate) links: Links,
    /// For how long to look again and again before the thread sleeps: to wake a sleeping core takes tens of microseconds.
    pub(crate) busy_poll: Duration,
    /// Tells a service manager that the loop turns.
    pub(crate) pulse: Option<Pulse>,
}

impl Ports {
    /// Streams, and nothing else.
    pub(crate) fn new(links: Links) -> Self {
        Self { entrance: None, datagrams: None, wakes: None, links, busy_poll: Duration::ZERO, pulse: None }
    }
}

/// The clock of the roles: nanoseconds since the driver was made.
struct Clock(tokio::time::Instant);

impl Clock {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn at(&self, instant: Instant) -> tokio::time::Instant {
        self.0 + Duration::from_nanos(instant.as_nanos())
    }
}

/// Drives `role`, which is not watched, until `on_event` breaks with a result.
pub(crate) async fn drive<R: Role, T>(
    role: R,
    ports: Ports,
    commands: mpsc::UnboundedReceiver<R::Command>,
    on_event: impl FnMut(R::Event) -> ControlFlow<T>,
) -> io::Result<T> {
    drive_watched(role, ports, commands, Inspections::none(), on_event).await
}

/// Drives `role` until `on_event` breaks with a result, and answers those who ask for its status.
pub(crate) async fn drive_watched<R: Role, T>(
    mut role: R,
    mut ports: Ports,
    mut commands: mpsc::UnboundedReceiver<R::Command>,
    mut inspections: Inspections<R::Status>,
    mut on_event: impl FnMut(R::Event) -> ControlFlow<T>,
) -> io::Result<T> {
    set_sched_batch();
    let clock = Clock(tokio::time::Instant::now());
    let tally = ports.links.tally();
    let mut door = ports.entrance.take().map(|entrance| Door::open(entrance, tally));
    let idle = if door.is_some() { IDLE_WITH_DOOR } else { IDLE };
    let mut outgoing = Outgoing::default();
    let mut commands_open = true;
    let mut quiet = ports.busy_poll.is_zero();
    let mut due_timer = DueTimer::default();
    let mut turns = 0;
    let timer = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(timer);
    debug!(role = core::any::type_name::<R>(), "a role begins");
    role.handle_start(clock.now());
    loop {
        if let Some(pulse) = &mut ports.pulse {
            pulse.beat();
        }
        if let Some(strangers) = ports.links.take_strangers() {
            role.handle_strangers(clock.now(), strangers);
        }
        turns += 1;
        if turns == TURNS_MAX {
            turns = 0;
            tokio::task::yield_now().await;
        }
        if let ControlFlow::Break(result) =
            drain(&mut role, &mut ports, &clock, &mut outgoing, &mut on_event).await?
        {
            debug!(role = core::any::type_name::<R>(), "a role ends");
            inspections.end(|| role.status(clock.now()));
            ports.links.finish().await;
            return Ok(result);
        }
        // A timer of the runtime that is due fires up to a millisecond late.
        let now = clock.now();
        if role.poll_timeout().is_some_and(|due| due <= now) {
            if due_timer.lets_datagrams_pass()
                && let Some(socket) = &mut ports.datagrams
                && socket.receive_unasked(|from, datagrams, stride| {
                    role.handle_datagrams(now, from, datagrams, stride);
                })?
            {
                due_timer.datagrams_passed();
                continue;
            }
            due_timer.fired();
            role.handle_timeout(now);
            continue;
        }
        let held = ports.datagrams.as_ref().and_then(DatagramSocket::poll_timeout);
        let wake = [role.poll_timeout(), held].into_iter().flatten().min();
        let wake = wake.map_or_else(|| tokio::time::Instant::now() + idle, |wake| clock.at(wake));
        let beat = ports.pulse.as_ref().and_then(Pulse::due);
        timer.as_mut().reset(beat.map_or(wake, |beat| wake.min(beat.into())));
        let was_quiet = core::mem::replace(&mut quiet, ports.busy_poll.is_zero());
        tokio::select! {
            readable = readable(ports.datagrams.as_ref()) => {
                readable?;
                let socket = ports.datagrams.as_mut().expect("only a socket becomes readable");
                let now = clock.now();
                socket.receive(|from, datagrams, stride| role.handle_datagrams(now, from, datagrams, stride))?;
            }
            woken = woken(ports.wakes.as_ref()) => {
                woken?;
                role.handle_timeout(clock.now());
            }
            input = ports.links.next() => {
                let mut next = Some(input);
                let mut left = STREAM_INPUTS_MAX;
                while let Some((link, input)) = next {
                    match input {
                        Input::Event(event) => {
                            if !matches!(event, LinkEvent::Opened { .. }) {
                                ports.links.close(link);
                            }
                            role.handle_link(clock.now(), link, event);
                        }
                        Input::Message(message) => role.handle_message(clock.now(), link, message),
                    }
                    left -= 1;
                    next = if left > 0 { ports.links.try_next() } else { None };
                }
            }
            command = commands.recv(), if commands_open => match command {
                Some(command) => role.handle_command(clock.now(), command),
                None => commands_open = false,
            },
            request = inspections.next(), if inspections.is_watched() => {
                // Who has asked may have lost patience.
                let _ = request.send(role.status(clock.now()));
            }
            caller = next_caller(door.as_mut()) => ports.links.accept(caller),
            // The top of the loop looks for timers that are due.
            () = &mut timer => {}
            () = look_again(ports.busy_poll), if !was_quiet => quiet = true,
        }
    }
}

/// Carries out everything that the role wants done.
async fn drain<R: Role, T>(
    role: &mut R,
    ports: &mut Ports,
    clock: &Clock,
    outgoing: &mut Outgoing,
    on_event: &mut impl FnMut(R::Event) -> ControlFlow<T>,
) -> io::Result<ControlFlow<T>> {
    if let Some(socket) = &mut ports.datagrams
        && socket.poll_timeout().is_some_and(|due| due <= clock.now())
    {
        // Datagrams that faults held back until now; a failure comes again with the next burst.
        let _ = socket.send(clock.now(), outgoing).await;
    }
    let mut drain = if ports.datagrams.is_some() { Drain::new() } else { Drain::without_datagrams() };
    while let Some(output) = drain.next(role, clock.now(), outgoing) {
        match output {
            Output::Datagrams => {
                let socket = ports.datagrams.as_mut().expect("without a socket none are asked for");
                if let Err(error) = socket.send(clock.now(), outgoing).await {
                    debug!(%error, "the socket for datagrams is given up");
                    ports.datagrams = None;
                    outgoing.clear();
                    role.handle_socket_failure(clock.now(), &error.to_string());
                    drain = Drain::without_datagrams();
                }
            }
            Output::Action(Action::Connect { link, to }) => ports.links.connect(link, to),
            Output::Action(Action::Send { link, message }) => ports.links.send(link, &message),
            Output::Action(Action::Admit { link, message_bytes_max }) => {
                ports.links.admit(link, message_bytes_max);
            }
            Output::Action(Action::Close { link }) => ports.links.close(link),
            Output::Event(event) => {
                if let ControlFlow::Break(result) = on_event(event) {
                    return Ok(ControlFlow::Break(result));
                }
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Has the runtime look for inputs again and again, without sleep.
async fn look_again(time: Duration) {
    let until = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < until {
        tokio::task::yield_now().await;
    }
}

async fn readable(socket: Option<&DatagramSocket>) -> io::Result<()> {
    match socket {
        Some(socket) => socket.readable().await,
        None => core::future::pending().await,
    }
}

async fn woken(wakes: Option<&AsyncFd<OwnedFd>>) -> io::Result<()> {
    match wakes {
        // The role takes what made it readable; then it sleeps until there is more.
        Some(wakes) => wakes.readable().await.map(|mut ready| ready.clear_ready()),
        None => core::future::pending().await,
    }
}

/// Returns the next stream whose other end has identified itself.
async fn next_caller(door: Option<&mut Door>) -> Caller {
    match door {
        Some(door) => door.next().await,
        None => core::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
