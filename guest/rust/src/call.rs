//! The call that runs, and how long what it reads lives.

use core::marker::PhantomData;

use crate::view::Message;

/// A call of the host. What the SDK fetches or decodes lives as long as the call.
///
/// A function that asks the host, or reads bytes, takes the call first. Everything that a plugin
/// is given in a call stands for it: a request, a Pod, a node, a group, a conversion. Its texts
/// have the same lifetime, so that code which keeps one for longer does not compile:
///
/// ```compile_fail
/// use kubewasm::admission::{Request, Response, Validate};
///
/// struct Policy(std::cell::Cell<&'static str>);
///
/// impl Validate for Policy {
///     fn validate(&self, req: &Request<'_>) -> Response {
///         self.0.set(req.name()); // The text ends with the call: keep a String.
///         Response::allow()
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'a>(PhantomData<&'a ()>);

impl<'a> Call<'a> {
    /// Returns the call that runs.
    ///
    /// # Safety
    ///
    /// The lifetime must end before the next call begins.
    #[inline(always)]
    pub(crate) const unsafe fn running() -> Self {
        Call(PhantomData)
    }

    /// Calls `f` with the call that runs. It is for functions that are given nothing else of it,
    /// such as [`Configure`](crate::plugin::Configure).
    ///
    /// ```
    /// use kubewasm::{json::Value, Call};
    ///
    /// let port = Call::with(|call| Value::of(call, br#"{"port": 80}"#).get("port").and_then(|v| v.integer()));
    /// assert_eq!(port, Some(80));
    /// ```
    pub fn with<R>(f: impl for<'c> FnOnce(Call<'c>) -> R) -> R {
        // The result cannot have the lifetime, and `f` returns before the call does.
        f(unsafe { Call::running() })
    }
}

/// Natively there is no call that ends: what a test reads stays.
#[cfg(not(target_arch = "wasm32"))]
impl Call<'static> {
    /// Returns a call for a test.
    pub const fn for_test() -> Self {
        Call(PhantomData)
    }
}

/// An object or a request of the call. A default one, which the host has not given, is of no call.
impl<'a, M: Message<'a>> From<M> for Call<'a> {
    #[inline]
    fn from(message: M) -> Self {
        message.view().call_or_panic()
    }
}
