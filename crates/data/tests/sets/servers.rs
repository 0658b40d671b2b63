//! Servers of the tests: an object store and a plain one, with faults.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libra_data::{DataSet, Environment, Options, OutputFormat};

use crate::support::{Directory, error_of, make, open, read_all};

/// Reaction to a request, by its number and its path.
type Fault = dyn Fn(u64, &str) -> Reaction + Send + Sync;

#[derive(Clone, Copy)]
enum Reaction {
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
struct Server {
    address: SocketAddr,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Server {
    fn start(fault: Box<Fault>) -> Self {
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
    fn put(&self, directory: &std::path::Path, prefix: &str) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            self.files.lock().unwrap().insert(format!("ads/{prefix}/{name}"), fs::read(&path).unwrap());
        }
    }

    fn options(&self, more: &[(&str, &str)]) -> Options {
        let url = format!("http://{}", self.address);
        let keys = [("AWS_ACCESS_KEY_ID", "libra"), ("AWS_SECRET_ACCESS_KEY", "geheim")];
        let variables =
            [("AWS_ENDPOINT_URL", url.as_str()), ("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "eu-west-1")];
        let variables = variables.iter().chain(if more.is_empty() { &keys[..] } else { more });
        let environment: Environment =
            variables.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Options { environment: Some(environment), retries: Some(3), ..Options::default() }
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

#[test]
fn objects_are_read_as_files_are() {
    let directory = Directory::new();
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    for format in [OutputFormat::Parquet, OutputFormat::Gzip, OutputFormat::Text] {
        let local = directory.place(&format!("{format:?}"));
        make(local.as_ref(), 900, format, 300, 100);
        server.put(local.as_ref(), &format!("a/{format:?}"));
        let indexes = Options { index_directory: Some(directory.path("cache")), ..server.options(&[]) };
        let expected = read_all(&open(&local)).checksum();
        for place in [format!("s3://ads/a/{format:?}"), format!("s3://ads/a/{format:?}/[dp]a*_*")] {
            // The pattern is for names of days alone.
            if place.ends_with('*') && format == OutputFormat::Parquet {
                continue;
            }
            let set = DataSet::open(&place, &indexes).unwrap();
            assert_eq!(set.files().count(), 3);
            assert_eq!(read_all(&set).checksum(), expected, "{place}");
            assert_eq!(set.counts().retries, 0);
        }
        let file = open(&local).files().next().unwrap().name.rsplit('/').next().unwrap().to_owned();
        let url = format!("http://{}/ads/a/{format:?}/{file}", server.address);
        let set = DataSet::open(&url, &indexes).unwrap();
        assert_eq!(read_all(&set).checksum(), read_all(&open(&format!("{local}/{file}"))).checksum());
    }
}

/// One request of four fails, in each way; an epoch is the same to the bit, and retries are counted.
#[test]
fn faults_of_servers_are_survived_and_counted() {
    let directory = Directory::new();
    let local = directory.place("set");
    make(local.as_ref(), 2000, OutputFormat::Parquet, 500, 100);
    let expected = read_all(&open(&local)).checksum();
    for reaction in [
        Reaction::Status(503, "<Error><Code>SlowDown</Code></Error>"),
        Reaction::Status(429, ""),
        Reaction::Reset,
        Reaction::Truncate,
    ] {
        let server = Server::start(Box::new(
            move |number, _| if number % 4 == 3 { reaction } else { Reaction::Serve },
        ));
        server.put(local.as_ref(), "set");
        let set = DataSet::open("s3://ads/set", &server.options(&[])).unwrap();
        assert_eq!(read_all(&set).checksum(), expected);
        let counts = set.counts();
        assert!(counts.retries > 3 && counts.retries < counts.requests / 2, "{counts:?}");
    }
    let slow = Reaction::Delay(Duration::from_millis(200));
    let server =
        Server::start(Box::new(move |number, _| if number % 10 == 9 { slow } else { Reaction::Serve }));
    server.put(local.as_ref(), "set");
    let set = DataSet::open("s3://ads/set", &server.options(&[])).unwrap();
    assert_eq!((read_all(&set).checksum(), set.counts().retries), (expected, 0));
}

#[test]
fn a_server_that_stays_away_ends_the_reading() {
    let directory = Directory::new();
    make(&directory.path("set"), 10, OutputFormat::Parquet, 10, 10);
    let server = Server::start(Box::new(|_, path| match path {
        path if path.ends_with(".parquet") => Reaction::Status(503, "geheim"),
        _ => Reaction::Serve,
    }));
    server.put(&directory.path("set"), "set");
    let error = error_of("s3://ads/set", &server.options(&[]));
    assert!(error.starts_with("s3://ads/set/part-00000.parquet: "), "{error}");
    assert!(error.contains("503") && error.ends_with("(after 3 retries)"), "{error}");
}

#[test]
fn refusals_are_told_apart() {
    let cases: [(u16, &str, &str); 5] = [
        (404, "<Error><Code>NoSuchBucket</Code></Error>", "there is no such bucket"),
        (403, "<Error><Code>AccessDenied</Code></Error>", "the credentials do not allow it"),
        (
            301,
            "<Error><Code>PermanentRedirect</Code></Error>",
            "in another region than eu-west-1: set AWS_REGION",
        ),
        (400, "<Error><Code>AuthorizationHeaderMalformed</Code></Error>", "in another region than eu-west-1"),
        (400, "<Error><Code>InvalidArgument</Code></Error>", "InvalidArgument"),
    ];
    for (status, body, shown) in cases {
        let server = Server::start(Box::new(move |_, _| Reaction::Status(status, body)));
        for place in ["s3://ads", "s3://ads/set/*.parquet"] {
            let error = error_of(place, &server.options(&[]));
            assert!(error.starts_with(place) && error.contains(shown), "{error}");
            assert!(!error.contains("geheim"), "{error}");
            assert!(!error.contains("retries") || error.ends_with("(after 0 retries)"), "{error}");
        }
    }
    // The key of an absent object is looked for as a directory, too.
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    let error = error_of("s3://ads/none", &server.options(&[]));
    assert_eq!(error, "s3://ads/none: there is no such file or directory");
    let error = error_of("s3://ads/*.parquet", &server.options(&[]));
    assert_eq!(error, "s3://ads/*.parquet: no file matches the pattern");
}

/// Without keys, the service for those of a virtual machine is asked; here it is one that has none.
#[test]
fn absent_credentials_are_named() {
    let server = Server::start(Box::new(|_, _| Reaction::Status(404, "")));
    let metadata = format!("http://{}", server.address);
    let error = error_of("s3://ads/set", &server.options(&[("AWS_METADATA_ENDPOINT", &metadata)]));
    assert!(error.starts_with("s3://ads/set: no credentials: set those of the store"), "{error}");
}

#[test]
fn a_server_without_ranges_is_named() {
    let directory = Directory::new();
    make(&directory.path("set"), 10, OutputFormat::Parquet, 10, 10);
    let server = Server::start(Box::new(|_, _| Reaction::Whole));
    server.put(&directory.path("set"), "set");
    let url = format!("http://{}/ads/set/part-00000.parquet", server.address);
    let error = error_of(&url, &server.options(&[]));
    assert_eq!(
        error,
        format!("{url}: the server does not serve ranges of a file: copy it to a disk or an object store")
    );
    let error = error_of(&format!("http://{}/ads/none.parquet", server.address), &server.options(&[]));
    assert!(error.ends_with("none.parquet: there is no such file or directory"), "{error}");
}

#[test]
fn an_object_that_changes_is_refused() {
    let directory = Directory::new();
    make(&directory.path("set"), 10, OutputFormat::Parquet, 10, 10);
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    server.put(&directory.path("set"), "set");
    let set = DataSet::open("s3://ads/set", &server.options(&[])).unwrap();
    let mut files = server.files.lock().unwrap();
    files.get_mut("ads/set/part-00000.parquet").unwrap()[5] ^= 1;
    drop(files);
    let error = set.read(&set.chunks()[0]).unwrap_err().to_string();
    assert!(error.starts_with("s3://ads/set/part-00000.parquet: the file has changed since"), "{error}");
}
