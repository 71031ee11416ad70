//! Extension points of a component's own, from a .proto file: `kubewasm gen --lang rust` writes a
//! module with a trait for each, and `plugin!(Plugin: Service(module))` registers it. The
//! functions here are for that code.

use alloc::string::String;
use alloc::vec::Vec;

use crate::view::{Message, View};
use crate::{host, memory, object, plugin, wire, Call};

/// A message that plugins write.
pub trait Encode {
    /// Appends the fields of the message.
    fn encode(&self, b: &mut Vec<u8>);
}

/// Begins a call and returns the plugin, of the type P, and the request.
///
/// # Safety
///
/// It ends what the call before has read, and neither result may be used after the call.
#[doc(hidden)]
pub unsafe fn begin<'a, P: 'a>() -> (&'a P, View<'a>) {
    let call = object::begin();
    (plugin::get(), View::from_any_proto(call, host::ask(call, host::service_request)))
}

/// Ends a call with what the method returned.
#[doc(hidden)]
pub fn finish<T: Encode>(answer: Result<T, String>) -> i32 {
    match answer {
        Ok(response) => {
            let mut b = Vec::new();
            response.encode(&mut b);
            if !b.is_empty() {
                host::give(host::service_response, &b);
            }
            0
        }
        Err(text) => {
            host::reason(&text);
            1
        }
    }
}

/// Tells the host the extension points.
#[doc(hidden)]
pub fn serve(names: &str) {
    host::give(host::service_serve, names.as_bytes())
}

/// Asks a host service.
///
/// # Safety
///
/// `f` must be a function of the host.
#[doc(hidden)]
pub unsafe fn ask<'a, T: Encode>(call: Call<'a>, f: unsafe extern "C" fn(*const u8, u32) -> u64, request: &T) -> Result<View<'a>, String> {
    let mut b = Vec::new();
    request.encode(&mut b);
    let packed = f(b.as_ptr(), b.len() as u32);
    let answer = memory::fill(call, |buf, limit| host::service_answer(buf, limit));
    if packed as u32 == 0 {
        Ok(View::from_any_proto(call, answer))
    } else {
        Err(String::from_utf8_lossy(answer).into_owned())
    }
}

/// Appends a field that refers to an object of the request.
#[doc(hidden)]
pub fn append_object<'a, T: Message<'a>>(b: &mut Vec<u8>, number: u32, object: T) {
    let id = object.view().object_ref();
    if id != 0 {
        wire::append_fixed64(b, number, id);
    }
}
