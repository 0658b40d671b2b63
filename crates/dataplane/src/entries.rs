//! The loops over the entries of a packet: one pass each, as through a pipeline.

use crate::arithmetic::{Arithmetic, F32_MAGNITUDE, F32_MAX, add_f32};
use crate::dirty;
use crate::mutants::{Mutant, is_enabled};
use crate::packet::{Entry, EntryBytes};
use crate::simd;
use crate::table::FLOAT_TABLES;
use crate::wire::Malformed;

/// Addressing of the slots of a region by the entries of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// At least 1.
    pub(crate) lanes: u8,
    /// The last cell, reserved for padding.
    pub(crate) padding: u16,
}

impl Shape {
    /// The slots of the entries of a packet, given their cells one after the other.
    #[inline]
    fn slots(self) -> impl FnMut(u16) -> usize {
        let lanes = usize::from(self.lanes);
        let mut lane = 0_usize;
        move |cell| {
            let slot = usize::from(cell).wrapping_mul(lanes).wrapping_add(lane);
            lane = lane.wrapping_add(1);
            if lane >= lanes {
                lane = 0;
            }
            slot
        }
    }

    /// As [`slots`](Self::slots), with none for padding.
    #[inline]
    fn adding_slots(self) -> impl FnMut(u16) -> Option<usize> {
        let mut slots = self.slots();
        move |cell| {
            let slot = slots(cell);
            (cell != self.padding).then_some(slot)
        }
    }
}

/// Checks the entries of a push, and returns those that are to be added: all but the padding at the end.
///
/// In a packet that passes, no slot occurs twice and every value is within the bound (rule W5).
#[inline]
pub(crate) fn check_push(
    shape: Shape,
    arithmetic: Arithmetic,
    body: &[EntryBytes],
) -> Result<&[EntryBytes], Malformed> {
    let sound = match (shape.lanes, arithmetic) {
        (1, Arithmetic::Fixed { bound }) => {
            let bound = bound.cast_signed();
            simd::is_sound(shape.padding, body, bound).unwrap_or_else(|| {
                is_sound(shape.padding, body, |value| {
                    let value = value.cast_signed();
                    bound.wrapping_sub(value) | bound.wrapping_add(value)
                })
            })
        }
        (1, Arithmetic::F32 | Arithmetic::Table) => {
            is_sound(shape.padding, body, |value| F32_MAX.wrapping_sub(value & F32_MAGNITUDE).cast_signed())
        }
        _ => false,
    };
    // In a packet that is certainly sound there is no padding. The fast check may doubt others that are sound, too; the thorough one is
    // sure, and finds the fault.
    if sound {
        return Ok(body);
    }
    let adding = without_padding(shape, body);
    check_push_by_lane(shape, arithmetic, adding)?;
    Ok(adding)
}

fn without_padding(shape: Shape, body: &[EntryBytes]) -> &[EntryBytes] {
    let padding = Entry { cell: shape.padding, value: 0 }.to_bytes();
    let mut adding = body;
    while let Some((last, rest)) = adding.split_last()
        && *last == padding
    {
        adding = rest;
    }
    adding
}

/// Returns true if a push in one lane is certainly sound, determined without a branch per entry: anything wrong makes a number
/// negative, and the signs are gathered. `room` is negative for a value that is out of bounds.
fn is_sound(padding: u16, body: &[EntryBytes], room: impl Fn(u32) -> i32) -> bool {
    let mut signs = 0;
    let mut before = -1;
    let mut gather = |&bytes: &EntryBytes| {
        let Entry { cell, value } = Entry::from_bytes(bytes);
        let cell = i32::from(cell);
        signs |= cell.wrapping_sub(before).wrapping_sub(1) | room(value);
        before = cell;
    };
    let (fours, rest) = body.as_chunks::<4>();
    for four in fours {
        four.iter().for_each(&mut gather);
    }
    rest.iter().for_each(&mut gather);
    // As cells increase, the last is the highest.
    signs >= 0 && before < i32::from(padding)
}

