//! A reader of metrics beside a benchmark, as Prometheus is one beside a job: once a second, of every member.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libra_net::Inspector;
use libra_proto::ControllerStatus;
use serde::Serialize;

const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for one answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Scrapes until it is asked for its figures.
pub(super) struct Scraper {
    inspector: Inspector<ControllerStatus>,
    end: mpsc::Sender<()>,
    scraping: JoinHandle<Result<Vec<Scrape>>>,
}

/// One answer of one member.
#[derive(Debug, Clone, Copy)]
struct Scrape {
    took: Duration,
    bytes: usize,
}

/// Figures of all scrapes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Scrapes {
    count: usize,
    p50_ms: f64,
    p99_ms: f64,
    bytes_max: usize,
}

impl Scraper {
    pub(super) fn start() -> Result<Self> {
        let inspector = Inspector::new(None);
        let asked = inspector.clone();
        let (end, ended) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let scrape = move || {
            let mut scrapes = Vec::new();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let inspected = runtime.block_on(asked.ask(TIMEOUT));
                let members = inspected.statuses.last().map(|status: &ControllerStatus| &status.members);
                for http in members.into_iter().flatten().filter_map(|member| member.http) {
                    // A member that ends meanwhile does not count.
                    scrapes.extend(scrape(http).ok());
                }
            }
            Ok(scrapes)
        };
        let scraping = thread::Builder::new().name("scraper".to_owned()).spawn(scrape)?;
        Ok(Self { inspector, end, scraping })
    }

    /// For the controller, which knows the members.
    pub(super) fn inspector(&self) -> Inspector<ControllerStatus> {
        self.inspector.clone()
    }

    pub(super) fn finish(self) -> Result<Scrapes> {
        // It may have failed already.
        let _ = self.end.send(());
        let mut scrapes = self.scraping.join().expect("it does not panic")?;
        if scrapes.is_empty() {
            bail!("no member was scraped: take more --seconds");
        }
        scrapes.sort_by_key(|scrape| scrape.took);
        let at = |percent: usize| 1e3 * scrapes[(scrapes.len() - 1) * percent / 100].took.as_secs_f64();
        let bytes_max = scrapes.iter().map(|scrape| scrape.bytes).max().unwrap_or(0);
        Ok(Scrapes { count: scrapes.len(), p50_ms: at(50), p99_ms: at(99), bytes_max })
    }
}

impl Scrapes {
    /// A line for a person.
    pub(super) fn line(&self) -> String {
        let Self { count, p50_ms, p99_ms, bytes_max } = self;
        format!(
            "scrapes: {count}, {p50_ms:.1} ms at the median, {p99_ms:.1} ms at 99%, {bytes_max} bytes at most"
        )
    }
}

fn scrape(http: SocketAddr) -> Result<Scrape> {
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&http, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(
        format!("GET /metrics HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").context("an answer has a head")?;
    Ok(Scrape { took: began.elapsed(), bytes: answer.len() - head - 4 })
}
