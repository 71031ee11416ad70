//! Views of messages where their bytes lie: in protobuf, in JSON, or with the host. Code that
//! `kubewasm gen --lang rust` writes is built on it.
//!
//! An author meets [`List`] and [`Map`], the results of accessors. A view is two words, `Copy`,
//! and lives as long as its bytes and the call that it is of. A field is looked for when its
//! accessor is called. Absent messages read as empty ones, malformed bytes end a message, and
//! nothing panics.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use crate::compare::same;
use crate::object::{self, Form, Object, Part};
use crate::select::Terms;
use crate::{json, memory, wire, Call};

pub use crate::object::Form as ObjectForm;

/// A message, or nothing, which reads as an empty one.
#[derive(Clone, Copy)]
pub struct View<'a> {
    ptr: *const u8,
    /// The length, above the bits of the source.
    bits: usize,
    life: PhantomData<&'a [u8]>,
}

/// The sources of bytes.
const PROTO: usize = 0; // Protobuf whose fields come in the order of their numbers.
const LOOSE: usize = 1; // Protobuf in any order.
const JSON: usize = 2;
const PART: usize = 3; // The address of a Part of an object of the host.
const OBJECT: usize = 4; // The address of an Object.
const NUMBER: usize = 5; // No message, but a number.
const SOURCE: usize = 7;
const SHIFT: u32 = 3;

impl<'a> View<'a> {
    /// The message without a field.
    pub const EMPTY: View<'static> = View { ptr: core::ptr::NonNull::dangling().as_ptr(), bits: 0, life: PhantomData };

    #[inline(always)]
    fn new(bytes: &'a [u8], source: usize) -> Self {
        if bytes.len() > usize::MAX >> SHIFT {
            return View::EMPTY;
        }
        View { ptr: bytes.as_ptr(), bits: bytes.len() << SHIFT | source, life: PhantomData }
    }

    /// Returns a view of a message in protobuf as the host passes objects: the fields come in the
    /// order of their numbers.
    #[inline]
    pub fn from_proto(call: impl Into<Call<'a>>, bytes: &'a [u8]) -> Self {
        let _: Call<'a> = call.into();
        View::new(bytes, PROTO)
    }

    /// Returns a view of a message in protobuf with its fields in any order.
    #[inline]
    pub fn from_any_proto(call: impl Into<Call<'a>>, bytes: &'a [u8]) -> Self {
        let _: Call<'a> = call.into();
        View::new(bytes, LOOSE)
    }

    /// Returns a view of an object in JSON.
    #[inline]
    pub fn from_json(call: impl Into<Call<'a>>, text: &'a [u8]) -> Self {
        let _: Call<'a> = call.into();
        View::new(text, JSON)
    }

