//! State that all instances of a plugin share: abi/SPEC.md, section 6. It needs the grant "state".
//!
//! The memory of a module belongs to one instance, and a plugin has several. This state lies in the
//! host. A call is a transaction: it sees one moment and its own writes, which count together, or
//! not at all if it traps, fails or refuses without [`keep`].

use alloc::string::String;

use crate::{host, memory, view, Call};

/// An entry of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a [u8],
    /// A number that changes whenever the entry is written.
    pub version: u64,
}

impl Entry<'_> {
    /// Returns the number of a counter, 0 if the entry is none.
    pub fn number(&self) -> i64 {
        <[u8; 8]>::try_from(self.value).map(i64::from_le_bytes).unwrap_or(0)
    }
}

const ANY: i64 = -1;

/// Returns the entry with a key, of 1 to 512 bytes.
pub fn get<'a>(call: impl Into<Call<'a>>, key: &'a str) -> Option<Entry<'a>> {
    let b = host::ask_about(call.into(), host::state_get, key.as_bytes());
    let version = b.get(..8)?;
    Some(Entry { key, value: &b[8..], version: u64::from_le_bytes(version.try_into().ok()?) })
}

/// Writes an entry. False if the state is full.
pub fn put(key: &str, value: &[u8]) -> bool {
    write(key, value, ANY)
}

/// Writes an entry if it has the version, or if there is none and the version is 0. False if it has
/// another, or the state is full.
pub fn put_if(key: &str, value: &[u8], version: u64) -> bool {
    write(key, value, version as i64)
}

fn write(key: &str, value: &[u8], version: i64) -> bool {
    unsafe { host::state_put(key.as_ptr(), key.len() as u32, value.as_ptr(), value.len() as u32, version) == 0 }
}

/// Deletes an entry, and reports whether there was one.
pub fn delete(key: &str) -> bool {
    unsafe { host::state_delete(key.as_ptr(), key.len() as u32, ANY) == 0 }
}

/// Deletes an entry if it has the version, and reports whether it had.
pub fn delete_if(key: &str, version: u64) -> bool {
    unsafe { host::state_delete(key.as_ptr(), key.len() as u32, version as i64) == 0 }
}

/// Adds to a counter, which is 0 if it is not there. False, and nothing is added, if the sum would be
/// above `limit` or, with a `delta` below 0, below it, or if the state is full.
///
/// # Panics
///
/// If the entry is no counter.
pub fn add(key: &str, delta: i64, limit: i64) -> bool {
    match unsafe { host::state_add(key.as_ptr(), key.len() as u32, delta, limit) } {
        3 => panic!("state: {} is no counter", key),
        result => result == 0,
    }
}

/// Returns the entries whose keys begin with `prefix`, in the order of their keys. Entries whose
/// keys are not UTF-8 have replacement characters in them.
pub fn list<'a>(call: impl Into<Call<'a>>, prefix: &str) -> Entries<'a> {
    Entries { call: call.into(), prefix: prefix.into(), after: String::new(), page: &[] }
}

/// Iterates over entries.
pub struct Entries<'a> {
    call: Call<'a>,
    prefix: String,
    after: String,
    page: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        if self.page.is_empty() {
            let (prefix, after) = (&self.prefix, &self.after);
            self.page = memory::fill(self.call, |buf, limit| unsafe {
                host::state_list(prefix.as_ptr(), prefix.len() as u32, after.as_ptr(), after.len() as u32, buf, limit)
            });
        }
        let number = |at: usize| Some(u32::from_le_bytes(self.page.get(at..at + 4)?.try_into().ok()?) as usize);
        let (key, value) = (number(0)?, number(4)?);
        let version = u64::from_le_bytes(self.page.get(8..16)?.try_into().ok()?);
        let rest = &self.page[16..];
        let entry = Entry { key: view::utf8(self.call, &rest[..key]), value: &rest[key..key + value], version };
        self.page = &rest[key + value..];
        if self.page.is_empty() {
            self.after = entry.key.into();
        }
        Some(entry)
    }
}

/// Has the writes of the call count also if it refuses.
pub fn keep() {
    unsafe { host::state_keep() }
}
