//! Streams whose other end does not read.

use std::net::Ipv4Addr;

use libra_proto::{Keys, Values};
use tokio::net::TcpListener;

use super::*;

/// Values of an answer: 128 KiB.
const VALUES: usize = 32 << 10;
const REQUESTS: u64 = 2000;

fn pull(number: u64) -> Vec<u8> {
    let message = Message::Pull { number, keys: Keys::from([number].as_slice()) };
    let mut frame = message.encode_behind(&frames::NO_LENGTH);
    frames::seal(&mut frame);
    frame
}

/// Answers everything, as a driver and its role do: what is there is handed over, and then the answers are sent. `most` is the largest
/// number of bytes that waited to be written for any one stream.
async fn serve(listener: TcpListener, most: Arc<AtomicUsize>) {
    let mut links = Links::new(Duration::ZERO);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, remote) = accepted.unwrap();
                links.accept(Caller { stream: Transport::Plain(stream), remote, first: None });
            }
            input = links.next() => {
                let (mut next, mut answers) = (Some(input), Vec::new());
                while let Some((link, input)) = next {
                    if let Input::Message(Message::Pull { number, .. }) = input {
                        let values = Values::from(vec![number as f32; VALUES]);
                        answers.push((link, Message::Pulled { number, values }));
                    }
                    next = links.try_next();
                }
                for (link, answer) in answers {
                    links.send(link, &answer);
                }
                let unwritten = links.streams.values().map(|stream| stream.backpressure.unwritten.load(Ordering::Relaxed));
                most.fetch_max(unwritten.max().unwrap_or(0), Ordering::Relaxed);
            }
        }
    }
}

async fn read_answer(frames: &mut FrameReader<impl AsyncRead + Unpin>, expected: u64) {
    let frame = frames.next(MESSAGE_BYTES_MAX).await.unwrap().expect("the stream goes on");
    let answer = Message::decode(frame).unwrap();
    let Message::Pulled { number, values } = answer else { panic!("{answer:?}") };
    let values = values.into_vec();
    assert_eq!((number, values.len()), (expected, VALUES));
    assert!(values.iter().all(|value| *value == expected as f32));
}

// rule C10
#[tokio::test]
async fn a_caller_that_does_not_read_stalls_only_itself() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let most = Arc::<AtomicUsize>::default();
    let server = tokio::spawn(serve(listener, Arc::clone(&most)));

    let (reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let mut lazy = FrameReader::new(reader);
    let asks = tokio::spawn(async move {
        for number in 0..REQUESTS {
            writer.write_all(&pull(number)).await.unwrap();
        }
        writer
    });
    // The server stops reading when it has as much to send as it may.
    while most.load(Ordering::Relaxed) < UNWRITTEN_BYTES_MAX {
        tokio::task::yield_now().await;
    }
    // Another is served meanwhile.
    let (reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let mut frames = FrameReader::new(reader);
    for number in 0..300 {
        writer.write_all(&pull(number)).await.unwrap();
        read_answer(&mut frames, number).await;
    }
    let answer = 4 * VALUES + 64;
    let bound = UNWRITTEN_BYTES_MAX + UNHANDLED_MAX * answer;
    assert!(most.load(Ordering::Relaxed) <= bound, "{} of {bound}", most.load(Ordering::Relaxed));
    assert!(bound < answer * usize::try_from(REQUESTS).unwrap() / 10, "without a bound there is much more");
    for number in 0..REQUESTS {
        read_answer(&mut lazy, number).await;
    }
    assert!(most.load(Ordering::Relaxed) <= bound);
    drop(asks.await.unwrap());
    server.abort();
}

// rule C10
#[tokio::test]
async fn a_caller_that_goes_away_unread_is_noticed() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, remote) = listener.accept().await.unwrap();
    let mut links = Links::new(Duration::ZERO);
    links.accept(Caller { stream: Transport::Plain(stream), remote, first: None });
    let (link, Input::Event(LinkEvent::Opened { .. })) = links.next().await else { panic!("it opens first") };
    for _ in 0..2 * UNWRITTEN_BYTES_MAX / (4 * VALUES) {
        links.send(link, &Message::Pulled { number: 0, values: vec![0.0; VALUES].into() });
    }
    // Until it is read no more: the end of its data is not seen then.
    while links.streams[&link].backpressure.unwritten.load(Ordering::Relaxed) == 2 * UNWRITTEN_BYTES_MAX {
        tokio::task::yield_now().await;
    }
    socket2::SockRef::from(&caller).set_linger(Some(Duration::ZERO)).unwrap();
    drop(caller);
    let (closed, Input::Event(LinkEvent::Closed { .. })) = links.next().await else {
        panic!("it sent nothing")
    };
    assert_eq!(closed, link);
}

