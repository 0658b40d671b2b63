use super::*;

#[test]
fn rows_lie_where_no_other_does_and_are_never_moved() {
    for words in [1, 3, 40, 5_000, 400_000] {
        let mut slabs = Slabs::new(words);
        let rows: u32 = if words > 1000 { 80 } else { 200_000 };
        let rows = if words == 40 { 60_000 } else { rows };
        for row in 0..rows {
            assert_eq!(slabs.take(u64::from(row) << 20), row);
            let place = slabs.place(row);
            assert!(slabs.payload(place).iter().all(|word| *word == 0));
            slabs.payload_mut(place).fill(row);
        }
        for row in 0..rows {
            let place = slabs.place(row);
            assert_eq!(slabs.key(place), u64::from(row) << 20);
            assert!(slabs.payload(place).iter().all(|word| *word == row));
        }
        let payload = rows as usize * (words + KEY_WORDS) * size_of::<u32>();
        let slack = slabs.memory_bytes() - payload;
        // A row that is larger than a slab has one of its own.
        assert!(slack <= payload / 32 + 2 * SLAB_BYTES_MIN, "{words}: {payload} {slack}");
    }
}

#[test]
fn a_freed_row_is_used_again_and_is_zero() {
    let mut slabs = Slabs::new(1);
    for key in 0..10 {
        let row = slabs.take(key);
        let place = slabs.place(row);
        slabs.payload_mut(place)[0] = 77;
    }
    slabs.free(3);
    slabs.free(8);
    let keys = |slabs: &Slabs| slabs.iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(&slabs), [0, 1, 2, 4, 5, 6, 7, 9]);
    assert_eq!([20, 21, 22].map(|key| slabs.take(key)), [8, 3, 10]);
    assert_eq!(slabs.payload(slabs.place(8)), [0]);
    assert_eq!(keys(&slabs), [0, 1, 2, 21, 4, 5, 6, 7, 20, 9, 22]);
}
