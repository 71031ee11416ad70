//! Objects that the host knows by refs: abi/SPEC.md, 4.7. What is read of an object stays
//! until another version of it comes, so that a Node that was seen before costs no call of the
//! host.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::compare::same;
use crate::global::Global;
use crate::select::Terms;
use crate::{host, memory, Call};

/// The fields of the metadata that tell objects apart: name, uid and resourceVersion. They are
/// fetched alone, since a host that passed them could not share results between Nodes.
const IDENTITY: u64 = 1 << 1 | 1 << 5 | 1 << 6;
const METADATA: u32 = 1;
const ALL: u64 = !0;
/// The answer of object_entry for a key that is not there.
const NO_ENTRY: u32 = !0;
/// How many entries of an object are fetched one by one before all of them are.
const LOOKED: u32 = 4;
/// How many keys of an object are remembered for its next version.
const ENTRIES: usize = 16;
/// The most taints or tolerations of an object that are kept decoded.
const TERMS: usize = 16;
/// The room that bytes get beyond their first version.
const SLACK: usize = 32;

/// How an object is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// It consists of metadata, spec and status, whose fields are fetched when they are read.
    Parts,
    /// All of it is fetched when a field is read.
    Whole,
    /// All of it is fetched, in JSON: a custom resource.
    Json,
}

/// An object by its slot.
pub(crate) struct Object {
    pub(crate) id: u64,
    /// The call that last used this version.
    used: u32,
    pub(crate) form: Form,
    /// The number of its kind.
    kind: u32,
    pub(crate) parts: [Part; 3],
}

/// What is known of a message in a field of an object, or of the whole object.
pub(crate) struct Part {
    id: u64,
    number: u32,
    /// The index of the object's kind in `Objects.kinds`.
    kind: usize,
    /// The fields that were fetched, and their bytes.
    have: u64,
    chunks: Vec<Chunk>,
    entries: Vec<Entry>,
    /// How many entries were fetched one by one.
    looked: u32,
    /// The number of a field, 0 of none, and its taints or tolerations, decoded.
    terms_of: u32,
    terms: Vec<Terms<'static>>,
}

struct Chunk {
    fields: u64,
    bytes: Vec<u8>,
}

/// An entry of labels or annotations that was fetched alone.
struct Entry {
    field: u32,
    key: Box<[u8]>,
    value: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Absent,
    Present,
}

struct Objects {
    slots: Vec<*mut Object>,
    /// Objects that were replaced while the call used them.
    replaced: Vec<*mut Object>,
    /// For each kind of object and part, the fields that were ever read: a plugin reads the
    /// same ones of each object, so they are fetched together.
    kinds: Vec<(u32, [u64; 3])>,
}

static OBJECTS: Global<Objects> = Global::new(Objects { slots: Vec::new(), replaced: Vec::new(), kinds: Vec::new() });

/// A host that uses larger slots is at fault.
const MAX_SLOT: u32 = 1 << 20;

/// Begins a call and returns it.
///
/// # Safety
///
/// Nothing of the call before may be used any more, and nothing of this one after it.
#[inline]
pub(crate) unsafe fn begin<'a>() -> Call<'a> {
    memory::begin();
    let objects = OBJECTS.get();
    if !objects.replaced.is_empty() {
        drop_replaced(objects);
    }
    Call::running()
}

#[inline(never)]
fn drop_replaced(objects: &mut Objects) {
    for o in objects.replaced.drain(..) {
        drop(unsafe { Box::from_raw(o) });
    }
}

/// Returns the object with a ref, of a kind with the number.
#[inline]
pub(crate) fn by_ref(id: u64, kind: u32, form: Form) -> *const Object {
    let objects = unsafe { OBJECTS.get() };
    let slot = id as u32 as usize;
    if let Some(&o) = objects.slots.get(slot) {
        if !o.is_null() {
            let object = unsafe { &mut *o };
            if object.id == id && object.kind == kind {
                object.used = memory::number();
                return o;
            }
        }
    }
    renew(objects, id, kind, form)
}