/// A stream that was accepted, with this first message.
async fn called(links: &mut Links, first: Message) -> (Link, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, remote) = listener.accept().await.unwrap();
    links.accept(Caller { stream: Transport::Plain(stream), remote, first: Some((first.clone(), 9)) });
    let (link, Input::Event(LinkEvent::Opened { .. })) = links.next().await else { panic!("it opens first") };
    let (_, Input::Message(message)) = links.next().await else { panic!("then it speaks") };
    assert_eq!(message, first);
    (link, caller)
}

// rule S2
#[tokio::test]
async fn nothing_more_is_read_before_a_caller_is_admitted() {
    let mut links = Links::new(Duration::ZERO);
    let (link, mut caller) = called(&mut links, Message::Leave { returns: false }).await;
    caller.write_all(&pull(1)).await.unwrap();
    let wait = Duration::from_millis(50);
    assert!(tokio::time::timeout(wait, links.next()).await.is_err());
    links.admit(link, pull(1).len());
    let (_, Input::Message(Message::Pull { number: 1, .. })) = links.next().await else { panic!("no pull") };
}

// rule S2
#[tokio::test]
async fn a_message_above_the_bound_ends_the_stream_and_is_counted() {
    let mut links = Links::new(Duration::ZERO);
    let (link, mut caller) = called(&mut links, Message::Leave { returns: false }).await;
    links.admit(link, 100);
    caller.write_all(&(256u32 << 20).to_be_bytes()).await.unwrap();
    let (closed, Input::Event(LinkEvent::Closed { reason })) = links.next().await else {
        panic!("it was taken")
    };
    assert_eq!((closed, reason.as_str()), (link, "a message of 268435456 bytes, where 100 may be"));
    let strangers = links.take_strangers().unwrap();
    assert_eq!((strangers.count, strangers.remote), (1, caller.local_addr().unwrap()));
}

// rule S4
#[tokio::test]
async fn a_caller_that_reads_nothing_is_closed_at_256_mib() {
    let mut links = Links::new(Duration::ZERO);
    let (link, caller) = called(&mut links, Message::Leave { returns: false }).await;
    let answer = Message::Pulled { number: 0, values: vec![0.0; 4 << 20].into() };
    let bytes = answer.encode().len() + LENGTH_BYTES;
    let mut sent = 0;
    while links.streams.contains_key(&link) {
        links.send(link, &answer);
        sent += bytes;
        assert!(sent <= UNWRITTEN_BYTES_END + 2 * bytes);
    }
    let (closed, Input::Event(LinkEvent::Closed { reason })) = links.next().await else {
        panic!("it is open")
    };
    assert_eq!(closed, link);
    assert!(reason.contains("does not read"), "{reason}");
    assert_eq!(links.take_strangers().unwrap().count, 1);
    // All that waited is gone with it.
    while links.tasks.join_next().await.is_some() {}
    drop(caller);
}

// rule S1
#[tokio::test]
async fn streams_that_have_ended_leave_nothing_behind() {
    let mut links = Links::new(Duration::ZERO);
    for _ in 0..50 {
        let (link, caller) = called(&mut links, Message::Leave { returns: false }).await;
        drop(caller);
        links.close(link);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (link, _caller) = called(&mut links, Message::Leave { returns: false }).await;
    assert!(links.streams.len() == 1 && links.streams.contains_key(&link));
    assert!(links.tasks.len() < 25, "{} tasks", links.tasks.len());
}

#[tokio::test]
async fn accepted_streams_never_get_numbers_of_the_role() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut links = Links::new(Duration::ZERO);
    // As many as a stranger that calls 10,000 times a second has opened after two and a half days.
    links.accepted = Link::ACCEPTED + 0x7fff_ffff;
    for _ in 0..2 {
        let _caller = TcpStream::connect(address).await.unwrap();
        let (stream, remote) = listener.accept().await.unwrap();
        links.accept(Caller { stream: Transport::Plain(stream), remote, first: None });
    }
    assert!(links.streams.keys().all(|link| link.0 >= Link::ACCEPTED));
}
