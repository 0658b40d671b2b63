//! The end of a file of events.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use libra_proto::Peer;
use serde::Serialize;

use super::{Event, EventsTo, Line};

/// Writes lines, whole ones only.
pub(super) struct Writer {
    to: To,
    on_trouble: Box<dyn FnMut(&str) + Send>,
    has_failed: bool,
}

enum To {
    /// A file that can be cut, and the length of its whole lines.
    File { file: File, end: u64 },
    /// A pipe, a terminal: what is written is gone.
    Stream(Box<dyn Write + Send>),
}

/// Everything of a line.
#[derive(Serialize)]
struct Written<'a> {
    time: String,
    #[serde(flatten)]
    event: &'a Event,
    role: &'a str,
    member: Option<String>,
}

impl Writer {
    pub(super) fn open(to: &EventsTo, on_trouble: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        let to = match to {
            EventsTo::StandardOutput => To::Stream(Box::new(io::stdout())),
            EventsTo::File(path) => {
                let mut file = OpenOptions::new().create(true).append(true).open(path)?;
                if file.metadata()?.is_file() {
                    let end = file.seek(SeekFrom::End(0))?;
                    To::File { file, end }
                } else {
                    To::Stream(Box::new(file))
                }
            }
        };
        Ok(Self { to, on_trouble: Box::new(on_trouble), has_failed: false })
    }

    /// Writes an event, or counts it as lost.
    pub(super) fn write(&mut self, role: &str, line: &Line, lost: &AtomicU64) {
        let lost_before = lost.load(Ordering::Relaxed);
        if lost_before > 0 {
            let gap = Line { member: None, event: Event::LinesLost { count: lost_before }, time: line.time };
            if self.write_line(role, &gap).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            lost.fetch_sub(lost_before, Ordering::Relaxed);
        }
        match self.write_line(role, line) {
            Ok(()) if core::mem::take(&mut self.has_failed) => {
                (self.on_trouble)(&format!("events are written again; {lost_before} are lost"));
            }
            Ok(()) => {}
            Err(error) => {
                lost.fetch_add(1, Ordering::Relaxed);
                if !core::mem::replace(&mut self.has_failed, true) {
                    (self.on_trouble)(&format!("events cannot be written, and all else goes on: {error}"));
                }
            }
        }
    }

    fn write_line(&mut self, role: &str, Line { member, event, time }: &Line) -> io::Result<()> {
        let member = member.map(|member: Peer| member.to_string());
        let written = Written { time: format!("{time:.3}"), event, role, member };
        let mut bytes = serde_json::to_vec(&written).map_err(io::Error::other)?;
        bytes.push(b'\n');
        match &mut self.to {
            To::Stream(stream) => stream.write_all(&bytes).and_then(|()| stream.flush()),
            To::File { file, end } => match file.write_all(&bytes) {
                Ok(()) => {
                    *end += bytes.len() as u64;
                    Ok(())
                }
                Err(error) => {
                    // A part of a line would make the next one unreadable.
                    file.set_len(*end)?;
                    Err(error)
                }
            },
        }
    }
}
