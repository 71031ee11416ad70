//! The wire format of protobuf: reading where the bytes lie, and writing. Nothing here
//! panics, reads beyond its bytes or recurses, whatever the bytes are: malformed bytes end
//! the message.

use alloc::vec::Vec;

/// The wire types that there are.
pub(crate) const VARINT: u32 = 0;
pub(crate) const FIXED64: u32 = 1;
pub(crate) const BYTES: u32 = 2;
pub(crate) const FIXED32: u32 = 5;

/// The largest number of a field.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// Reads the number at `at` and returns it with the position after it. A number that does not
/// end, or that has more than 64 bits, is none.
#[inline(always)]
pub fn varint(b: &[u8], at: usize) -> Option<(u64, usize)> {
    match b.get(at) {
        Some(&first) if first < 0x80 => Some((first as u64, at + 1)),
        _ => long_varint(b, at),
    }
}

#[inline(never)]
fn long_varint(b: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = *b.get(at)?;
        at += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= ((byte & 0x7f) as u64) << shift;
        if byte < 0x80 {
            return Some((value, at));
        }
        shift += 7;
    }
}

/// Reads `n` bytes at `at` as a number, the lowest byte first.
#[inline]
pub(crate) fn fixed(b: &[u8], at: usize, n: usize) -> Option<u64> {
    let mut value = 0;
    for (i, &byte) in b.get(at..at.checked_add(n)?)?.iter().enumerate() {
        value |= (byte as u64) << (8 * i);
    }
    Some(value)
}

/// A field of a message.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    /// The number of the field.
    pub number: u32,
    pub(crate) wire: u32,
    /// The number that the field is, in the bits of its encoding.
    pub bits: u64,
    /// The bytes of a field that is no number.
    pub bytes: &'a [u8],
}

/// The fields of a message, in the order in which they lie.
///
/// ```
/// use kubewasm::wire::Fields;
///
/// let mut fields = Fields::new(&[0x08, 0x2a, 0x12, 0x02, b'h', b'i']);
/// assert_eq!(fields.next().map(|f| (f.number, f.bits)), Some((1, 42)));
/// assert_eq!(fields.next().map(|f| (f.number, f.bytes)), Some((2, &b"hi"[..])));
/// assert!(fields.next().is_none());
/// ```
#[derive(Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Returns the fields of a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Fields { bytes, at: 0 }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        let b = self.bytes;
        if self.at >= b.len() {
            return None;
        }
        let found = field_at(b, self.at);
        self.at = match found {
            Some((_, next)) => next,
            None => b.len(),
        };
        found.map(|(field, _)| field)
    }
}

/// Reads the field at `at`, and returns it with the position after it.
#[inline(always)]
fn field_at(b: &[u8], at: usize) -> Option<(Field<'_>, usize)> {
    let (key, at) = varint(b, at)?;
    let number = key >> 3;
    if number == 0 || number > MAX_FIELD {
        return None;
    }
    let mut field = Field { number: number as u32, wire: key as u32 & 7, bits: 0, bytes: &[] };
    let next = match field.wire {
        BYTES => {
            let (n, at) = varint(b, at)?;
            if n > (b.len() - at) as u64 {
                return None;
            }
            field.bytes = &b[at..at + n as usize];
            at + n as usize
        }
        VARINT => {
            let (bits, at) = varint(b, at)?;
            field.bits = bits;
            at
        }
        FIXED64 => {
            field.bits = fixed(b, at, 8)?;
            at + 8
        }
        FIXED32 => {
            field.bits = fixed(b, at, 4)?;
            at + 4
        }
        _ => return None,
    };
    Some((field, next))
}

/// Returns the bytes of a message from the first field with the number on, and that field.
/// With `ordered` the fields come in the order of their numbers, and the search ends at the
/// first that is larger.
#[inline(never)]
pub(crate) fn first(b: &[u8], number: u32, ordered: bool) -> Option<(Field<'_>, &[u8])> {
    let mut at = 0;
    while at < b.len() {
        let (field, next) = field_at(b, at)?;
        if field.number == number {
            return Some((field, &b[at..]));
        }
        if ordered && field.number > number {
            return None;
        }
        at = next;
    }
    None
}

/// Returns the last field with the number: that is the one that counts.
#[inline(never)]
pub(crate) fn last(b: &[u8], number: u32, ordered: bool) -> Option<Field<'_>> {
    let (mut at, mut found) = (0, None);
    while at < b.len() {
        let (field, next) = match field_at(b, at) {
            Some(both) => both,
            None => break,
        };
        if field.number == number {
            found = Some(field);
        } else if ordered && field.number > number {
            break;
        }
        at = next;
    }
    found
}

/// Appends a number.
pub fn append_varint(b: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        b.push(value as u8 | 0x80);
        value >>= 7;
    }
    b.push(value as u8);
}

/// Appends a field that is a number.
pub fn append_number(b: &mut Vec<u8>, number: u32, value: u64) {
    append_varint(b, (number as u64) << 3);
    append_varint(b, value);
}

/// Appends a field of 32 bits.
pub fn append_fixed32(b: &mut Vec<u8>, number: u32, value: u32) {
    append_varint(b, (number as u64) << 3 | FIXED32 as u64);
    b.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of 64 bits.
pub fn append_fixed64(b: &mut Vec<u8>, number: u32, value: u64) {
    append_varint(b, (number as u64) << 3 | FIXED64 as u64);
    b.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of bytes.
pub fn append_bytes(b: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    append_varint(b, (number as u64) << 3 | BYTES as u64);
    append_varint(b, bytes.len() as u64);
    b.extend_from_slice(bytes);
}

/// Appends a field that is a message, which `write` appends.
pub fn append_message(b: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    append_varint(b, (number as u64) << 3 | BYTES as u64);
    let at = b.len();
    b.push(0);
    write(b);
    let n = b.len() - at - 1;
    if n < 0x80 {
        b[at] = n as u8;
        return;
    }
    // The length needs more than the byte that it has. What follows moves.
    let more = (63 - (n as u64).leading_zeros() as usize) / 7;
    b.resize(b.len() + more, 0);
    b.copy_within(at + 1..at + 1 + n, at + 1 + more);
    for i in 0..=more {
        let rest = (n as u64 >> (7 * i)) as u8;
        b[at + i] = if i < more { rest | 0x80 } else { rest };
    }
}

/// Appends an entry of a map of strings.
pub fn append_entry(b: &mut Vec<u8>, number: u32, key: &str, value: &str) {
    append_message(b, number, |b| {
        append_bytes(b, 1, key.as_bytes());
        append_bytes(b, 2, value.as_bytes());
    });
}

/// The encoding of sint32 and sint64, as a number.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(crate) fn unzigzag(bits: u64) -> i64 {
    (bits >> 1) as i64 ^ -((bits & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_length_have_it_before_them() {
        for n in [0, 1, 127, 128, 129, 16383, 16384, 1 << 21] {
            let text: Vec<u8> = (0..n).map(|i| i as u8).collect();
            let mut b = Vec::new();
            append_message(&mut b, 3, |b| b.extend_from_slice(&text));
            append_number(&mut b, 4, 5);
            let fields: Vec<_> = Fields::new(&b).map(|f| (f.number, f.bits, f.bytes)).collect();
            assert_eq!(fields, [(3, 0, &text[..]), (4, 5, &[])]);
        }
    }
}
