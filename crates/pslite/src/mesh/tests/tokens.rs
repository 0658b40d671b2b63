//! Processes with the same token, another or none.

use std::io::Read;

use super::*;

fn token() -> Security {
    Security::with_token(&Token::random().unwrap())
}

fn scheduler(host: &str, workers: u16, security: &Security) -> Process {
    let settings = settings(NodeRole::Scheduler, workers, 0, host);
    open(NodeSettings { security: security.clone(), ..settings }).unwrap()
}

fn worker(host: &str, security: &Security) -> Result<Process, MeshError> {
    open(NodeSettings { security: security.clone(), ..settings(NodeRole::Worker, 1, 0, host) })
}

/// Waits until a process has printed so many lines. Returns the last one.
fn line(process: &Process, count: usize) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(line) = process.inbox.lines.lock().get(count - 1) {
            return line.clone();
        }
        assert!(Instant::now() < until, "{:?}", process.inbox.lines.lock());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn another_token_or_none_is_one_line_at_both_ends() {
    let host = own_address();
    let called = scheduler(&host, 1, &token());
    let error = worker(&host, &token()).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("no connection to the scheduler at {host}:9000: it has another token")
    );
    let of_scheduler = line(&called, 1);
    assert!(of_scheduler.starts_with("1 streams were closed that are of no process of this program"));
    assert!(of_scheduler.ends_with("it has another token, and refuses that of this end"), "{of_scheduler}");

    let plain = worker(&host, &Security::NONE).unwrap();
    let error = plain.node.join().unwrap_err().to_string();
    let reason = "it speaks TLS, and this end has no token";
    assert_eq!(error, format!("no connection to the scheduler at {host}:9000: {reason}"));
    assert!(line(&called, 2).ends_with("it has no token: it does not speak TLS"));
    called.node.close();
    plain.node.close();

    let host = own_address();
    let called = scheduler(&host, 1, &Security::NONE);
    let error = worker(&host, &token()).err().unwrap().to_string();
    assert!(error.ends_with("it has no token, or another one"), "{error}");
    assert!(line(&called, 1).ends_with(reason));
    called.node.close();
}

#[test]
fn strangers_keep_no_process_with_the_token_out() {
    let (host, security) = (own_address(), token());
    let called = scheduler(&host, 1, &security);
    let mut strangers = Vec::new();
    for stranger in 0..100 {
        let mut socket = TcpStream::connect((host.as_str(), 9000)).unwrap();
        if stranger % 2 == 0 {
            socket.write_all(&[0x16, 0x03, 0x01, 0x02]).unwrap();
        }
        strangers.push(socket);
    }
    let begun = Instant::now();
    let worker = worker(&host, &security).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| called.node.join().unwrap());
        worker.node.join().unwrap();
    });
    assert!(begun.elapsed() < Duration::from_secs(4), "strangers have 5 s: {:?}", begun.elapsed());
    assert_eq!(called.node.streams_and_routes(), (1, 1), "of strangers nothing is kept");
    finish(vec![called, worker]);
    for mut stranger in strangers {
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let left = stranger.read(&mut [0; 100]);
        assert!(!matches!(left, Ok(1..)), "an end or an error is all that a stranger gets: {left:?}");
    }
}