    /// Returns the call that the view is of.
    #[inline(always)]
    pub(crate) fn call(self) -> Call<'a> {
        // Constructors of views that read anything were given it.
        unsafe { Call::running() }
    }

    /// Returns the call that the view is of, which is none of the empty one: that can have any
    /// lifetime.
    #[inline]
    pub(crate) fn call_or_panic(self) -> Call<'a> {
        if cfg!(target_arch = "wasm32") && self.ptr == View::EMPTY.ptr {
            panic!("a message that the host has not given is of no call: pass what the function was given");
        }
        self.call()
    }

    /// Returns a view of an object that the host knows by `id`, of a kind with the number.
    #[inline]
    pub(crate) fn from_ref(_: Call<'a>, id: u64, kind: u32, form: Form) -> Self {
        View { ptr: object::by_ref(id, kind, form) as *const u8, bits: OBJECT, life: PhantomData }
    }

    /// Returns the ref by which the host knows the object, 0 if it knows none.
    pub fn object_ref(self) -> u64 {
        if self.source() == OBJECT {
            unsafe { (*self.object()).id }
        } else {
            0
        }
    }

    #[inline(always)]
    fn source(self) -> usize {
        self.bits & SOURCE
    }

    #[inline(always)]
    fn object(self) -> *const Object {
        self.ptr as *const Object
    }

    #[inline(always)]
    fn part(self) -> *const Part {
        self.ptr as *const Part
    }

    #[inline(always)]
    fn bytes(self) -> &'a [u8] {
        unsafe { core::slice::from_raw_parts(self.ptr, self.bits >> SHIFT) }
    }

    /// Returns a view of bytes that have the field of that number, if the message has it.
    #[inline(always)]
    fn with(self, number: u32) -> View<'a> {
        match self.source() {
            PROTO | LOOSE | JSON => self,
            _ => self.fetched(number),
        }
    }

    #[inline(never)]
    fn fetched(self, number: u32) -> View<'a> {
        match self.source() {
            PART => View::new(unsafe { Part::bytes(self.part(), number) }, PROTO),
            OBJECT => {
                let source = if unsafe { (*self.object()).form } == Form::Json { JSON } else { PROTO };
                View::new(unsafe { Object::whole(self.object()) }, source)
            }
            _ => View::EMPTY,
        }
    }

    /// Returns a field as it lies in the message.
    #[inline]
    pub fn value(self, number: u32, name: &str) -> Option<Value<'a>> {
        let v = self.with(number);
        match v.source() {
            JSON => json::Value::of(v.call(), v.bytes()).get(name).filter(|v| !v.is_null()).map(|v| Value { view: View::new(v.raw(), JSON), number: 0 }),
            source => wire::last(v.bytes(), number, source == PROTO).map(|f| Value::of(f, source)),
        }
    }

    /// Returns the fields of a message whose bytes are here: None of JSON and of what is with the
    /// host.
    #[inline(always)]
    pub(crate) fn protobuf(self) -> Option<wire::Fields<'a>> {
        match self.source() {
            PROTO | LOOSE => Some(wire::Fields::new(self.bytes())),
            _ => None,
        }
    }

    /// Reports whether the message has the field. In JSON, null counts as absent.
    pub fn has(self, number: u32, name: &str) -> bool {
        self.value(number, name).is_some()
    }

    /// Returns a string, empty if there is none.
    #[inline]
    pub fn text(self, number: u32, name: &str) -> &'a str {
        self.get::<&'a str>(number, name)
    }

    /// Returns a field, or what stands for an absent one of its type.
    #[inline]
    pub fn get<T: Element<'a>>(self, number: u32, name: &str) -> T::Out {
        T::read(self.value(number, name).unwrap_or(Value::NONE))
    }

    /// Returns a field if it is there.
    #[inline]
    pub fn opt<T: Element<'a>>(self, number: u32, name: &str) -> Option<T::Out> {
        self.value(number, name).map(T::read)
    }

    /// Returns the message in a field. Of an object that is read by parts, it is fetched when its
    /// fields are read.
    #[inline]
    pub fn message<T: Message<'a>>(self, number: u32, name: &str) -> T {
        if self.source() == OBJECT {
            let object = unsafe { &*self.object() };
            if object.form == Form::Parts {
                if let Some(part) = object.parts.get((number as usize).wrapping_sub(1)) {
                    return T::from_view(View { ptr: part as *const Part as *const u8, bits: PART, life: PhantomData });
                }
            }
        }
        T::from_view(self.value(number, name).unwrap_or(Value::NONE).view())
    }

    /// Returns the message in a field whose fields are, in JSON, among those of this message.
    #[inline]
    pub fn inlined<T: Message<'a>>(self, number: u32) -> T {
        match self.source() {
            JSON => T::from_view(self),
            _ => self.message(number, ""),
        }
    }

    /// Returns a repeated field.
    #[inline]
    pub fn list<T: Element<'a>>(self, number: u32, name: &str) -> List<'a, T> {
        let v = self.with(number);
        let (items, number) = match v.source() {
            JSON => (json::Value::of(v.call(), v.bytes()).get(name).map_or(View::EMPTY, |v| View::new(v.raw(), JSON)), 0),
            source => (wire::first(v.bytes(), number, source == PROTO).map_or(View::EMPTY, |f| View::new(f.1, source)), number),
        };
        let part = if self.source() == PART { self.part() } else { core::ptr::null() };
        List { items, number, part, of: PhantomData }
    }

    /// Returns a map of strings.
    #[inline]
    pub fn map<T: Element<'a>>(self, number: u32, name: &'static str) -> Map<'a, T> {
        Map { of: self, number, name, values: PhantomData }
    }

    /// Returns the object that a field refers to: None for the ref 0.
    pub fn object_field<T: Message<'a>>(self, number: u32, name: &str, form: Form) -> Option<T> {
        match self.get::<Fixed<u64>>(number, name) {
            0 => None,
            id => Some(T::from_view(View::from_ref(self.call(), id, T::ID, form))),
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = ["protobuf", "protobuf", "JSON", "part", "object", "number", "", ""][self.source()];
        write!(f, "View({}, {} bytes)", source, self.bits >> SHIFT)
    }
}

