//! JSON where it lies. It reads values without decoding what is around them: nothing recurses,
//! malformed text ends a value, and nothing panics.
//!
//! ```
//! use kubewasm::json::Value;
//!
//! let v = Value::of(kubewasm::Call::for_test(), br#"{"zones": ["a", "b"], "weight": 3}"#);
//! assert_eq!(v.get("weight").and_then(|w| w.integer()), Some(3));
//! let zones: Vec<_> = v.get("zones").unwrap().elements().filter_map(|z| z.text()).collect();
//! assert_eq!(zones, ["a", "b"]);
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use crate::compare::same;
use crate::memory;
use crate::scan::{has_escape, nested_end, string_end};
use crate::view::utf8;
use crate::Call;

/// A value, by its text without white space around it.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\n' | b'\r' | b'\t')
}

#[inline]
fn skip_space(b: &[u8], mut at: usize) -> usize {
    while at < b.len() && is_space(b[at]) {
        at += 1;
    }
    at
}

/// Returns the position after the value that begins at `at`.
fn skip_value(b: &[u8], at: usize) -> Option<usize> {
    match *b.get(at)? {
        b'"' => string_end(b, at),
        b'{' | b'[' => nested_end(b, at),
        b',' | b':' | b'}' | b']' => None,
        _ => {
            let mut i = at;
            while i < b.len() && !is_space(b[i]) && !matches!(b[i], b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[') {
                i += 1;
            }
            Some(i)
        }
    }
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or no JSON.
    None,
    /// null
    Null,
    /// true or false
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// Returns the name of the kind, as in errors: "object".
    pub fn name(self) -> &'static str {
        match self {
            Kind::None => "nothing",
            Kind::Null => "null",
            Kind::Bool => "boolean",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Array => "array",
            Kind::Object => "object",
        }
    }
}

impl<'a> Value<'a> {
    /// Returns the value of a text.
    pub fn of(call: impl Into<Call<'a>>, text: &'a [u8]) -> Self {
        let _: Call<'a> = call.into();
        let at = skip_space(text, 0);
        let mut end = text.len();
        while end > at && is_space(text[end - 1]) {
            end -= 1;
        }
        Value(&text[at..end])
    }

    /// Returns the call that the value is of.
    fn call(self) -> Call<'a> {
        // Value::of was given it.
        unsafe { Call::running() }
    }

    /// Returns the text.
    pub fn raw(self) -> &'a [u8] {
        self.0
    }

    /// Returns what the value is, by its first byte.
    pub fn kind(self) -> Kind {
        match self.0.first() {
            None => Kind::None,
            Some(b'"') => Kind::String,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b't') | Some(b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            Some(b'-') | Some(b'0'..=b'9') => Kind::Number,
            _ => Kind::None,
        }
    }

    /// Reports whether the value is null.
    pub fn is_null(self) -> bool {
        self.0 == b"null"
    }

    /// Returns a string, None of another value.
    pub fn text(self) -> Option<&'a str> {
        let b = self.0;
        if b.len() < 2 || b[0] != b'"' || b[b.len() - 1] != b'"' {
            return None;
        }
        Some(unquote(self.call(), &b[1..b.len() - 1]))
    }

    /// Returns a whole number, also one in a string, as protobuf has those of 64 bits in JSON. It
    /// has no fraction and no exponent. One beyond an i64 is that with the bits of a u64.
    pub fn integer(self) -> Option<i64> {
        match self.whole()? {
            (true, n) => Some((n as i64).wrapping_neg()),
            (false, n) => Some(n as i64),
        }
    }

    /// Returns whether a whole number is negative, and its amount.
    pub(crate) fn whole(self) -> Option<(bool, u64)> {
        let text = self.number()?;
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let is_whole = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        let n: u64 = Some(digits).filter(|_| is_whole)?.parse().ok()?;
        Some((negative, n)).filter(|_| !negative || n <= 1 << 63)
    }

    /// Returns the text of a number, or a text.
    fn number(self) -> Option<&'a str> {
        match self.kind() {
            Kind::String => self.text(),
            Kind::Number => Some(utf8(self.call(), self.0)),
            _ => None,
        }
    }

    /// Returns a number, also one in a string: "NaN", "Infinity", "-Infinity".
    pub fn float(self) -> Option<f64> {
        match self.number()? {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            // Rust reads more than JSON allows.
            text if valid_number(text.as_bytes(), 0) == Some(text.len()) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns a truth value, None of another value.
    pub fn boolean(self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Returns the last member of an object with the name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        let mut found = None;
        let odd = !name.is_ascii(); // A byte that is no UTF-8 is shorter than U+FFFD.
        let mut members = Members::new(self);
        while let Some((key, value)) = members.step() {
            if same(key, name.as_bytes()) || (odd || key.len() > name.len() && has_escape(key)) && unquote(self.call(), key) == name {
                found = Some(value);
            }
        }
        found
    }

    /// Returns the members of an object, in their order; none of another value.
    pub fn members(self) -> Members<'a> {
        Members::new(self)
    }

    /// Returns the elements of an array, in their order; none of another value.
    pub fn elements(self) -> Elements<'a> {
        Elements { rest: if self.0.first() == Some(&b'[') { &self.0[1..] } else { &[] } }
    }
}

