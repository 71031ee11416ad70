//! The places of long arrays and objects in the objects of a request, as the host gives them. A
//! reader skips one of them in a step.

use crate::global::Global;

/// The index of a document. It may lack any place, and is not trusted.
#[derive(Clone, Copy)]
struct Index<'a> {
    /// Where the document lies.
    start: usize,
    len: usize,
    /// Numbers of eight bytes: `end << 32 | start`, ascending by start.
    places: &'a [u8],
}

const NONE: Index<'static> = Index { start: 0, len: 0, places: &[] };

/// The indexes of the object and the old object of the call that runs.
static INDEXES: Global<[Index<'static>; 2]> = Global::new([NONE; 2]);

/// Forgets the indexes of the call before.
#[cfg(target_arch = "wasm32")]
#[inline]
pub(crate) fn forget() {
    unsafe { *INDEXES.get() = [NONE; 2] }
}

/// Sets an index: 0 is that of the object, and 1 that of the old object.
///
/// # Safety
///
/// Both the document and the places must stay until the next call begins.
pub(crate) unsafe fn set(number: usize, document: &[u8], places: &[u8]) {
    let places = core::slice::from_raw_parts(places.as_ptr(), places.len());
    INDEXES.get()[number] = Index { start: document.as_ptr() as usize, len: document.len(), places };
}

/// Returns the position after the array or object that begins at `at`, None if no index has it.
#[inline(never)]
pub(crate) fn end(b: &[u8], at: usize) -> Option<usize> {
    end_in(unsafe { INDEXES.get() }, b, at)
}

fn end_in(indexes: &[Index<'_>], b: &[u8], at: usize) -> Option<usize> {
    let place = b.as_ptr() as usize + at;
    let index = indexes.iter().find(|x| place.wrapping_sub(x.start) < x.len)?;
    let start = place - index.start;
    let entry = |i: usize| index.places.get(8 * i..8 * i + 8).map_or(0, |p| u64::from_le_bytes(p.try_into().unwrap_or_default()));
    let n = index.places.len() / 8;
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = (low + high) / 2;
        if (entry(middle) as u32 as usize) < start {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == n || entry(low) as u32 as usize != start {
        return None;
    }
    let last = at.checked_add((entry(low) >> 32) as usize)?.checked_sub(start)?.checked_sub(1)?;
    (last > at && *b.get(last)? == b[at] + 2).then_some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn an_index_is_not_trusted() {
        let document = br#"{"a": [1, 2, {"b": []}], "c": {}}"#;
        let mut places = Vec::new();
        for (start, end) in [(0u64, 33u64), (6, 23), (7, 23), (13, 24), (19, 21), (30, 400), (31, 31)] {
            places.extend_from_slice(&(end << 32 | start).to_le_bytes());
        }
        let indexes = [NONE, Index { start: document.as_ptr() as usize, len: document.len(), places: &places }];
        let end = |b: &[u8], at| end_in(&indexes, b, at);
        assert_eq!(end(document, 0), Some(33));
        assert_eq!(end(document, 6), Some(23));
        assert_eq!(end(&document[..22], 6), None); // The value around it ends before.
        assert_eq!(end(&document[6..], 0), Some(17)); // A part of the document.
        assert_eq!(end(document, 13), None); // It does not end with its bracket.
        assert_eq!(end(document, 30), None);
        assert_eq!(end(document, 25), None);
        assert_eq!(end_in(&[NONE; 2], document, 0), None);
    }
}