/// A field, an element of a list or a value of a map, as it lies in its message.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    view: View<'a>,
    number: u64,
}

impl<'a> Value<'a> {
    /// Nothing.
    pub const NONE: Value<'static> = Value { view: View::EMPTY, number: 0 };

    #[inline(always)]
    fn of(f: wire::Field<'a>, source: usize) -> Self {
        if f.wire == wire::BYTES {
            Value { view: View::new(f.bytes, source), number: 0 }
        } else {
            Value { view: View { bits: NUMBER, ..View::EMPTY }, number: f.bits }
        }
    }

    /// Returns a value in protobuf.
    pub fn proto(call: impl Into<Call<'a>>, bytes: &'a [u8]) -> Self {
        Value { view: View::from_proto(call, bytes), number: 0 }
    }

    /// Returns a value in JSON.
    pub fn json(value: json::Value<'a>) -> Self {
        Value { view: View::new(value.raw(), JSON), number: 0 }
    }

    /// Returns the JSON of the value, None if it is not in JSON.
    #[inline]
    pub fn as_json(self) -> Option<json::Value<'a>> {
        if self.view.source() == JSON {
            Some(json::Value::of(self.call(), self.view.bytes()))
        } else {
            None
        }
    }

    /// Returns the bytes of a value in protobuf that is no number.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        match self.view.source() {
            PROTO | LOOSE => self.view.bytes(),
            _ => &[],
        }
    }

    /// Returns the message that the value is.
    #[inline]
    pub fn view(self) -> View<'a> {
        if self.view.source() == NUMBER {
            View::EMPTY
        } else {
            self.view
        }
    }

    /// Returns the call that the value is of.
    #[inline(always)]
    pub(crate) fn call(self) -> Call<'a> {
        self.view.call()
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.number // 0 of what is no number.
    }

    /// Returns the number of an enumeration's value. In JSON it has a name or a number.
    pub fn enumeration(self, values: &[(&str, i32)]) -> i32 {
        match self.as_json() {
            None => self.number as i32,
            Some(v) => match v.text() {
                Some(text) => values.iter().find(|v| v.0 == text).map_or(0, |v| v.1),
                None => v.integer().unwrap_or(0) as i32,
            },
        }
    }
}

/// A message that has a view.
pub trait Message<'a>: Copy {
    /// The name of the message.
    const NAME: &'static str;
    /// A number that stands for the name.
    const ID: u32 = id(Self::NAME);
    /// Returns the message of a view.
    fn from_view(view: View<'a>) -> Self;
    /// Returns the view of the message.
    fn view(self) -> View<'a>;
}

