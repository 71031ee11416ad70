//! Extension points of a component's own, from a .proto file: `kubewasm gen --lang rust` writes a
//! module with a trait for each, and `plugin!(Plugin: Service(module))` registers it. The
//! functions here are for that code.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::view::{Message, View};
use crate::{host, memory, object, plugin, wire, Call};

pub use crate::lookup::{get, list, Objects};

/// The code of an error, as in gRPC: a `google.rpc.Code`. A host may return any other number, too.
/// The code 1 of gRPC, CANCELLED, is not among them: it is the number of an error without a code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal),+ $(,)?) => {
        impl Code {
            $(#[doc = concat!("The code ", stringify!($number), ".")] pub const $name: Code = Code($number);)+

            fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    UNKNOWN = 2,
    INVALID_ARGUMENT = 3,
    DEADLINE_EXCEEDED = 4,
    NOT_FOUND = 5,
    ALREADY_EXISTS = 6,
    PERMISSION_DENIED = 7,
    RESOURCE_EXHAUSTED = 8,
    FAILED_PRECONDITION = 9,
    ABORTED = 10,
    OUT_OF_RANGE = 11,
    UNIMPLEMENTED = 12,
    INTERNAL = 13,
    UNAVAILABLE = 14,
    DATA_LOSS = 15,
    UNAUTHENTICATED = 16,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Code({})", self.0),
        }
    }
}

/// The number of an error without a code.
const UNCODED: i32 = 1;

/// The error of a method: a text and, if it was made by [`Error::new`], a code. A text alone, as a
/// `String` or `&str`, becomes one by `into()` and `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: i32,
    text: String,
}

impl Error {
    /// Makes an error with a code, such as [`Code::NOT_FOUND`].
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        // An error that says that there is none is an error all the same.
        Error { code: if code.0 == 0 { UNCODED } else { code.0 }, text: text.into() }
    }

    /// The code, [`Code::UNKNOWN`] without one.
    pub fn code(&self) -> Code {
        Code(if self.code == UNCODED { Code::UNKNOWN.0 } else { self.code })
    }

    /// The text without the code.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error { code: UNCODED, text }
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Error {
        Error { code: UNCODED, text: text.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

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
pub fn finish<T: Encode>(answer: Result<T, Error>) -> i32 {
    match answer {
        Ok(response) => {
            let mut b = Vec::new();
            response.encode(&mut b);
            if !b.is_empty() {
                host::give(host::service_response, &b);
            }
            0
        }
        Err(err) => {
            host::reason(&err.text);
            err.code
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
pub unsafe fn ask<'a, T: Encode>(call: Call<'a>, f: unsafe extern "C" fn(*const u8, u32) -> u64, request: &T) -> Result<View<'a>, Error> {
    let mut b = Vec::new();
    request.encode(&mut b);
    let packed = f(b.as_ptr(), b.len() as u32);
    let answer = memory::fill(call, |buf, limit| host::service_answer(buf, limit));
    match packed as i32 {
        0 => Ok(View::from_any_proto(call, answer)),
        code => Err(Error { code, text: String::from_utf8_lossy(answer).into_owned() }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn errors_have_codes() {
        let text = |text: &str| Err::<(), _>(Error::from(text));
        for (err, number, code, name) in [
            (text("no").unwrap_err(), 1, Code::UNKNOWN, "UNKNOWN"),
            (String::from("no").into(), 1, Code::UNKNOWN, "UNKNOWN"),
            (Error::new(Code::NOT_FOUND, "no"), 5, Code::NOT_FOUND, "NOT_FOUND"),
            (Error::new(Code::UNKNOWN, "no"), 2, Code::UNKNOWN, "UNKNOWN"),
            (Error::new(Code(0), "no"), 1, Code::UNKNOWN, "UNKNOWN"),
            (Error::new(Code(1), "no"), 1, Code::UNKNOWN, "UNKNOWN"),
            (Error::new(Code(17), "no"), 17, Code(17), "Code(17)"),
            (Error::new(Code(i32::MIN), "no"), i32::MIN, Code(i32::MIN), "Code(-2147483648)"),
        ] {
            assert_eq!((err.code, err.code(), err.text()), (number, code, "no"));
            assert_eq!((format!("{:?}", err.code()), format!("{}", err)), (name.into(), "no".into()));
        }
    }
}
