//! Scanning JSON with the vectors of WebAssembly: a reader of an object mostly skips what is
//! around the fields that are read.

use crate::index;

/// The bytes of a block of 64 that are a quotation mark, a backslash, or an opening or a closing
/// bracket or brace: a bit each.
struct Block {
    quotes: u64,
    slashes: u64,
    opens: u64,
    closes: u64,
}

#[cfg(target_arch = "wasm32")]
mod vectors {
    use super::Block;
    use core::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_splat, v128, v128_load, v128_or};

    #[inline]
    #[target_feature(enable = "simd128")]
    unsafe fn load(b: &[u8; 16]) -> v128 {
        v128_load(b.as_ptr() as *const v128)
    }

    #[inline]
    #[target_feature(enable = "simd128")]
    unsafe fn mask(bytes: v128, b: u8) -> u64 {
        u8x16_bitmask(u8x16_eq(bytes, u8x16_splat(b))) as u64
    }

    /// Returns the quotation marks and the backslashes of 16 bytes.
    #[inline]
    #[target_feature(enable = "simd128")]
    pub(super) unsafe fn ends(b: &[u8; 16]) -> u32 {
        let bytes = load(b);
        u8x16_bitmask(v128_or(u8x16_eq(bytes, u8x16_splat(b'"')), u8x16_eq(bytes, u8x16_splat(b'\\')))) as u32
    }

    /// Returns the backslashes of 16 bytes.
    #[inline]
    #[target_feature(enable = "simd128")]
    pub(super) unsafe fn slashes(b: &[u8; 16]) -> u32 {
        mask(load(b), b'\\') as u32
    }

    #[inline]
    #[target_feature(enable = "simd128")]
    pub(super) unsafe fn block(b: &[u8; 64]) -> Block {
        let mut block = Block { quotes: 0, slashes: 0, opens: 0, closes: 0 };
        for i in 0..4 {
            let bytes = v128_load((b.as_ptr() as *const v128).add(i));
            let lower = v128_or(bytes, u8x16_splat(32)); // Brackets become braces.
            let at = 16 * i;
            block.quotes |= mask(bytes, b'"') << at;
            block.slashes |= mask(bytes, b'\\') << at;
            block.opens |= mask(lower, b'{') << at;
            block.closes |= mask(lower, b'}') << at;
        }
        block
    }
}

/// The same of a machine that runs the tests.
#[cfg(not(target_arch = "wasm32"))]
mod vectors {
    use super::Block;

    fn mask(b: &[u8], is: impl Fn(u8) -> bool) -> u64 {
        b.iter().enumerate().map(|(i, &c)| (is(c) as u64) << i).sum()
    }

    pub(super) unsafe fn ends(b: &[u8; 16]) -> u32 {
        mask(b, |c| c == b'"' || c == b'\\') as u32
    }

    pub(super) unsafe fn slashes(b: &[u8; 16]) -> u32 {
        mask(b, |c| c == b'\\') as u32
    }

    pub(super) unsafe fn block(b: &[u8; 64]) -> Block {
        Block {
            quotes: mask(b, |c| c == b'"'),
            slashes: mask(b, |c| c == b'\\'),
            opens: mask(b, |c| c | 32 == b'{'),
            closes: mask(b, |c| c | 32 == b'}'),
        }
    }
}

/// Returns N bytes at `at`, None if there are fewer.
#[inline(always)]
fn bytes_at<const N: usize>(b: &[u8], at: usize) -> Option<&[u8; N]> {
    b.get(at..)?.get(..N)?.try_into().ok()
}

/// Returns the position after the string that begins at `at`.
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
unsafe fn string(b: &[u8], at: usize) -> Option<usize> {
    let mut i = at + 1;
    loop {
        while let Some(bytes) = bytes_at::<16>(b, i) {
            let found = vectors::ends(bytes);
            if found != 0 {
                i += found.trailing_zeros() as usize;
                break;
            }
            i += 16;
        }
        // The end of what is left is found byte by byte.
        while !matches!(*b.get(i)?, b'"' | b'\\') {
            i += 1;
        }
        if b[i] == b'"' {
            return Some(i + 1);
        }
        i += 2;
    }
}

#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
unsafe fn escapes(b: &[u8]) -> bool {
    let mut i = 0;
    while let Some(bytes) = bytes_at::<16>(b, i) {
        if vectors::slashes(bytes) != 0 {
            return true;
        }
        i += 16;
    }
    b[i..].iter().any(|&c| c == b'\\')
}

