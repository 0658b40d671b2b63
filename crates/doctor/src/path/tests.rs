use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use libra_net::{Enquiry, Security};
use libra_proto::VERSION;

use super::sessions::{ECHOES_MAX, SESSIONS_MAX, Sessions};
use super::wire::{Answer, Counts, FRAME_BYTES, Kind, NoProbe, Probe, Question};
use super::*;
use crate::finding::{Finding, Verdict};
use crate::needs::Needs;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn exchange() -> Exchange {
    let here = address("10.0.0.2:5000");
    Exchange {
        addresses: Seen { here, there: here },
        sent: 500,
        arrived: 500,
        answered: 500,
        duplicates: 0,
        reordered: 0,
        corrupted: 0,
        round_trips: vec![Duration::from_micros(80); 500],
        mtu: 1500,
        mtu_there: 1500,
        rate: Some(9e9),
    }
}

fn meeting(datagrams: Datagrams) -> Meeting {
    let here = address("10.0.0.2:4000");
    Meeting {
        peer: address("10.0.0.7:7799"),
        messages: VERSION,
        is_here: false,
        stream: Seen { here, there: here },
        datagrams,
    }
}

fn met(meeting: Meeting) -> Outcome {
    Outcome::Met(Box::new(meeting))
}

/// The findings that are not ok.
fn wrong(outcome: Outcome) -> Vec<Finding> {
    let path = Path { to: "there:7799".to_owned(), outcome };
    let findings = judge(&path, &Needs::default()).into_iter();
    findings.filter(|finding| finding.verdict != Verdict::Ok).collect()
}

fn of_exchange(change: impl FnOnce(&mut Exchange)) -> Vec<Finding> {
    let mut exchange = exchange();
    change(&mut exchange);
    wrong(met(meeting(Datagrams::Exchanged(exchange))))
}

#[test]
fn each_fault_of_a_path_is_one_finding() {
    assert_eq!(of_exchange(|_| ()), []);
    type Plant = fn(&mut Exchange);
    let faults: [(&str, Verdict, &str, Plant); 9] = [
        ("path-mtu", Verdict::Bad, "10.0.0.7 lets 1,400 bytes through, ", |path| {
            (path.mtu, path.mtu_there) = (1400, 1400)
        }),
        ("path-mtu", Verdict::Bad, "1,400 bytes through back", |path| path.mtu = 1400),
        ("address", Verdict::Bad, "sees 192.0.2.1:5000 (NAT)", |path| {
            path.addresses.there = address("192.0.2.1:5000")
        }),
        ("address", Verdict::Bad, "sees 10.0.0.2:1 (NAT)", |path| {
            path.addresses.there = address("10.0.0.2:1")
        }),
        ("loss", Verdict::Bad, "3.0% on the way there, 0.0%", |path| {
            (path.arrived, path.answered) = (485, 485)
        }),
        ("loss", Verdict::Warn, "0.2% on the way back", |path| path.answered = 499),
        ("order", Verdict::Warn, "9 came out of order", |path| path.reordered = 9),
        ("checksums", Verdict::Bad, "12 datagrams", |path| {
            (path.corrupted, path.arrived, path.answered) = (12, 488, 488)
        }),
        ("round-trip", Verdict::Warn, "20,000 us", |path| {
            path.round_trips = vec![Duration::from_millis(20); 9]
        }),
    ];
    for (check, verdict, found, plant) in faults {
        let findings = of_exchange(plant);
        assert_eq!(findings.len(), 1, "{check}: {findings:#?}");
        assert_eq!((findings[0].check, findings[0].verdict), (check, verdict));
        assert!(findings[0].found.contains(found) && findings[0].mend.is_some(), "{:#?}", findings[0]);
    }
}

#[test]
fn an_end_that_is_not_met_is_one_finding() {
    let text = |text: &str| text.to_owned();
    let outcomes = [
        (Outcome::NoHost(text("no such name")), "reach", Verdict::Bad, "no such name"),
        (Outcome::NoStream(text("refused")), "reach", Verdict::Bad, "refused"),
        (
            Outcome::Stranger(text("closes the stream"), text("it has another token")),
            "reach",
            Verdict::Bad,
            "no controller of this job: it has another token",
        ),
        (
            Outcome::Controller(address("10.0.0.7:7700"), Enquiry::OtherVersion(text("it speaks version 3"))),
            "version",
            Verdict::Bad,
            "speaks version 3",
        ),
        (Outcome::Busy, "reach", Verdict::Unseen, "try again"),
        (Outcome::OtherFormat(VERSION + 1), "version", Verdict::Bad, "the other"),
        (met(meeting(Datagrams::NoneArrived)), "reach", Verdict::Bad, "comes there"),
        (met(meeting(Datagrams::Ended(text("reset")))), "reach", Verdict::Bad, "ended: reset"),
        (met(meeting(Datagrams::NoAnswer)), "reach", Verdict::Bad, "comes here"),
        (
            met(Meeting { is_here: true, ..meeting(Datagrams::Exchanged(exchange())) }),
            "reach",
            Verdict::Warn,
            "this machine",
        ),
        (
            met(Meeting { messages: VERSION + 1, ..meeting(Datagrams::Exchanged(exchange())) }),
            "version",
            Verdict::Bad,
            "the other",
        ),
    ];
    for (outcome, check, verdict, found) in outcomes {
        let findings = wrong(outcome);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!((findings[0].check, findings[0].verdict), (check, verdict));
        assert!(findings[0].found.contains(found), "{:#?}", findings[0]);
    }
}