/// Returns the FNV-1a hash of a name.
const fn id(name: &str) -> u32 {
    let b = name.as_bytes();
    let (mut hash, mut i) = (0x811c_9dc5u32, 0);
    while i < b.len() {
        hash = (hash ^ b[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
}

/// What a field can be.
pub trait Element<'a> {
    /// What an accessor returns.
    type Out;
    /// The length of a number in a packed list: 0 of varints, 4, 8; None of what is no number.
    const PACKED: Option<usize> = None;
    /// Reads a value. Of a value of another type it returns what stands for an absent one.
    fn read(value: Value<'a>) -> Self::Out;
}

impl<'a> Element<'a> for &'a str {
    type Out = &'a str;
    #[inline]
    fn read(value: Value<'a>) -> &'a str {
        match value.view.source() {
            JSON => value.as_json().and_then(|v| v.text()).unwrap_or(""),
            _ => utf8(value.call(), value.as_bytes()),
        }
    }
}

/// Returns bytes as text, in which U+FFFD stands for each that is not UTF-8.
#[inline]
pub(crate) fn utf8<'a>(call: Call<'a>, bytes: &'a [u8]) -> &'a str {
    // ASCII needs no second look. A Kubernetes object is UTF-8 anyway.
    if bytes.is_ascii() {
        return unsafe { core::str::from_utf8_unchecked(bytes) };
    }
    utf8_checked(call, bytes)
}

#[cold]
fn utf8_checked<'a>(call: Call<'a>, bytes: &'a [u8]) -> &'a str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => unsafe { core::str::from_utf8_unchecked(memory::keep(call, replaced(bytes))) },
    }
}

/// Returns UTF-8 with U+FFFD for each byte that is none, as a conversion in Go has it: the one of
/// the standard library has one for several.
fn replaced(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    loop {
        match core::str::from_utf8(bytes) {
            Ok(_) => {
                out.extend_from_slice(bytes);
                return out;
            }
            Err(e) => {
                let (valid, rest) = bytes.split_at(e.valid_up_to());
                out.extend_from_slice(valid);
                out.extend_from_slice("\u{fffd}".as_bytes());
                bytes = &rest[1..];
            }
        }
    }
}

impl<'a> Element<'a> for &'a [u8] {
    type Out = &'a [u8];
    fn read(value: Value<'a>) -> &'a [u8] {
        match value.as_json() {
            Some(v) => memory::keep(value.call(), base64(v.text().unwrap_or(""))),
            None => value.as_bytes(),
        }
    }
}

/// Decodes the base64 of JSON. What is no base64 is the end.
fn base64(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut n) = (0u32, 0);
    for c in text.bytes() {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => break,
        };
        bits = bits << 6 | six as u32;
        n += 6;
        if n >= 8 {
            n -= 8;
            out.push((bits >> n) as u8);
        }
    }
    out
}

/// The bytes of a value that is not read any further: JSON, or a message in protobuf. It is for
/// fields that may have anything, such as the schema of a resource.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>(PhantomData<&'a ()>);

impl<'a> Element<'a> for Raw<'a> {
    type Out = &'a [u8];
    fn read(value: Value<'a>) -> &'a [u8] {
        // RawExtension and FieldsV1 have the bytes in field 1.
        match value.as_json() {
            Some(v) => v.raw(),
            None => wire::last(value.as_bytes(), 1, false).map_or(&[], |f| f.bytes),
        }
    }
}

/// A number of a fixed length in protobuf: of 32 bits, or of 64.
#[derive(Clone, Copy, Debug)]
pub struct Fixed<T>(PhantomData<T>);

/// A number whose sign is its lowest bit in protobuf: sint32 and sint64.
#[derive(Clone, Copy, Debug)]
pub struct Zigzag<T>(PhantomData<T>);

macro_rules! number {
    ($($type:ty = $out:ty, $packed:expr, $bits:ident => $value:expr, $json:ident;)*) => { $(
        impl<'a> Element<'a> for $type {
            type Out = $out;
            const PACKED: Option<usize> = Some($packed);
            #[inline]
            fn read(value: Value<'a>) -> $out {
                if value.view.source() == JSON {
                    return value.as_json().and_then(|v| v.$json()).unwrap_or_default() as $out;
                }
                let $bits = value.bits();
                $value
            }
        }
    )* };
}

