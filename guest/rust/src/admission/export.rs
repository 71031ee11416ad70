//! What the host calls. plugin! exports these functions.
//!
//! Each begins a call, which ends what the call before has read. P is the type of the plugin.
#![allow(clippy::missing_safety_doc)]

use super::*;
use crate::plugin::get;
use crate::{host, object as objects};

pub unsafe fn validate<P: Validate>() -> u64 {
    let call = objects::begin();
    get::<P>().validate(&Request::of_call(call)).give()
}

pub unsafe fn mutate<P: Mutate>() -> u64 {
    let call = objects::begin();
    let req = Request::of_call(call);
    let mut patch = Patch::of_request(call);
    let response = get::<P>().mutate(&req, &mut patch);
    if !response.is_allowed() {
        return response.give();
    }
    match patch.give() {
        Ok(()) => response.give(),
        Err(text) => Response::error(text).give(),
    }
}

pub unsafe fn convert<P: Convert>() -> u64 {
    let call = objects::begin();
    let desired = crate::view::utf8(call, host::ask(call, host::admission_desired_api_version));
    let conversion = Conversion::new(call, host::ask(call, host::admission_object), desired);
    let mut patch = Patch::new(call, conversion.object());
    let answer = get::<P>().convert(&conversion, &mut patch).and_then(|()| {
        patch.set_api_version(desired);
        patch.give()
    });
    match answer {
        Ok(()) => 0,
        Err(text) => Response::error(text).give(),
    }
}
