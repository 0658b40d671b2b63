//! The side of a process that others watch: metrics, health and status over HTTP, and events in a file.

use core::convert::Infallible;
use core::str::FromStr;
use std::net::{AddrParseError, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use clap::Args;
use libra_models::Quality;
use libra_monitor::{
    Event, EventFile, EventSender, EventsTo, HttpPort, HttpServer, HttpToken, Kind, WatchError, Watched,
};
use libra_net::{Inspector, NodeError};
use libra_proto::{
    ControllerCommand, ControllerEvent, ControllerStatus, MemberEvent, MemberStatus, Outcome, PathChange,
    Peer, ServerEvent,
};
use serde_json::Value;

use crate::progress::Bars;
use crate::{exit, interrupt};

/// Options of every process that can be watched.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Watching")]
pub struct WatchArguments {
    /// Address at which the process answers requests over HTTP: /metrics, /healthz, /readyz, /status, and at a controller /sd.
    /// Port 0 is any free one. By default a controller answers on loopback, and a member not at all
    #[arg(long, value_name = "IP:PORT|off")]
    http: Option<HttpAt>,
    /// Seconds for which it still answers after its end, so that a last scrape has its last counts
    #[arg(long, value_name = "S", default_value_t = 0)]
    http_linger: u64,
    /// File to whose end events are added as JSON Lines, and once a second the counts; `-` is standard output
    #[arg(long, value_name = "FILE|-", value_parser = parse_events)]
    events: Option<EventsTo>,
}

/// Options of a controller beside.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Watching")]
pub struct CommandArguments {
    /// File with the token of those who may command the job over HTTP (`libra job`). Without it no commands are taken
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
}

fn parse_events(text: &str) -> Result<EventsTo, Infallible> {
    text.parse()
}

/// Place at which requests over HTTP are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpAt {
    Off,
    Address(SocketAddr),
}

impl FromStr for HttpAt {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" { Ok(Self::Off) } else { text.parse().map(Self::Address) }
    }
}

/// The watched side of a process that is a member.
pub struct MemberWatch {
    inspector: Option<Inspector<MemberStatus>>,
    end: End,
}

/// The watched side of a controller.
pub struct ControllerWatch {
    inspector: Option<Inspector<ControllerStatus>>,
    members: Option<Inspector<MemberStatus>>,
    port: Option<HttpPort>,
    token: Option<HttpToken>,
    bars: Bars,
    end: End,
}

/// Parts that end with the process.
struct End {
    http: Option<HttpServer>,
    events: Option<EventFile>,
    linger: Duration,
    began: Instant,
}

impl End {
    fn new(arguments: &WatchArguments) -> Self {
        let linger = Duration::from_secs(arguments.http_linger);
        Self { http: None, events: None, linger, began: Instant::now() }
    }

    fn send(&self, member: Option<Peer>, event: Event) {
        if let Some(events) = &self.events {
            events.sender().send(member, event);
        }
    }

    /// Writes the last events, and answers requests for as long as it was asked to.
    fn finish(self) {
        drop(self.events);
        if self.http.is_some() {
            thread::sleep(self.linger);
        }
    }
}

impl WatchArguments {
    /// Begins to answer for a member of this kind, if it is asked to.
    ///
    /// # Errors
    /// The address cannot be had, or the file of events cannot be opened.
    pub fn member(&self, kind: Kind, bars: Bars) -> Result<MemberWatch> {
        let port = match self.http {
            Some(HttpAt::Address(address)) => Some(HttpPort::bind(address)?),
            Some(HttpAt::Off) | None => None,
        };
        let watch =
            libra_monitor::MemberWatch::start(kind, port, self.events.as_ref(), trouble(kind.name(), bars));
        let libra_monitor::MemberWatch { inspector, http, events } = watch.map_err(|error| match error {
            WatchError::Http(error) => error.into(),
            WatchError::Events(error) => Error::new(error).context("--events"),
        })?;
        if let Some(http) = &http {
            bars.line(&format!("{kind}: metrics and status at http://{}", http.address()));
        }
        Ok(MemberWatch { inspector, end: End { http, events, ..End::new(self) } })
    }

    /// Prepares to answer for a controller: by default on loopback, if `is_default`.
    ///
    /// # Errors
    /// The address cannot be had, or a file cannot be used.
    pub fn controller(
        &self,
        commands: &CommandArguments,
        is_default: bool,
        bars: Bars,
    ) -> Result<ControllerWatch> {
        let mut end = End::new(self);
        let token = commands.http_token_file.as_deref().map(HttpToken::read).transpose()?;
        let port = match self.http {
            Some(HttpAt::Off) => None,
            Some(HttpAt::Address(address)) => Some(HttpPort::bind(address)?),
            // A machine without room for it can train.
            None if is_default => HttpPort::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).ok(),
            None => None,
        };
        if port.is_none() && self.events.is_none() {
            return Ok(ControllerWatch { inspector: None, members: None, port, token, bars, end });
        }
        let inspector = Inspector::new(port.as_ref().map(HttpPort::address));
        if let Some(to) = &self.events {
            let (role, watched) = ("controller", Watched::Controller(inspector.clone()));
            let events = EventFile::start(to, role, watched, trouble(role, bars)).context("--events")?;
            end.events = Some(events);
        }
        Ok(ControllerWatch { inspector: Some(inspector), members: None, port, token, bars, end })
    }
}