number! {
    i32 = i32, 0, b => b as i32, integer;
    i64 = i64, 0, b => b as i64, integer;
    u32 = u32, 0, b => b as u32, integer;
    u64 = u64, 0, b => b, integer;
    Zigzag<i32> = i32, 0, b => wire::unzigzag(b) as i32, integer;
    Zigzag<i64> = i64, 0, b => wire::unzigzag(b), integer;
    Fixed<u32> = u32, 4, b => b as u32, integer;
    Fixed<i32> = i32, 4, b => b as i32, integer;
    Fixed<u64> = u64, 8, b => b, integer;
    Fixed<i64> = i64, 8, b => b as i64, integer;
    f32 = f32, 4, b => f32::from_bits(b as u32), float;
    f64 = f64, 8, b => f64::from_bits(b), float;
}

impl<'a> Element<'a> for bool {
    type Out = bool;
    const PACKED: Option<usize> = Some(0);
    #[inline]
    fn read(value: Value<'a>) -> bool {
        match value.as_json() {
            Some(v) => v.boolean().unwrap_or(false),
            None => value.bits() != 0,
        }
    }
}

/// The elements of a repeated field, in their order.
///
/// It is an iterator over the rest of them, and `Copy`: iterating over a copy leaves it as it is.
pub struct List<'a, T> {
    /// The bytes of the message from the first element on, or the array in JSON.
    items: View<'a>,
    number: u32,
    /// The part of an object that the list is a field of, null of other lists.
    part: *const Part,
    of: PhantomData<T>,
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<'a, T: Element<'a>> List<'a, T> {
    /// Returns an iterator over the elements.
    #[inline]
    pub fn iter(self) -> Iter<'a, T> {
        let source = match self.items.source() {
            JSON => Source::Json(json::Value::of(self.items.call(), self.items.bytes()).elements()),
            source => Source::Proto { fields: wire::Fields::new(self.items.bytes()), number: self.number, source, packed: &[] },
        };
        Iter { source, of: PhantomData }
    }

    /// Returns the elements of an array in JSON.
    pub fn from_json(call: impl Into<Call<'a>>, text: &'a [u8]) -> Self {
        List { items: View::from_json(call, text), number: 0, part: core::ptr::null(), of: PhantomData }
    }

    /// Returns what `read` makes of the elements, which is kept with the part of an object that
    /// the list is in: None of other lists, and of long ones.
    #[inline]
    pub(crate) fn kept_terms(self, read: impl Fn(T::Out) -> Terms<'a>) -> Option<&'a [Terms<'a>]> {
        if self.part.is_null() {
            return None;
        }
        unsafe { Part::terms(self.part, self.number, || self.iter().map(read)) }
    }

    /// Returns the number of elements, which it counts.
    pub fn len(self) -> usize {
        self.iter().count()
    }

    /// Reports whether there is no element.
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns an element by its number from 0.
    pub fn get(self, i: usize) -> Option<T::Out> {
        self.iter().nth(i)
    }

    /// Returns the last element.
    pub fn last(self) -> Option<T::Out> {
        self.iter().last()
    }

    /// Reports whether an element is equal to `value`.
    pub fn contains<U>(self, value: U) -> bool
    where
        T::Out: PartialEq<U>,
    {
        self.iter().any(|e| e == value)
    }
}

impl<'a, T: Element<'a>> IntoIterator for List<'a, T> {
    type Item = T::Out;
    type IntoIter = Iter<'a, T>;
    #[inline]
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Element<'a>> fmt::Debug for List<'a, T>
where
    T::Out: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterates over a [`List`].
pub struct Iter<'a, T> {
    source: Source<'a>,
    of: PhantomData<T>,
}

enum Source<'a> {
    Proto { fields: wire::Fields<'a>, number: u32, source: usize, packed: &'a [u8] },
    Json(json::Elements<'a>),
}