/// Decodes the inside of a string.
fn unquote<'a>(call: Call<'a>, inside: &'a [u8]) -> &'a str {
    if !has_escape(inside) {
        return utf8(call, inside);
    }
    let mut out = Vec::with_capacity(inside.len());
    let mut i = 0;
    let hex = |at: usize| -> Option<u32> {
        let digits = inside.get(at..at + 4)?;
        digits.iter().try_fold(0, |n, &d| Some(n << 4 | (d as char).to_digit(16)?))
    };
    while i < inside.len() {
        let c = inside[i];
        i += 1;
        if c != b'\\' {
            out.push(c);
            continue;
        }
        let escape = match inside.get(i) {
            Some(&e) => e,
            None => break,
        };
        i += 1;
        let plain = match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = hex(i).unwrap_or(0xfffd);
                i += 4;
                if (0xd800..0xdc00).contains(&code) && inside.get(i..i + 2) == Some(b"\\u") {
                    if let Some(low) = hex(i + 2).filter(|low| (0xdc00..0xe000).contains(low)) {
                        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                        i += 6;
                    }
                }
                let c = char::from_u32(code).unwrap_or('\u{fffd}');
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        };
        out.push(plain);
    }
    utf8(call, memory::keep(call, out))
}

/// The members of an object.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Members<'a> {
    fn new(v: Value<'a>) -> Self {
        Members { rest: if v.0.first() == Some(&b'{') { &v.0[1..] } else { &[] } }
    }

    /// Returns the inside of the next key, and the value.
    #[inline]
    fn step(&mut self) -> Option<(&'a [u8], Value<'a>)> {
        let b = self.rest;
        self.rest = &[];
        let at = skip_space(b, 0);
        if *b.get(at)? != b'"' {
            return None;
        }
        let end = string_end(b, at)?;
        let key = &b[at + 1..end - 1];
        let at = skip_space(b, end);
        if *b.get(at)? != b':' {
            return None;
        }
        let at = skip_space(b, at + 1);
        let end = skip_value(b, at)?;
        let after = skip_space(b, end);
        match b.get(after) {
            Some(b',') => self.rest = &b[after + 1..],
            Some(b'}') => {}
            _ => return None,
        }
        Some((key, Value(&b[at..end])))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map(|(key, value)| (unquote(value.call(), key), value))
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let b = self.rest;
        self.rest = &[];
        let at = skip_space(b, 0);
        let end = skip_value(b, at)?;
        let after = skip_space(b, end);
        match b.get(after) {
            Some(b',') => self.rest = &b[after + 1..],
            Some(b']') => {}
            _ => return None,
        }
        Some(Value(&b[at..end]))
    }
}

/// How many values may nest in one another, as in encoding/json of Go.
const MAX_DEPTH: usize = 10_000;

/// Reports whether a text is one value of JSON, by RFC 8259.
pub fn is_valid(text: &[u8]) -> bool {
    let b = text;
    let mut open: Vec<u8> = Vec::new();
    let mut at = skip_space(b, 0);
    let mut value_wanted = true;
    loop {
        if value_wanted {
            match b.get(at) {
                Some(&c @ (b'{' | b'[')) => {
                    if open.len() == MAX_DEPTH {
                        return false;
                    }
                    at = skip_space(b, at + 1);
                    let close = c + 2;
                    if b.get(at) == Some(&close) {
                        at += 1;
                    } else {
                        open.push(close);
                        if c == b'{' {
                            at = match valid_key(b, at) {
                                Some(at) => at,
                                None => return false,
                            };
                        }
                        continue;
                    }
                }
                _ => match valid_scalar(b, at) {
                    Some(next) => at = next,
                    None => return false,
                },
            }
        }
        value_wanted = true;
        at = skip_space(b, at);
        let close = match open.last() {
            None => return at == b.len(),
            Some(&close) => close,
        };
        match b.get(at) {
            Some(b',') => {
                at = skip_space(b, at + 1);
                if close == b'}' {
                    at = match valid_key(b, at) {
                        Some(at) => at,
                        None => return false,
                    };
                }
            }
            Some(c) if *c == close => {
                open.pop();
                at += 1;
                value_wanted = false;
            }
            _ => return false,
        }
    }
}

fn valid_key(b: &[u8], at: usize) -> Option<usize> {
    let at = skip_space(b, valid_string(b, at)?);
    if *b.get(at)? != b':' {
        return None;
    }
    Some(skip_space(b, at + 1))
}

