//! A module whose reader of JSON gets any bytes: see ../json_test.go.

use std::fmt::Write;

use kubewasm::api::core::Pod;
use kubewasm::json::{is_valid, Kind, Value};
use kubewasm::Call;

kubewasm::config! {
    struct Guest;
}

impl kubewasm::hooks::Hook for Guest {
    fn decide(&self, _: kubewasm::hooks::Request<'_>, _: &mut kubewasm::hooks::Decision) -> Result<(), String> {
        Ok(())
    }
}

kubewasm::plugin! {
    Guest: Hook;
    name = "json";
}

/// Returns the length of the first element of an array, 0 if there is none.
#[no_mangle]
pub unsafe extern "C" fn scan(ptr: *const u8, n: u32) -> u32 {
    let text = core::slice::from_raw_parts(ptr, n as usize);
    Call::with(|call| Value::of(call, text).elements().next().map_or(0, |v| v.raw().len() as u32))
}

/// Returns room for a document.
#[no_mangle]
pub extern "C" fn room(n: u32) -> *mut u8 {
    Box::leak(vec![0; n as usize].into_boxed_slice()).as_mut_ptr()
}

/// Describes a document: an address, and a length in the lower half.
#[no_mangle]
pub unsafe extern "C" fn read(ptr: *const u8, n: u32) -> u64 {
    let text = core::slice::from_raw_parts(ptr, n as usize);
    let mut out = String::new();
    if is_valid(text) {
        Call::with(|call| describe(&mut out, Value::of(call, text), 0));
    } else {
        out.push_str("invalid");
    }
    let out = Box::leak(out.into_boxed_str());
    (out.as_ptr() as u64) << 32 | out.len() as u64
}

/// Passes a message that the host has not given for the call, and keeps what it reads.
#[no_mangle]
pub extern "C" fn stray() {
    let kept: &'static str = Value::of(Pod::default(), br#""\u0061""#).text().unwrap_or_default();
    Box::leak(Box::new(kept));
}

fn hex(out: &mut String, text: &str) {
    for b in text.bytes() {
        let _ = write!(out, "{:02x}", b);
    }
}

fn number(out: &mut String, v: Value<'_>) {
    let _ = write!(out, "{} ", v.integer().unwrap_or(0));
    match v.float().unwrap_or(0.0) {
        f if f.is_nan() => out.push_str("nan"),
        f => {
            let _ = write!(out, "{:016x}", f.to_bits());
        }
    }
}

fn describe(out: &mut String, v: Value<'_>, depth: u32) {
    if depth == 20 {
        return out.push('.');
    }
    match v.kind() {
        Kind::None => out.push_str("nothing"),
        Kind::Null => out.push_str("null"),
        Kind::Bool => out.push_str(if v.boolean().unwrap_or(false) { "true" } else { "false" }),
        Kind::Number => number(out, v),
        Kind::String => {
            out.push('"');
            hex(out, v.text().unwrap_or_default());
            out.push('"');
            number(out, v);
        }
        Kind::Array => {
            out.push('[');
            for element in v.elements() {
                describe(out, element, depth + 1);
                out.push(',');
            }
            out.push(']');
        }
        Kind::Object => {
            out.push('{');
            for (key, _) in v.members() {
                hex(out, key);
                out.push(':');
                if let Some(last) = v.get(key) {
                    describe(out, last, depth + 1);
                }
                out.push(',');
            }
            out.push('}');
        }
    }
}