impl<'a, T: Element<'a>> Iterator for Iter<'a, T> {
    type Item = T::Out;

    #[inline]
    fn next(&mut self) -> Option<T::Out> {
        match &mut self.source {
            Source::Json(elements) => elements.next().map(|v| T::read(Value::json(v))),
            Source::Proto { fields, number, source, packed } => loop {
                if let Some(size) = T::PACKED {
                    if !packed.is_empty() {
                        let (bits, next) = match size {
                            0 => wire::varint(packed, 0),
                            n => wire::fixed(packed, 0, n).map(|bits| (bits, n)),
                        }
                        .unwrap_or((0, usize::MAX));
                        if next == usize::MAX {
                            *packed = &[]; // Malformed.
                            continue;
                        }
                        *packed = &packed[next..];
                        return Some(T::read(Value { view: View { bits: NUMBER, ..View::EMPTY }, number: bits }));
                    }
                }
                let field = fields.next()?;
                if field.number != *number {
                    if *source == PROTO && field.number > *number {
                        *fields = wire::Fields::new(&[]);
                        return None;
                    }
                    continue;
                }
                match (T::PACKED, field.wire == wire::BYTES) {
                    (Some(_), true) => *packed = field.bytes,
                    // A number where there should be none, or the other way round, is skipped.
                    (Some(_), false) | (None, true) => return Some(T::read(Value::of(field, *source))),
                    (None, false) => {}
                }
            },
        }
    }
}

/// A map of strings. Of several entries with one key the last counts, as in every decoder.
pub struct Map<'a, T> {
    /// The message that has the map.
    of: View<'a>,
    number: u32,
    name: &'static str,
    values: PhantomData<T>,
}

impl<T> Clone for Map<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Map<'_, T> {}

/// A map of strings to strings, such as labels.
pub type StringMap<'a> = Map<'a, &'a str>;

impl<'a, T: Element<'a>> Map<'a, T> {
    /// Returns the value of a key, None if there is none.
    pub fn get(self, key: &str) -> Option<T::Out> {
        self.value(key).map(T::read)
    }

    /// Reports whether the map has the key.
    pub fn contains_key(self, key: &str) -> bool {
        self.value(key).is_some()
    }

    fn value(self, key: &str) -> Option<Value<'a>> {
        if self.of.source() == PART {
            if let Ok(found) = unsafe { Part::entry(self.of.part(), self.number, key) } {
                return found.map(|bytes| Value::proto(self.of.call(), bytes));
            }
        }
        let v = self.of.with(self.number);
        if v.source() == JSON {
            let object = json::Value::of(v.call(), v.bytes()).get(self.name)?;
            return object.get(key).map(Value::json);
        }
        let ordered = v.source() == PROTO;
        let (_, rest) = wire::first(v.bytes(), self.number, ordered)?;
        let mut found = None;
        for f in wire::Fields::new(rest) {
            if f.number != self.number {
                if ordered {
                    break;
                }
                continue;
            }
            let (k, value) = entry(f.bytes, v.source());
            if same(k, key.as_bytes()) {
                found = Some(value);
            }
        }
        found
    }

    /// Returns an iterator over the keys and values, in the order in which they lie.
    pub fn iter(self) -> Entries<'a, T> {
        let v = self.of.with(self.number);
        let (members, fields) = match v.source() {
            JSON => (json::Value::of(v.call(), v.bytes()).get(self.name).map(|v| v.members()), &[][..]),
            _ => (None, v.bytes()),
        };
        Entries { members, fields: wire::Fields::new(fields), number: self.number, source: v.source(), of: PhantomData }
    }

    /// Returns the number of entries, which it counts.
    pub fn len(self) -> usize {
        let v = self.of.with(self.number);
        match v.source() {
            JSON => json::Value::of(v.call(), v.bytes()).get(self.name).map_or(0, |v| v.members().count()),
            _ => wire::Fields::new(v.bytes()).filter(|f| f.number == self.number && f.wire == wire::BYTES).count(),
        }
    }

    /// Reports whether there is no entry.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// Iterates over a [`Map`].
pub struct Entries<'a, T> {
    members: Option<json::Members<'a>>,
    fields: wire::Fields<'a>,
    number: u32,
    source: usize,
    of: PhantomData<T>,
}