#[inline(never)]
fn renew(objects: &mut Objects, id: u64, kind: u32, form: Form) -> *const Object {
    let slot = id as u32;
    if slot >= MAX_SLOT {
        panic!("the host used a slot beyond the largest");
    }
    let slot = slot as usize;
    if slot >= objects.slots.len() {
        objects.slots.resize(slot + 1, core::ptr::null_mut());
    }
    let now = memory::number();
    let old = objects.slots[slot];
    if !old.is_null() {
        let object = unsafe { &mut *old };
        if object.used != now && object.kind == kind && object.form == form {
            object.id = id;
            object.used = now;
            for part in object.parts.iter_mut() {
                part.renew(id);
            }
            return old;
        }
        objects.replaced.push(old);
    }
    let index = match objects.kinds.iter().position(|k| k.0 == kind) {
        Some(index) => index,
        None => {
            objects.kinds.push((kind, [0; 3]));
            objects.kinds.len() - 1
        }
    };
    let part = |number| Part { id, number, kind: index, have: 0, chunks: Vec::new(), entries: Vec::new(), looked: 0, terms_of: 0, terms: Vec::new() };
    let object = Box::into_raw(Box::new(Object { id, used: now, form, kind, parts: [part(1), part(2), part(3)] }));
    objects.slots[slot] = object;
    object
}

impl Object {
    /// Returns all bytes of the object. They take the place of its parts.
    ///
    /// # Safety
    ///
    /// The lifetime must be that of the call that has the object.
    pub(crate) unsafe fn whole<'a>(this: *const Object) -> &'a [u8] {
        // In an object that is read as a whole, the first part is that.
        let object = &mut *(this as *mut Object);
        let (id, form) = (object.id, object.form);
        if form == Form::Parts {
            return memory::fill(Call::running(), |buf, limit| host::object(id, buf, limit));
        }
        let part = &mut object.parts[0];
        if part.have != ALL {
            part.fetch(ALL, |_, buf, limit| host::object(id, buf, limit));
        }
        part.chunk(1)
    }
}

impl Part {
    /// Forgets another version and keeps its memory.
    fn renew(&mut self, id: u64) {
        self.id = id;
        self.have = 0;
        self.looked = 0;
        self.terms_of = 0;
        for chunk in self.chunks.iter_mut() {
            chunk.fields = 0;
        }
        if self.entries.len() > ENTRIES {
            self.entries.clear(); // The plugin looks up other keys each time.
        }
        for entry in self.entries.iter_mut() {
            entry.state = State::Unknown;
        }
    }