/// Returns the position after the object or array that begins at `at`.
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
unsafe fn nested(b: &[u8], mut at: usize) -> Option<usize> {
    let start = at;
    let mut depth = 0;
    // All bits are set where the block before ended in a string.
    let mut in_string = 0u64;
    // The block before ended with a backslash that escapes.
    let mut escaped = false;
    loop {
        let (mut block, is_last) = match bytes_at::<64>(b, at) {
            Some(bytes) => (vectors::block(bytes), false),
            None => {
                let rest = b.get(at..)?;
                let mut bytes = [0; 64];
                bytes[..rest.len()].copy_from_slice(rest);
                (vectors::block(&bytes), true)
            }
        };
        if escaped {
            block.quotes &= !1;
            block.slashes &= !1;
            escaped = false;
        }
        while block.slashes != 0 {
            // The byte after a backslash neither ends a string nor escapes.
            let slash = block.slashes & block.slashes.wrapping_neg();
            let next = slash << 1;
            escaped = next == 0;
            block.quotes &= !next;
            block.slashes &= !(slash | next);
        }
        // The bytes from a quotation mark up to the next.
        let mut strings = block.quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            strings ^= strings << shift;
        }
        strings ^= in_string;
        in_string = (strings as i64 >> 63) as u64;
        let (opens, mut closes) = (block.opens & !strings, block.closes & !strings);
        if depth <= closes.count_ones() as usize {
            // It may end here.
            let mut closed = 1;
            while closes != 0 {
                let close = closes & closes.wrapping_neg();
                if depth + (opens & (close - 1)).count_ones() as usize == closed {
                    return Some(at + close.trailing_zeros() as usize + 1);
                }
                closed += 1;
                closes &= closes - 1;
            }
        }
        if is_last {
            return None;
        }
        if at == start {
            if let Some(end) = index::end(b, start) {
                return Some(end);
            }
        }
        depth = depth + opens.count_ones() as usize - (block.closes & !strings).count_ones() as usize;
        at += 64;
    }
}

/// Returns the position after the string that begins at `at`, None if it does not end.
pub(crate) fn string_end(b: &[u8], at: usize) -> Option<usize> {
    unsafe { string(b, at) }
}

/// Reports whether the inside of a string has a backslash.
pub(crate) fn has_escape(b: &[u8]) -> bool {
    unsafe { escapes(b) }
}

/// Returns the position after the object or array that begins at `at`, None if it does not end.
pub(crate) fn nested_end(b: &[u8], at: usize) -> Option<usize> {
    unsafe { nested(b, at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The same, byte by byte.
    fn plain_nested_end(b: &[u8], at: usize) -> Option<usize> {
        let (mut depth, mut i, mut quoted) = (0, at, false);
        loop {
            match *b.get(i)? {
                b'\\' if matches!(b.get(i + 1), Some(b'"' | b'\\')) => i += 1,
                b'"' => quoted = !quoted,
                b'{' | b'[' if !quoted => depth += 1,
                b'}' | b']' if !quoted => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(i + 1);
                    }
                }
                _ => {}
            }
            i += 1;
        }
    }

    fn plain_string_end(b: &[u8], at: usize) -> Option<usize> {
        let mut i = at + 1;
        loop {
            match *b.get(i)? {
                b'"' => return Some(i + 1),
                b'\\' => i += 2,
                _ => i += 1,
            }
        }
    }

    #[test]
    fn ends_are_where_a_reader_of_single_bytes_finds_them() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        for round in 0..30_000 {
            let length = 1 + below(200);
            let alphabet: &[u8] = if round % 2 == 0 { b"{}[]\"\\ab:," } else { b"ab\"cdefghijklmnopqrstuvwxyz0123456789{}\\" };
            let mut text: Vec<u8> = (0..length).map(|_| alphabet[below(alphabet.len() as u64) as usize]).collect();
            text[0] = b'{';
            assert_eq!(nested_end(&text, 0), plain_nested_end(&text, 0), "{:?}", core::str::from_utf8(&text));
            text[0] = b'"';
            assert_eq!(string_end(&text, 0), plain_string_end(&text, 0), "{:?}", core::str::from_utf8(&text));
            assert_eq!(has_escape(&text), text.contains(&b'\\'));
        }
    }
}
