//! Requests of a worker to shards: their pieces, and their bound.

use super::*;

/// Rows of shards in turn, one behind the other in the caller's array.
fn rows(count: u32, width: u32, shards: u16) -> Vec<ColdRow> {
    let row = |number: u32| ColdRow {
        shard: u16::try_from(number % u32::from(shards)).unwrap(),
        width,
        offset: number * width,
        key: u64::from(number),
    };
    let mut rows: Vec<ColdRow> = (0..count).map(row).collect();
    rows.sort_by_key(|row| row.shard);
    rows
}

fn client(shards: u16) -> ColdClient {
    ColdClient::new(shards, ValueFormat::F32)
}

/// Messages to send: shard, number, keys.
fn sent(client: &mut ColdClient) -> Vec<(u16, u64, Vec<u64>)> {
    let out = client.outbox.drain(..).map(|(shard, message)| match message {
        Message::Pull { number, keys } => (shard, number, keys.to_vec()),
        Message::Push(push) => {
            let (keys, gradients) = (push.keys.to_vec(), push.gradients.into_vec());
            // Every gradient of the tests is its key.
            let width = gradients.len() / keys.len();
            for (key, gradient) in keys.iter().zip(gradients.chunks(width)) {
                assert!(gradient.iter().all(|value| *value == *key as f32));
            }
            (shard, push.number, keys)
        }
        other => panic!("{other:?}"),
    });
    out.collect()
}

fn gradients(count: u32, width: u32) -> Vec<f32> {
    (0..count * width).map(|place| (place / width) as f32).collect()
}

fn bytes_open(client: &ColdClient) -> usize {
    client.shards.iter().flat_map(|shard| shard.open.values()).map(|request| request.piece.bytes).sum()
}

// rule C8
#[test]
fn a_large_operation_is_split_into_requests_of_each_row_once() {
    const ROWS: u32 = 3000;
    const WIDTH: u32 = 400;
    for push in [false, true] {
        let mut client = client(2);
        let answers = if push {
            client.push(7, rows(ROWS, WIDTH, 2), gradients(ROWS, WIDTH), false)
        } else {
            client.pull(7, rows(ROWS, WIDTH, 2))
        };
        // 1608 bytes a row: 652 rows a request, so three for the 1500 of each shard.
        assert_eq!(answers, 6);
        let mut seen = Vec::new();
        for (shard, _, keys) in sent(&mut client) {
            assert!(keys.len() * (8 + 4 * 400) <= REQUEST_BYTES_MAX);
            assert!(keys.iter().all(|key| key % 2 == u64::from(shard)));
            seen.extend(keys);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..u64::from(ROWS)).collect::<Vec<_>>());
        let mut places: Vec<usize> = Vec::new();
        for (shard, number) in [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)] {
            places.extend(client.answered(shard, number).unwrap().answered_spans().flatten());
        }
        places.sort_unstable();
        let expected = if push { 0 } else { (ROWS * WIDTH) as usize };
        assert_eq!(places, (0..expected).collect::<Vec<_>>());
        assert_eq!((client.answered(0, 1).is_none(), bytes_open(&client)), (true, 0));
    }
}

// rule C8
#[test]
fn a_row_is_never_split() {
    let mut client = client(1);
    let wide = 2 * u32::try_from(REQUEST_BYTES_MAX).unwrap() / 4;
    assert_eq!(client.pull(1, rows(3, wide, 1)), 3);
    let first = sent(&mut client);
    assert_eq!(first, [(0, 1, vec![0]), (0, 2, vec![1]), (0, 3, vec![2])]);
}

