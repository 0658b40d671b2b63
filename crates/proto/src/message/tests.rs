use super::*;

fn values() -> SlotValues {
    SlotValues { slots: vec![(3, 500), (u16::MAX - 9, 9), (7, 1)], values: Bulk(vec![7; 510]) }
}

fn contents() -> RoundContents {
    let flow = AckedSet { below: u32::MAX, above: vec![(u32::MAX, u32::MAX); 70] };
    RoundContents { flows: (u16::MAX - 20..u16::MAX).map(|worker| (worker, flow.clone())).collect() }
}

/// Each message that can be large, with numbers that take as many bytes as they can.
fn large() -> Vec<Message> {
    let most = u64::MAX;
    let drained = Drained {
        region: 255,
        view_id: most,
        round: most,
        contents: contents(),
        slots: values().slots,
        sums: values().values,
    };
    let keys = || Keys::from((0..1000).collect::<Vec<u64>>().as_slice());
    let far_apart = Keys::from((0..1000).rev().collect::<Vec<u64>>().as_slice());
    let answer = || Values::from(vec![0.5; 1000]);
    let packets = vec![Bulk(vec![1; 1500]); 300];
    vec![
        Message::Push(ColdPush { number: most, keys: keys(), gradients: answer(), answer: true }),
        Message::Pushed { number: most, view: most, values: answer() },
        Message::Pull { number: most, keys: far_apart },
        Message::Pulled { number: most, values: answer() },
        Message::Replay(Replay { region: 255, view_id: most, below: u32::MAX, packets }),
        Message::Adopt { region: 255, view_id: most, round: most, contents: contents() },
        Message::Adopted(Adopted {
            region: 255,
            view_id: most,
            round: most,
            contents: contents(),
            change: most,
            values: values(),
        }),
        Message::Drained(drained.into()),
        Message::Committed(Committed { region: 255, view_id: most, round: most, values: values() }),
        Message::Changed(Changed { region: 255, view_id: most, change: most, values: values() }),
        Message::Assign(Assign {
            number: most,
            table: u16::MAX,
            keys: keys(),
            values: Bulk(vec![0.5; 1000]),
            states: Bulk(vec![0.5; 2000]),
        }),
        Message::Scanned {
            number: most,
            page: TablePage {
                keys: keys(),
                values: Bulk(vec![0.5; 1000]),
                states: Bulk(vec![0.5; 2000]),
                steps: most,
                next: Some(most),
            },
        },
    ]
}

#[test]
fn a_large_message_is_encoded_with_one_allocation() {
    for message in large() {
        let mut encoded = Vec::new();
        let allocated = allocation_counter::measure(|| encoded = message.encode_behind(&[0; 4]));
        assert_eq!(allocated.count_total, 1, "{} bytes of {message:?}", encoded.len());
        assert_eq!(Message::decode(&encoded[4..]).unwrap(), message);
    }
}