/// Tells a person that events cannot be written.
fn trouble(role: &'static str, bars: Bars) -> impl FnMut(&str) + Send + 'static {
    move |trouble| bars.line(&format!("{role}: {trouble}"))
}

impl MemberWatch {
    /// Returns what asks the roles of the process, if any is to be asked.
    pub fn inspector(&self) -> Option<Inspector<MemberStatus>> {
        self.inspector.clone()
    }

    /// Returns a way to report events, if they are written.
    pub fn events(&self) -> Option<EventSender> {
        self.end.events.as_ref().map(EventFile::sender)
    }

    /// The member has ended.
    pub fn finish(self) {
        self.end.finish();
    }
}

impl ControllerWatch {
    /// Returns what asks the controller, if it is to be asked.
    pub fn inspector(&self) -> Option<Inspector<ControllerStatus>> {
        self.inspector.clone()
    }

    /// Returns what asks the members in this process, if they are to be asked: their metrics are beside those of the controller.
    pub fn members(&mut self) -> Option<Inspector<MemberStatus>> {
        self.members = self.port.is_some().then(|| Inspector::new(None));
        self.members.clone()
    }

    /// Returns a way to report events, if they are written.
    pub fn events(&self) -> Option<EventSender> {
        self.end.events.as_ref().map(EventFile::sender)
    }

    /// Begins to answer. Commands of those who have the token go to `command`, which returns false once the job is over.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn serve(
        &mut self,
        command: impl Fn(ControllerCommand) -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        let Some((port, inspector)) = self.port.take().zip(self.inspector()) else { return Ok(()) };
        let server = port.serve_controller(inspector, self.members.clone(), command, self.token.take())?;
        self.bars.line(&format!("controller: metrics and status at http://{}", server.address()));
        self.end.http = Some(server);
        Ok(())
    }

    /// Reports the end of the job: its outcome and what the front end makes of it, or why it has failed.
    pub fn ended(&self, result: Result<(&Outcome, Value), String>) {
        self.end.send(
            None,
            match result {
                Ok((outcome, epochs)) => Event::job_done(outcome, self.end.began.elapsed(), epochs),
                Err(reason) => Event::JobFailed { reason },
            },
        );
    }

    /// SIGINT ends the process from now on, with the job and its last event, until there is another [reaction](interrupt::on_first).
    pub fn fail_when_interrupted(&self) {
        let events = self.events();
        interrupt::on_first(move || fail_at_once(events.as_ref(), "interrupted", exit::INTERRUPTED));
    }

    /// The same for SIGTERM: the whole job is in this process, and is gone with it.
    pub fn fail_when_terminated(&self) {
        let events = self.events();
        interrupt::on_terminate(move || {
            exit::report("libra", "terminated");
            fail_at_once(events.as_ref(), "terminated", exit::AGAIN);
        });
    }

    /// The controller has ended.
    pub fn finish(self) {
        self.end.finish();
    }
}

fn fail_at_once(events: Option<&EventSender>, reason: &str, code: u8) -> ! {
    if let Some(events) = events {
        events.send_last(Event::JobFailed { reason: reason.to_owned() });
    }
    exit::at_once(code)
}

/// Reports an event of a server or switch, if events are written.
pub fn report_member(events: Option<&EventSender>, event: &MemberEvent) {
    let member = match event {
        MemberEvent::Started { you } => Some(*you),
        _ => None,
    };
    if let Some((events, event)) = events.zip(Event::of_member(event)) {
        events.send(member, event);
    }
}

/// Reports an event of a server, if events are written.
pub fn report_server(events: Option<&EventSender>, event: &ServerEvent) {
    match event {
        ServerEvent::Member(event) => report_member(events, event),
        event => {
            if let Some((events, event)) = events.zip(Event::of_server(event)) {
                events.send(None, event);
            }
        }
    }
}

/// Reports that a worker has evaluated its part of the test data, if events are written.
pub fn report_quality(events: Option<&EventSender>, worker: Peer, epoch: u32, quality: &Quality) {
    if let Some(events) = events {
        let measures = quality.measures();
        let quality = measures.iter().map(|measure| (measure.key.to_string(), measure.value)).collect();
        events.send(Some(worker), Event::EpochEvaluated { epoch, quality });
    }
}

/// Reports that the job was done before this worker came, if events are written.
pub fn report_done(events: Option<&EventSender>) {
    if let Some(events) = events {
        events.send(None, Event::MemberDone { counts: None });
    }
}

/// Reports that packets of a worker have another length, if events are written.
pub fn report_path_change(events: Option<&EventSender>, worker: Peer, change: &PathChange) {
    if let Some(events) = events {
        events.send(Some(worker), Event::path_changed(change));
    }
}

/// Reports the end of a worker, if events are written.
pub fn report_end(events: Option<&EventSender>, worker: Peer, ended: &Result<()>) {
    let Some(events) = events else { return };
    events.send(
        Some(worker),
        match ended {
            Ok(()) => Event::MemberDone { counts: None },
            Err(error) if error.downcast_ref::<NodeError>().is_some_and(NodeError::is_drained) => {
                Event::MemberDrained { unsaved: None }
            }
            Err(error) => Event::MemberFailed { reason: format!("{error:#}") },
        },
    );
}

/// Reports an event of a controller, if events are written.
pub fn report(events: Option<&EventSender>, event: &ControllerEvent) {
    if let Some((events, event)) = events.zip(Event::of_controller(event)) {
        events.send(None, event);
    }
}