/// Not inlined: in one lane few packets come here, and the others pass sooner without it.
#[inline(never)]
fn check_push_by_lane(shape: Shape, arithmetic: Arithmetic, body: &[EntryBytes]) -> Result<(), Malformed> {
    let cell_of = |&bytes: &EntryBytes| Some(Entry::from_bytes(bytes).cell);
    let none_before = core::iter::repeat_n(None, usize::from(shape.lanes));
    let before = none_before.chain(body.iter().map(cell_of));
    for (&bytes, before) in body.iter().zip(before) {
        let Entry { cell, value } = Entry::from_bytes(bytes);
        if cell > shape.padding {
            return Err(Malformed::Cell);
        }
        if cell == shape.padding {
            if value != 0 {
                return Err(Malformed::Value);
            }
        } else if before.is_some_and(|before| cell <= before) && !is_enabled(Mutant::CellOrderNotChecked) {
            return Err(Malformed::Order);
        }
        arithmetic.check(value)?;
    }
    Ok(())
}

/// Adds the entries of a push that was checked, and marks their blocks.
#[inline]
pub(crate) fn add(
    shape: Shape,
    arithmetic: Arithmetic,
    body: &[EntryBytes],
    sums: &mut [u32],
    dirty: &mut [u32],
) {
    let add_by_table = |sum, value| FLOAT_TABLES.add(sum, value);
    // A loop of its own for each case, so that none of them asks per entry which it is.
    match (shape.lanes, arithmetic) {
        (1, Arithmetic::Fixed { .. }) => add_slots(one_lane, u32::wrapping_add, body, sums, dirty),
        (1, Arithmetic::F32) => add_slots(one_lane, add_f32, body, sums, dirty),
        (1, Arithmetic::Table) => add_slots(one_lane, add_by_table, body, sums, dirty),
        (_, Arithmetic::Fixed { .. }) => {
            add_slots(shape.adding_slots(), u32::wrapping_add, body, sums, dirty);
        }
        (_, Arithmetic::F32) => add_slots(shape.adding_slots(), add_f32, body, sums, dirty),
        (_, Arithmetic::Table) => add_slots(shape.adding_slots(), add_by_table, body, sums, dirty),
    }
}

/// In one lane a slot is a cell, and the padding is at the end, where it was left out.
#[inline]
fn one_lane(cell: u16) -> Option<usize> {
    Some(usize::from(cell))
}

/// Four entries a turn: a loop that asks after each whether it was the last takes a third longer. Not inlined, as the loops of all cases in one function
/// have too few registers.
#[inline(never)]
fn add_slots(
    mut slot_of: impl FnMut(u16) -> Option<usize>,
    sum_of: impl Fn(u32, u32) -> u32,
    body: &[EntryBytes],
    sums: &mut [u32],
    dirty: &mut [u32],
) {
    let mut add = |&bytes: &EntryBytes| {
        let Entry { cell, value } = Entry::from_bytes(bytes);
        let Some(slot) = slot_of(cell) else { return };
        if let Some(sum) = sums.get_mut(slot) {
            *sum = sum_of(*sum, value);
        }
        dirty::mark(dirty, slot);
    };
    let (fours, rest) = body.as_chunks::<4>();
    for four in fours {
        four.iter().for_each(&mut add);
    }
    rest.iter().for_each(add);
}

/// The entries of a push in two halves, split where the lanes start again, so that each addresses its slots by itself.
pub(crate) fn halves(shape: Shape, body: &[EntryBytes]) -> (&[EntryBytes], &[EntryBytes]) {
    let half = body.len() / 2;
    let beyond = half.checked_rem(usize::from(shape.lanes)).unwrap_or_default();
    body.split_at(half.saturating_sub(beyond))
}

/// Fills in the values of the entries. On an error some are filled in.
pub(crate) fn read(shape: Shape, body: &mut [EntryBytes], values: &[u32]) -> Result<(), Malformed> {
    if shape.lanes == 1 {
        return read_slots(usize::from, body, values);
    }
    read_slots(shape.slots(), body, values)
}