fn valid_string(b: &[u8], at: usize) -> Option<usize> {
    if *b.get(at)? != b'"' {
        return None;
    }
    let mut i = at + 1;
    loop {
        match *b.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => {
                match *b.get(i + 1)? {
                    b'u' => {
                        if !b.get(i + 2..i + 6)?.iter().all(u8::is_ascii_hexdigit) {
                            return None;
                        }
                        i += 4;
                    }
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    _ => return None,
                }
                i += 2;
            }
            0..=0x1f => return None,
            _ => i += 1,
        }
    }
}

fn valid_scalar(b: &[u8], at: usize) -> Option<usize> {
    let rest = &b[at.min(b.len())..];
    for word in [&b"true"[..], b"false", b"null"] {
        if rest.starts_with(word) {
            return Some(at + word.len());
        }
    }
    if *rest.first()? == b'"' {
        return valid_string(b, at);
    }
    valid_number(b, at)
}

fn valid_number(b: &[u8], at: usize) -> Option<usize> {
    let digits = |mut i: usize| -> Option<usize> {
        let from = i;
        while b.get(i).map_or(false, u8::is_ascii_digit) {
            i += 1;
        }
        if i == from {
            None
        } else {
            Some(i)
        }
    };
    let mut i = if b.get(at) == Some(&b'-') { at + 1 } else { at };
    i = if b.get(i) == Some(&b'0') { i + 1 } else { digits(i)? };
    if b.get(i) == Some(&b'.') {
        i = digits(i + 1)?;
    }
    if matches!(b.get(i), Some(b'e') | Some(b'E')) {
        i += 1;
        if matches!(b.get(i), Some(b'+') | Some(b'-')) {
            i += 1;
        }
        i = digits(i)?;
    }
    Some(i)
}

/// Appends a string.
pub fn append_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.push_str("\\u00");
                out.push(HEX[c as usize >> 4] as char);
                out.push(HEX[c as usize & 15] as char);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A value that can be written as JSON: text, numbers, truth values, lists and maps of them, and
/// JSON itself, as [`Value`] or by [`raw`].
pub trait ToJson {
    /// Appends the JSON of the value.
    fn append_json(&self, out: &mut String);
}

/// Returns the JSON of a value.
pub fn to_json<T: ToJson + ?Sized>(value: &T) -> String {
    let mut out = String::new();
    value.append_json(&mut out);
    out
}

/// JSON that is written as it stands.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>(&'a str);

/// Returns JSON that is written as it stands.
pub fn raw(text: &str) -> Raw<'_> {
    Raw(text)
}

impl ToJson for Raw<'_> {
    fn append_json(&self, out: &mut String) {
        out.push_str(self.0);
    }
}

impl ToJson for Value<'_> {
    fn append_json(&self, out: &mut String) {
        out.push_str(utf8(self.call(), self.0));
    }
}

impl ToJson for str {
    fn append_json(&self, out: &mut String) {
        append_text(out, self);
    }
}

impl ToJson for String {
    fn append_json(&self, out: &mut String) {
        append_text(out, self);
    }
}

impl ToJson for bool {
    fn append_json(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

macro_rules! numbers_to_json {
    ($($type:ty)*) => { $(
        impl ToJson for $type {
            fn append_json(&self, out: &mut String) {
                use core::fmt::Write;
                let _ = write!(out, "{}", self);
            }
        }
    )* };
}

numbers_to_json!(i32 i64 u32 u64 usize);

impl<T: ToJson + ?Sized> ToJson for &T {
    fn append_json(&self, out: &mut String) {
        (**self).append_json(out);
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn append_json(&self, out: &mut String) {
        match self {
            Some(value) => value.append_json(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: ToJson> ToJson for [T] {
    fn append_json(&self, out: &mut String) {
        out.push('[');
        for (i, value) in self.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            value.append_json(out);
        }
        out.push(']');
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn append_json(&self, out: &mut String) {
        self[..].append_json(out);
    }
}

/// An object with members in this order.
impl<V: ToJson, const N: usize> ToJson for [(&str, V); N] {
    fn append_json(&self, out: &mut String) {
        append_members(out, self.iter().map(|(k, v)| (*k, v)));
    }
}

impl<V: ToJson> ToJson for alloc::collections::BTreeMap<String, V> {
    fn append_json(&self, out: &mut String) {
        append_members(out, self.iter().map(|(k, v)| (k.as_str(), v)));
    }
}

fn append_members<'v, V: ToJson + 'v>(out: &mut String, members: impl Iterator<Item = (&'v str, &'v V)>) {
    out.push('{');
    for (i, (key, value)) in members.enumerate() {
        if i > 0 {
            out.push(',');
        }
        append_text(out, key);
        out.push(':');
        value.append_json(out);
    }
    out.push('}');
}
