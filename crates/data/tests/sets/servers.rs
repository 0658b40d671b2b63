//! Object stores and plain servers, with faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libra_data::{Columns, DataSet, Options, OutputFormat, Selection, Shuffle};

use crate::server::{Reaction, Server};
use crate::support::{Directory, error_of, make, open, options, read_all};

#[test]
fn objects_are_read_as_files_are() {
    let directory = Directory::new();
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    for format in [OutputFormat::Parquet, OutputFormat::Gzip, OutputFormat::Text] {
        let local = directory.place(&format!("{format:?}"));
        make(local.as_ref(), 900, format, 300, 100);
        server.put(local.as_ref(), &format!("a/{format:?}"));
        let indexes = Options { index_directory: Some(directory.path("cache")), ..options(&server, &[]) };
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
        let set = DataSet::open("s3://ads/set", &options(&server, &[])).unwrap();
        assert_eq!(read_all(&set).checksum(), expected);
        let counts = set.counts();
        assert!(counts.retries > 3 && counts.retries < counts.requests / 2, "{counts:?}");
    }
    let slow = Reaction::Delay(Duration::from_millis(200));
    let server =
        Server::start(Box::new(move |number, _| if number % 10 == 9 { slow } else { Reaction::Serve }));
    server.put(local.as_ref(), "set");
    let set = DataSet::open("s3://ads/set", &options(&server, &[])).unwrap();
    assert_eq!((read_all(&set).checksum(), set.counts().retries), (expected, 0));
}

/// Batches of an epoch in the order of training: the same to the bit, by as many more requests as there were faults. One answer is 2 s
/// late.
#[test]
fn an_epoch_of_a_bad_server_is_equal_to_the_bit() {
    let epoch = |set: &DataSet| {
        let pieces = Selection::new(set.chunks().to_vec()).part(0, 1, 7);
        let mut shuffle = Shuffle::new(set, pieces.into_iter(), 7);
        let (mut sums, mut batch) = (Vec::new(), Columns::default());
        while shuffle.next_batch(16, &mut batch).unwrap() {
            sums.push(batch.checksum());
        }
        sums
    };
    let directory = Directory::new();
    let local = directory.place("set");
    make(local.as_ref(), 1000, OutputFormat::Parquet, 500, 100);
    let expected = epoch(&open(&local));
    assert_eq!(expected.len(), 63);
    let read = |server: Server| {
        server.put(local.as_ref(), "set");
        let set = DataSet::open("s3://ads/set", &options(&server, &[])).unwrap();
        assert_eq!(epoch(&set), expected);
        set.counts()
    };
    let good = read(Server::start(Box::new(|_, _| Reaction::Serve)));
    assert_eq!(good.retries, 0);
    // Of the requests for files, as what a fault does to other ones is not always the same.
    let (asked, faults) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let injected = faults.clone();
    let counts = read(Server::start(Box::new(move |_, path| {
        if !path.ends_with(".parquet") {
            return Reaction::Serve;
        }
        let reaction = match asked.fetch_add(1, Ordering::Relaxed) % 12 {
            2 => Reaction::Status(503, "<Error><Code>SlowDown</Code></Error>"),
            5 => Reaction::Reset,
            8 => Reaction::Truncate,
            10 if injected.load(Ordering::Relaxed) == 3 => return Reaction::Delay(Duration::from_secs(2)),
            _ => return Reaction::Serve,
        };
        injected.fetch_add(1, Ordering::Relaxed);
        reaction
    })));
    let faults = faults.load(Ordering::Relaxed);
    assert!(faults >= 3, "{counts:?}");
    assert_eq!((counts.retries, counts.requests), (faults, good.requests + faults));
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
    let error = error_of("s3://ads/set", &options(&server, &[]));
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
            let error = error_of(place, &options(&server, &[]));
            assert!(error.starts_with(place) && error.contains(shown), "{error}");
            assert!(!error.contains("geheim"), "{error}");
            assert!(!error.contains("retries") || error.ends_with("(after 0 retries)"), "{error}");
        }
    }
    // The key of an absent object is looked for as a directory, too.
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    let error = error_of("s3://ads/none", &options(&server, &[]));
    assert_eq!(error, "s3://ads/none: there is no such file or directory");
    let error = error_of("s3://ads/*.parquet", &options(&server, &[]));
    assert_eq!(error, "s3://ads/*.parquet: no file matches the pattern");
}

/// Without keys, the service for those of a virtual machine is asked; here it is one that has none.
#[test]
fn absent_credentials_are_named() {
    let server = Server::start(Box::new(|_, _| Reaction::Status(404, "")));
    let metadata = format!("http://{}", server.address);
    let error = error_of("s3://ads/set", &options(&server, &[("AWS_METADATA_ENDPOINT", &metadata)]));
    assert!(error.starts_with("s3://ads/set: no credentials: set AWS_ACCESS_KEY_ID"), "{error}");
}

#[test]
fn a_server_without_ranges_is_named() {
    let directory = Directory::new();
    make(&directory.path("set"), 10, OutputFormat::Parquet, 10, 10);
    let server = Server::start(Box::new(|_, _| Reaction::Whole));
    server.put(&directory.path("set"), "set");
    let url = format!("http://{}/ads/set/part-00000.parquet", server.address);
    let error = error_of(&url, &options(&server, &[]));
    assert_eq!(
        error,
        format!("{url}: the server does not serve ranges of a file: copy it to a disk or an object store")
    );
    let error = error_of(&format!("http://{}/ads/none.parquet", server.address), &options(&server, &[]));
    assert!(error.ends_with("none.parquet: there is no such file or directory"), "{error}");
}

#[test]
fn an_object_that_changes_is_refused() {
    let directory = Directory::new();
    make(&directory.path("set"), 10, OutputFormat::Parquet, 10, 10);
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    server.put(&directory.path("set"), "set");
    let set = DataSet::open("s3://ads/set", &options(&server, &[])).unwrap();
    let mut files = server.files.lock().unwrap();
    files.get_mut("ads/set/part-00000.parquet").unwrap()[5] ^= 1;
    drop(files);
    let error = set.read(&set.chunks()[0]).unwrap_err().to_string();
    assert!(error.starts_with("s3://ads/set/part-00000.parquet: the file has changed since"), "{error}");
}

/// The same size, so that the ETag alone tells the two apart.
#[test]
fn an_index_of_other_content_is_made_again() {
    let directory = Directory::new();
    make(&directory.path("set"), 100, OutputFormat::Text, 100, 10);
    let server = Server::start(Box::new(|_, _| Reaction::Serve));
    server.put(&directory.path("set"), "set");
    let options = Options { index_directory: Some(directory.path("cache")), ..options(&server, &[]) };
    let opened = || DataSet::open("s3://ads/set", &options).unwrap();
    let size = |set: &DataSet| set.files().map(|file| file.bytes).sum::<u64>();
    let first = opened();
    assert_eq!(first.counts().bytes, size(&first));
    assert_eq!((opened().counts().bytes, opened().rows()), (0, 100));
    // The last line becomes blanks.
    let mut files = server.files.lock().unwrap();
    let text = files.get_mut("ads/set/day_0").unwrap();
    let end = text.len() - 1;
    let start = text[..end].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    text[start..end].fill(b' ');
    drop(files);
    let changed = opened();
    assert_eq!((changed.counts().bytes, changed.rows()), (size(&changed), 99));
    assert_eq!(read_all(&changed).rows(), 99);
    assert_eq!(opened().counts().bytes, 0);
}