#[inline]
fn read_slots(
    mut slot_of: impl FnMut(u16) -> usize,
    body: &mut [EntryBytes],
    values: &[u32],
) -> Result<(), Malformed> {
    for bytes in body {
        let cell = Entry::from_bytes(*bytes).cell;
        let &value = values.get(slot_of(cell)).ok_or(Malformed::Cell)?;
        *bytes = Entry { cell, value }.to_bytes();
    }
    Ok(())
}

/// Writes the values of the entries; all of them or, on an error, none.
pub(crate) fn install(shape: Shape, body: &[EntryBytes], values: &mut [u32]) -> Result<(), Malformed> {
    for &bytes in body {
        let Entry { cell, value } = Entry::from_bytes(bytes);
        if cell > shape.padding {
            return Err(Malformed::Cell);
        }
        if cell == shape.padding && value != 0 {
            return Err(Malformed::Value);
        }
    }
    let mut slots = shape.slots();
    for &bytes in body {
        let Entry { cell, value } = Entry::from_bytes(bytes);
        if let Some(slot) = values.get_mut(slots(cell)) {
            *slot = value;
        }
    }
    Ok(())
}

/// Takes the sums of the entries out of the idle bank and fills them in; all of them or, on an error, none.
pub(crate) fn drain(
    shape: Shape,
    body: &mut [EntryBytes],
    sums: &mut [u32],
    dirty: &mut [u32],
) -> Result<(), Malformed> {
    if body.iter().any(|&bytes| Entry::from_bytes(bytes).cell > shape.padding) {
        return Err(Malformed::Cell);
    }
    let mut slots = shape.slots();
    for bytes in body {
        let cell = Entry::from_bytes(*bytes).cell;
        let slot = slots(cell);
        let value = sums.get_mut(slot).map(core::mem::take).unwrap_or_default();
        *bytes = Entry { cell, value }.to_bytes();
        dirty::unmark_if_clear(dirty, sums, slot);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    const PADDING: u16 = 1000;
    const BOUND: i32 = (1 << 19) - 1;
    const SHAPE: Shape = Shape { lanes: 1, padding: PADDING };
    const FIXED: Arithmetic = Arithmetic::Fixed { bound: BOUND.cast_unsigned() };

    fn check(entries: &[(u16, i32)]) -> Result<usize, Malformed> {
        let bytes = |&(cell, value): &(u16, i32)| Entry { cell, value: value.cast_unsigned() }.to_bytes();
        let body: Vec<EntryBytes> = entries.iter().map(bytes).collect();
        check_push(SHAPE, FIXED, &body).map(<[EntryBytes]>::len)
    }

    // rule W5
    #[test]
    fn each_entry_of_a_packet_of_any_length_is_checked() {
        for count in 1_u16..40 {
            let sound: Vec<(u16, i32)> =
                (0..count).map(|place| (place * 25, if place % 2 == 0 { BOUND } else { -BOUND })).collect();
            assert_eq!(check(&sound), Ok(usize::from(count)));
            for place in 0..usize::from(count) {
                let with = |cell: Option<u16>, value: i32| {
                    let mut entries = sound.clone();
                    entries[place] = (cell.unwrap_or(entries[place].0), value);
                    check(&entries)
                };
                assert_eq!(with(None, 0), Ok(usize::from(count)));
                for value in [BOUND + 1, -BOUND - 1, i32::MAX, i32::MIN, i32::MAX - BOUND, i32::MIN + BOUND] {
                    assert_eq!(with(None, value), Err(Malformed::Value), "{value} at {place} of {count}");
                }
                assert_eq!(with(Some(PADDING + 1), 1), Err(Malformed::Cell), "{place} of {count}");
                assert_eq!(with(Some(u16::MAX), 1), Err(Malformed::Cell), "{place} of {count}");
                if let Some(before) = place.checked_sub(1) {
                    for cell in [sound[before].0, 0] {
                        assert_eq!(with(Some(cell), 1), Err(Malformed::Order), "{place} of {count}");
                    }
                }
            }
        }
    }
}
