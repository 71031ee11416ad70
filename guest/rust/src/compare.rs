//! Comparing bytes by words. What rustc links for wasm compares byte by byte, in a function of
//! its own; a plugin compares names and labels more than it does anything else.

/// Reads eight bytes, which must be there.
#[inline(always)]
unsafe fn word(b: &[u8], at: usize) -> u64 {
    (b.as_ptr().add(at) as *const u64).read_unaligned()
}

/// Reads four bytes, which must be there.
#[inline(always)]
unsafe fn half(b: &[u8], at: usize) -> u32 {
    (b.as_ptr().add(at) as *const u32).read_unaligned()
}

/// Reports whether two texts are equal.
#[inline(always)]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && same_bytes(a, b)
}

/// Reports whether two texts of one length are equal. Words may overlap the ones before.
#[inline(never)]
fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let n = a.len().min(b.len());
    unsafe {
        if n >= 8 {
            let mut i = 0;
            while i + 8 < n {
                if word(a, i) != word(b, i) {
                    return false;
                }
                i += 8;
            }
            return word(a, n - 8) == word(b, n - 8);
        }
        if n >= 4 {
            return half(a, 0) == half(b, 0) && half(a, n - 4) == half(b, n - 4);
        }
    }
    n == 0 || a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]
}

/// What `==` and the order of slices call: it takes the place of the one of compiler_builtins.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
#[no_mangle]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut i = 0;
    while i + 8 <= n {
        let (v, w) = ((a.add(i) as *const u64).read_unaligned(), (b.add(i) as *const u64).read_unaligned());
        if v != w {
            return if v.swap_bytes() < w.swap_bytes() { -1 } else { 1 }; // The first byte counts most.
        }
        i += 8;
    }
    while i < n {
        let (v, w) = (*a.add(i), *b.add(i));
        if v != w {
            return v as i32 - w as i32;
        }
        i += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn texts_are_the_same_if_all_their_bytes_are() {
        let text: std::vec::Vec<u8> = (0..40).collect();
        for n in 0..text.len() {
            assert!(same(&text[..n], &text[..n].to_vec()));
            assert!(!same(&text[..n], &text[..n + 1]));
            for changed in 0..n {
                let mut other = text[..n].to_vec();
                other[changed] ^= 1;
                assert!(!same(&text[..n], &other), "{} of {} bytes", changed, n);
            }
        }
    }
}