    /// Returns bytes of the message that have its field of the number, if there is one.
    ///
    /// # Safety
    ///
    /// The lifetime must be that of the call that has the part's object.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(this: *const Part, field: u32) -> &'a [u8] {
        let part = &mut *(this as *mut Part);
        let bit = 1u64.checked_shl(field).unwrap_or(0);
        if bit == 0 || part.have & bit == 0 {
            part.miss(bit);
        }
        part.chunk(bit)
    }

    /// Fetches a field that is missing: together with those that were ever read if none was
    /// fetched yet, and else alone.
    #[inline(never)]
    fn miss(&mut self, bit: u64) {
        let objects = unsafe { OBJECTS.get() };
        let wanted = &mut objects.kinds[self.kind].1[self.number as usize - 1];
        if bit == 0 {
            *wanted = ALL; // A field whose number is beyond a bit.
        } else if self.number != METADATA || bit & IDENTITY == 0 {
            *wanted |= bit;
        }
        let fields = if bit == 0 || self.have == 0 { *wanted | bit } else { bit };
        if bit == 0 && self.have == ALL {
            return;
        }
        let (id, number) = (self.id, self.number);
        self.fetch(fields, |fields, buf, limit| unsafe { host::object_part(id, number, fields, buf, limit) });
    }

    /// Fetches fields into a chunk of their own.
    fn fetch(&mut self, fields: u64, ask: impl Fn(u64, *mut u8, u32) -> u32) {
        let free = match self.chunks.iter().position(|c| c.fields == 0) {
            Some(i) => i,
            None => {
                self.chunks.push(Chunk { fields: 0, bytes: Vec::new() });
                self.chunks.len() - 1
            }
        };
        let chunk = &mut self.chunks[free];
        fill(&mut chunk.bytes, |buf, limit| ask(fields, buf, limit));
        chunk.fields = fields;
        self.have |= fields;
    }

    /// Returns the bytes of the chunk that has a field.
    ///
    /// # Safety
    ///
    /// The lifetime must be that of the call that has the part's object.
    #[inline]
    unsafe fn chunk<'a>(&self, bit: u64) -> &'a [u8] {
        for chunk in self.chunks.iter() {
            if chunk.fields & bit != 0 || chunk.fields == ALL {
                return core::slice::from_raw_parts(chunk.bytes.as_ptr(), chunk.bytes.len());
            }
        }
        &[]
    }

    /// Returns the terms in a field, which `read` reads for the first call that asks for them.
    /// None means that they cannot be kept.
    ///
    /// # Safety
    ///
    /// The lifetime must be that of the call that has the part's object.
    #[inline]
    pub(crate) unsafe fn terms<'a, I: Iterator<Item = Terms<'a>>>(this: *const Part, field: u32, read: impl FnOnce() -> I) -> Option<&'a [Terms<'a>]> {
        let part = &mut *(this as *mut Part);
        if part.terms_of == 0 {
            // The bytes stay where they are until the object has another version.
            part.terms.clear();
            part.terms.extend(read().take(TERMS + 1).map(|t| core::mem::transmute::<Terms<'a>, Terms<'static>>(t)));
            if part.terms.len() > TERMS {
                return None;
            }
            part.terms_of = field;
        }
        if part.terms_of != field {
            return None; // Those of another field are in use.
        }
        Some(core::slice::from_raw_parts(part.terms.as_ptr(), part.terms.len()))
    }

    /// Returns an entry of the labels or annotations without the others. `Err` means that all
    /// entries are better read at once.
    ///
    /// # Safety
    ///
    /// The lifetime must be that of the call that has the part's object.
    pub(crate) unsafe fn entry<'a>(this: *const Part, field: u32, key: &str) -> Result<Option<&'a [u8]>, ()> {
        let part = &mut *(this as *mut Part);
        if part.number != METADATA || (field != 11 && field != 12) || part.have >> field & 1 != 0 {
            return Err(());
        }
        let id = part.id;
        let known = part.entries.iter().position(|e| e.field == field && same(&e.key, key.as_bytes()));
        let known = match known {
            Some(i) if part.entries[i].state != State::Unknown => i,
            _ if part.looked == LOOKED => return Err(()),
            Some(i) => i,
            None => {
                part.entries.push(Entry { field, key: key.as_bytes().into(), value: Vec::new(), state: State::Unknown });
                part.entries.len() - 1
            }
        };
        let entry = &mut part.entries[known];
        if entry.state == State::Unknown {
            part.looked += 1;
            let found = fill_or_none(&mut entry.value, |buf, limit| host::object_entry(id, field, key.as_ptr(), key.len() as u32, buf, limit));
            entry.state = if found { State::Present } else { State::Absent };
        }
        if entry.state == State::Absent {
            return Ok(None);
        }
        Ok(Some(core::slice::from_raw_parts(entry.value.as_ptr(), entry.value.len())))
    }
}

/// Fills `bytes` by the buffer-limit rule.
fn fill(bytes: &mut Vec<u8>, ask: impl Fn(*mut u8, u32) -> u32) {
    fill_or_none(bytes, |buf, limit| {
        let n = ask(buf, limit);
        assert!(n != NO_ENTRY, "the host answered with an object of 4 GiB");
        n
    });
}

fn fill_or_none(bytes: &mut Vec<u8>, ask: impl Fn(*mut u8, u32) -> u32) -> bool {
    bytes.clear();
    let mut n = ask(bytes.as_mut_ptr(), bytes.capacity() as u32);
    if n == NO_ENTRY {
        return false;
    }
    if n as usize > bytes.capacity() {
        bytes.reserve(n as usize + SLACK);
        let again = ask(bytes.as_mut_ptr(), bytes.capacity() as u32);
        assert!(again == n, "the host answered with an object of another length than before");
        n = again;
    }
    unsafe { bytes.set_len(n as usize) };
    true
}