// rule C9
#[test]
fn a_shard_that_does_not_answer_is_asked_no_more_and_others_are() {
    let mut client = client(2);
    let mut to_slow = 0;
    for operation in 0..100 {
        client.push(operation, rows(20_000, 10, 2), gradients(20_000, 10), true);
        for (shard, number, _) in sent(&mut client) {
            if shard == 0 {
                to_slow += 1;
                continue;
            }
            assert!(client.answered(1, number).is_some());
        }
        assert!(
            client.shards[0].open_bytes <= WINDOW_BYTES && client.shards[0].open.len() <= WINDOW_REQUESTS
        );
    }
    assert!(
        client.shards[1].open.is_empty() && client.shards[1].waiting.is_empty(),
        "all of the other shard is done"
    );
    assert_eq!(client.shards[0].open.len(), to_slow);
    assert!((2..100).contains(&to_slow), "{to_slow}");
    // One answer makes room for one request.
    client.answered(0, 1).unwrap();
    assert_eq!(sent(&mut client).len(), 1);
    // After a broken stream it is asked what it was asked before, and nothing else.
    client.reconnected(0);
    let numbers: Vec<u64> = sent(&mut client).into_iter().map(|(_, number, _)| number).collect();
    let expected: Vec<u64> = client.shards[0].open.keys().copied().collect();
    assert_eq!(numbers, expected);
    // In the end nothing is left, and every operation was answered as often as it was sent.
    let mut number = 2;
    let mut answered = vec![0; 100];
    answered[0] = 1;
    while let Some(request) = client.answered(0, number) {
        answered[usize::try_from(request.operation).unwrap()] += 1;
        number += 1;
        sent(&mut client);
    }
    assert!(answered.iter().all(|count| *count == answered[0]), "{answered:?}");
    assert_eq!(bytes_open(&client), 0);
}

// rule C9
#[test]
fn small_requests_are_bounded_by_their_number() {
    let mut client = client(1);
    for operation in 0..1000 {
        client.pull(operation, rows(1, 1, 1));
    }
    assert_eq!(sent(&mut client).len(), WINDOW_REQUESTS);
}

// rule C9
#[test]
fn a_large_operation_does_not_hold_up_a_small_one() {
    let mut client = client(1);
    let answers = client.pull(1, rows(1000, 10_000, 1));
    let window = sent(&mut client).len();
    client.pull(2, rows(10, 1, 1));
    let mut done = 0;
    for number in 1.. {
        let request = client.answered(0, number).unwrap();
        if request.operation == 2 {
            break;
        }
        done += 1;
        sent(&mut client);
    }
    assert!(done <= window + 1 && window + 1 < answers as usize, "{done} of {answers}, window {window}");
}

#[test]
fn a_push_is_the_same_when_it_is_sent_again() {
    for format in [ValueFormat::F32, ValueFormat::Bf16, ValueFormat::F16] {
        let mut client = ColdClient::new(2, format);
        client.push(1, rows(500, 3, 2), gradients(500, 3).iter().map(|value| value / 7.0).collect(), true);
        let mut before: Vec<(u16, Message)> = client.outbox.drain(..).collect();
        client.reconnected(1);
        client.reconnected(0);
        before.reverse();
        assert!(client.outbox.iter().eq(&before));
    }
}

// rules C11, L4
#[test]
fn refused_pushes_are_not_sent_again_nor_counted_as_answered() {
    let mut client = client(1);
    client.push(7, rows(1, 1, 1), gradients(1, 1), false);
    client.push(8, rows(1, 1, 1), gradients(1, 1), false);
    client.pull(9, rows(1, 1, 1));
    sent(&mut client);
    // Of a row that is not in it, of a pull, of a shard that is not there: no answer to anything.
    assert!(client.refused(0, 1, 55).is_none());
    assert!(client.refused(0, 3, 0).is_none());
    assert!(client.refused(4, 1, 0).is_none());
    assert_eq!(client.refused(0, 2, 0).unwrap().operation, 8);
    assert!(client.refused(0, 2, 0).is_none());
    assert_eq!(client.answered_by(0), Answered::default());
    client.reconnected(0);
    assert_eq!(sent(&mut client).iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [1, 3]);
    client.answered(0, 1).unwrap();
    assert_eq!(client.answered_by(0), Answered { newest: 1, count: 1 });
    assert_eq!(bytes_open(&client), 12);
}