impl<'a, T: Element<'a>> Iterator for Entries<'a, T> {
    type Item = (&'a str, T::Out);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(members) = &mut self.members {
            return members.next().map(|(key, v)| (key, T::read(Value::json(v))));
        }
        loop {
            let f = self.fields.next()?;
            if f.number == self.number && f.wire == wire::BYTES {
                let (key, value) = entry(f.bytes, self.source);
                return Some((utf8(value.call(), key), T::read(value)));
            }
            if self.source == PROTO && f.number > self.number {
                self.fields = wire::Fields::new(&[]);
                return None;
            }
        }
    }
}

impl<'a, T: Element<'a>> fmt::Debug for Map<'a, T>
where
    T::Out: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the key and the value of an entry.
fn entry(bytes: &[u8], source: usize) -> (&[u8], Value<'_>) {
    let (mut key, mut value) = (&[][..], Value { view: View::new(&[], source), number: 0 });
    for f in wire::Fields::new(bytes) {
        match f.number {
            1 => key = f.bytes,
            2 => value = Value::of(f, source),
            _ => {}
        }
    }
    (key, value)
}

/// An element of a list of objects of a service, which travel as refs.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident = $form:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<T>(PhantomData<T>);

        impl<'a, T: Message<'a>> Element<'a> for $name<T> {
            type Out = T;
            const PACKED: Option<usize> = Some(8);
            fn read(value: Value<'a>) -> T {
                match value.bits() {
                    0 => T::from_view(View::EMPTY),
                    id => T::from_view(View::from_ref(value.call(), id, T::ID, Form::$form)),
                }
            }
        }
    )* };
}

objects! {
    /// An object that is read by parts.
    ByParts = Parts;
    /// An object that is fetched as a whole.
    ByWhole = Whole;
    /// A custom resource.
    ByJson = Json;
}

/// Declares the type of a message. Generated code uses it.
#[macro_export]
#[doc(hidden)]
macro_rules! message {
    ($(#[$doc:meta])* $name:ident, $full:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub struct $name<'a>($crate::view::View<'a>);

        impl<'a> $crate::view::Message<'a> for $name<'a> {
            const NAME: &'static str = $full;
            #[inline(always)]
            fn from_view(view: $crate::view::View<'a>) -> Self {
                $name(view)
            }
            #[inline(always)]
            fn view(self) -> $crate::view::View<'a> {
                self.0
            }
        }

        impl<'a> $crate::view::Element<'a> for $name<'a> {
            type Out = $name<'a>;
            #[inline]
            fn read(value: $crate::view::Value<'a>) -> Self {
                $name(value.view())
            }
        }

        impl<'a> $name<'a> {
            /// Returns a view of the message in protobuf, with its fields in the order of their
            /// numbers, as the host passes objects.
            #[inline]
            pub fn from_proto(call: impl Into<$crate::Call<'a>>, bytes: &'a [u8]) -> Self {
                $name($crate::view::View::from_proto(call, bytes))
            }

            /// Returns a view of the JSON.
            #[inline]
            pub fn from_json(call: impl Into<$crate::Call<'a>>, text: &'a [u8]) -> Self {
                $name($crate::view::View::from_json(call, text))
            }
        }

        impl ::core::default::Default for $name<'_> {
            fn default() -> Self {
                $name($crate::view::View::EMPTY)
            }
        }

        impl ::core::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(concat!(stringify!($name), "("))?;
                ::core::fmt::Debug::fmt(&self.0, f)?;
                f.write_str(")")
            }
        }
    };
}

/// Declares an enumeration. Generated code uses it.
#[macro_export]
#[doc(hidden)]
macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(
            /// The number, which a later version may have added.
            pub i32,
        );

        impl $name {
            $($(#[$value_doc])* pub const $value: $name = $name($number);)*
        }

        impl<'a> $crate::view::Element<'a> for $name {
            type Out = $name;
            const PACKED: Option<usize> = Some(0);
            fn read(value: $crate::view::Value<'a>) -> Self {
                $name(value.enumeration(&[$(($text, $number)),*]))
            }
        }
    };
}
