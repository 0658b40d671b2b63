//! A server of the tests: an object store and a plain one, with faults.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Reaction to a request, by its number and its path.
pub(crate) type Fault = dyn Fn(u64, &str) -> Reaction + Send + Sync;

#[derive(Clone, Copy)]
pub(crate) enum Reaction {
    Serve,
    Status(u16, &'static str),
    /// Closes the stream without an answer.
    Reset,
    /// Ends in the midst of the answer.
    Truncate,
    Delay(Duration),
    /// Answers as if no range had been asked for.
    Whole,
}

/// Serves files as the bucket `ads` of an object store does, and as a server of HTTP does.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Server {
    pub(crate) fn start(fault: Box<Fault>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let files: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let (served, fault) = (files.clone(), Arc::new(fault));
        let number = Arc::new(AtomicU64::new(0));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (served, fault, number) = (served.clone(), fault.clone(), number.clone());
                // A client that goes away ends its thread.
                thread::spawn(move || {
                    answer(stream?, &served, &|path| fault(number.fetch_add(1, Ordering::Relaxed), path))
                });
            }
        });
        Self { address, files }
    }

    /// Puts all files of a directory below `prefix`.
    pub(crate) fn put(&self, directory: &Path, prefix: &str) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            self.files.lock().unwrap().insert(format!("ads/{prefix}/{name}"), fs::read(&path).unwrap());
        }
    }

    /// Variables of an environment that leads there.
    pub(crate) fn variables(&self) -> [(String, String); 3] {
        let url = format!("http://{}", self.address);
        [("AWS_ENDPOINT_URL", url.as_str()), ("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "eu-west-1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    }
}

fn answer(
    mut stream: TcpStream,
    files: &Mutex<BTreeMap<String, Vec<u8>>>,
    fault: &dyn Fn(&str) -> Reaction,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(()) };
    let mut range = None;
    let mut condition = None;
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "range" => range = value.strip_prefix("bytes=").map(str::to_owned),
            "if-match" => condition = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let target = target.trim_start_matches('/');
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let reaction = fault(path);
    let mut head = |status: u16, headers: &str, length: usize| {
        write!(
            stream,
            "HTTP/1.1 {status} OK\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        )
    };
    match reaction {
        Reaction::Status(status, body) => {
            head(status, "", body.len())?;
            return stream.write_all(body.as_bytes());
        }
        Reaction::Reset => return Ok(()),
        Reaction::Delay(time) => thread::sleep(time),
        _ => {}
    }
    let files = files.lock().unwrap().clone();
    if path.trim_end_matches('/') == "ads" && query.contains("list-type=2") {
        let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix=")).unwrap_or_default();
        let prefix = format!("ads/{}", prefix.replace("%2F", "/"));
        let objects: String = files
            .iter()
            .filter(|(name, _)| name.starts_with(&prefix))
            .map(|(name, bytes)| {
                format!(
                    "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>{}</ETag>\
                     <Size>{}</Size></Contents>",
                    &name[4..],
                    tag(bytes),
                    bytes.len()
                )
            })
            .collect();
        let body = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>");
        head(200, "", body.len())?;
        return stream.write_all(body.as_bytes());
    }
    let Some(bytes) = files.get(path) else { return head(404, "", 0) };
    let etag = tag(bytes);
    if condition.is_some_and(|condition| condition != etag) {
        return head(412, "", 0);
    }
    let headers = format!("ETag: {etag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
    let (status, headers, body) = match range.filter(|_| !matches!(reaction, Reaction::Whole)) {
        Some(range) => {
            let (start, end) = range.split_once('-').unwrap();
            let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
            let headers = format!("{headers}Content-Range: bytes {start}-{end}/{}\r\n", bytes.len());
            (206, headers, &bytes[start..=end])
        }
        None => (200, headers, &bytes[..]),
    };
    head(status, &headers, body.len())?;
    if method == "HEAD" {
        return Ok(());
    }
    let sent = if matches!(reaction, Reaction::Truncate) { body.len() / 2 } else { body.len() };
    stream.write_all(&body[..sent])
}

fn tag(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("\"{sum:x}\"")
}