#[test]
fn probes_come_back_as_they_were_written() {
    let caller = Some(address("10.1.2.3:77"));
    for (kind, caller) in [(Kind::Echo, None), (Kind::Echoed, caller), (Kind::Count, None)] {
        let probe = Probe { session: 1 << 40 | 7, kind, number: 12, caller };
        let mut bytes = vec![0; 700];
        probe.write(&mut bytes);
        assert_eq!(Probe::read(&bytes), Ok(probe));
        for at in [9, 17, 30, 699] {
            bytes[at] ^= 1;
            assert_eq!(Probe::read(&bytes), Err(NoProbe::Corrupted), "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Probe::read(&bytes[..40]), Err(NoProbe::Foreign));
    }
    let six = Probe { session: 0, kind: Kind::Echoed, number: 0, caller: Some(address("[2001:db8::1]:9")) };
    let mut bytes = [0; 64];
    six.write(&mut bytes);
    assert_eq!(Probe::read(&bytes), Ok(six));
}

#[test]
fn every_frame_has_one_length() {
    let counts = Counts {
        arrived: u32::MAX,
        duplicates: u32::MAX,
        reordered: u32::MAX,
        longest: u16::MAX,
        corrupted: u64::MAX,
        counted_bytes: u64::MAX,
        counted_ns: u64::MAX,
    };
    let caller = address("[2001:db8:1:2:3:4:5:6]:65535");
    for answer in [Answer::Counts(counts), Answer::Welcome { session: u64::MAX, caller }, Answer::Busy] {
        let frame = wire::frame(&answer);
        assert_eq!(wire::content(&frame), Some(answer));
    }
    assert_eq!(wire::frame(&Question::Hello).len(), FRAME_BYTES);
}

fn probe(session: u64, kind: Kind, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    Probe { session, kind, number, caller: None }.write(&mut bytes);
    bytes
}

#[test]
fn datagrams_of_no_session_are_not_answered() {
    let (mut sessions, from, now) = (Sessions::default(), address("10.0.0.9:1"), Instant::now());
    sessions.open(7, from, 0);
    let mut foreign = [probe(8, Kind::Echo, 0), vec![0; 300], Vec::new(), probe(7, Kind::Echoed, 0)];
    for bytes in &mut foreign {
        assert!(!sessions.datagram(now, from, bytes), "{bytes:?}");
    }
    let mut echo = probe(7, Kind::Echo, 0);
    assert!(sessions.datagram(now, from, &mut echo));
    assert_eq!(Probe::read(&echo).unwrap().caller, Some(from));
    sessions.close(7);
    assert!(!sessions.datagram(now, from, &mut probe(7, Kind::Echo, 1)));
}

#[test]
fn a_session_counts_what_came_and_answers_a_bounded_number() {
    let (mut sessions, from, now) = (Sessions::default(), address("10.0.0.9:1"), Instant::now());
    sessions.open(7, from, 3);
    for number in [0, 1, 3, 2, 2] {
        assert!(sessions.datagram(now, from, &mut probe(7, Kind::Echo, number)));
    }
    let mut broken = probe(7, Kind::Echo, 5);
    broken[90] ^= 1;
    assert!(!sessions.datagram(now, from, &mut broken));
    for later in [0, 1, 2] {
        assert!(!sessions.datagram(now + Duration::from_millis(later), from, &mut probe(7, Kind::Count, 0)));
    }
    let Some(Answer::Counts(counts)) = sessions.answer(7, Question::Counts, 5) else { panic!("no counts") };
    assert_eq!((counts.arrived, counts.duplicates, counts.reordered, counts.longest), (4, 1, 1, 100));
    assert_eq!(counts.corrupted, 1 + 2, "its own, and two that the kernel refused meanwhile");
    assert_eq!((counts.counted_bytes, counts.counted_ns), (200, 2_000_000));

    let all = (0..2 * ECHOES_MAX).filter(|_| sessions.datagram(now, from, &mut probe(7, Kind::Echo, 9)));
    assert_eq!(all.count(), (ECHOES_MAX - 5) as usize);
    assert!(!sessions.datagram(now, from, &mut probe(7, Kind::Echo, u32::MAX)));
}

#[test]
fn sessions_are_bounded() {
    let (mut sessions, from) = (Sessions::default(), address("10.0.0.9:1"));
    let opened = (0..20).filter(|number| sessions.open(*number, from, 0) != Answer::Busy).count();
    assert_eq!(opened, SESSIONS_MAX);
    sessions.close(0);
    assert_ne!(sessions.open(99, from, 0), Answer::Busy);
}

/// A listener on loopback, and its events.
fn listen() -> (SocketAddr, mpsc::Receiver<ListenerEvent>) {
    let listener = Listener::bind(address("127.0.0.1:0")).unwrap();
    let (at, (tell, events)) = (listener.address(), mpsc::channel());
    thread::spawn(move || {
        listener.run(move |event| {
            let _ = tell.send(event);
        })
    });
    (at, events)
}

#[test]
fn a_path_over_loopback_is_measured() {
    let (at, events) = listen();
    let path = call(&at.to_string(), 1500, &Security::NONE);
    let Outcome::Met(meeting) = path.outcome else { panic!("{path:?}") };
    assert!(meeting.is_here);
    assert_eq!(meeting.messages, VERSION);
    let Datagrams::Exchanged(exchange) = &meeting.datagrams else { panic!("{meeting:?}") };
    assert_eq!((exchange.arrived, exchange.answered, exchange.mtu), (500, 500, 1500), "{exchange:?}");
    assert_eq!(exchange.addresses.here, exchange.addresses.there);
    assert!(exchange.rate > Some(1e6), "{exchange:?}");
    assert!(matches!(events.recv().unwrap(), ListenerEvent::Called { messages: VERSION, .. }));
}

#[test]
fn a_listener_answers_no_more_than_it_was_sent() {
    let (at, events) = listen();
    // A stranger's stream: half a frame, a foreign one, and one without a question.
    for bytes in [vec![1; 100], vec![2; FRAME_BYTES], vec![3; 10_000]] {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        // It may end with a reset, for what was not read.
        drop(stream.read_to_end(&mut answer));
        assert_eq!(answer.len(), 0);
        assert!(matches!(events.recv().unwrap(), ListenerEvent::Stranger(_)));
    }
    // A stranger's datagrams.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    for bytes in [probe(1, Kind::Echo, 0), b"LIBRAPRB".to_vec(), vec![0; 1400]] {
        socket.send_to(&bytes, at).unwrap();
        assert!(socket.recv(&mut [0; 2000]).is_err());
    }
    // A session's.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&wire::frame(&Question::Hello)).unwrap();
    let mut answer = [0; FRAME_BYTES];
    stream.read_exact(&mut answer).unwrap();
    let Some(Answer::Welcome { session, .. }) = wire::content(&answer) else { panic!("no session") };
    for length in [64, 65, 1000] {
        let mut bytes = vec![0; length];
        Probe { session, kind: Kind::Echo, number: 0, caller: None }.write(&mut bytes);
        socket.send_to(&bytes, at).unwrap();
        assert_eq!(socket.recv(&mut [0; 2000]).unwrap(), length);
    }
}

#[test]
fn an_end_that_is_no_doctor_is_told_from_none() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let caller = thread::spawn(move || call(&at.to_string(), 1500, &Security::NONE).outcome);
    let (mut stream, _) = silent.accept().unwrap();
    stream.write_all(&[b'x'; FRAME_BYTES]).unwrap();
    assert!(matches!(caller.join().unwrap(), Outcome::Stranger(..)));
    drop((stream, silent));
    assert!(matches!(call(&at.to_string(), 1500, &Security::NONE).outcome, Outcome::NoStream(_)));
    assert!(matches!(call("no-such-host.invalid:7799", 1500, &Security::NONE).outcome, Outcome::NoHost(_)));
}

#[test]
fn another_format_tells_its_version() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap();
    let caller = thread::spawn(move || call(&at.to_string(), 1500, &Security::NONE).outcome);
    let (mut stream, _) = other.accept().unwrap();
    let mut frame = wire::frame(&Answer::Busy);
    frame[8..10].copy_from_slice(&99_u16.to_be_bytes());
    frame[10..12].copy_from_slice(&(VERSION + 5).to_be_bytes());
    stream.write_all(&frame).unwrap();
    let outcome = caller.join().unwrap();
    assert!(matches!(outcome, Outcome::OtherFormat(version) if version == VERSION + 5), "{outcome:?}");
}
