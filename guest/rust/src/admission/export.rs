//! What the host calls. plugin! exports these functions.

use super::*;
use crate::plugin::get;
use crate::{host, object as objects};

pub fn validate<P: Validate>() -> u64 {
    objects::begin();
    get::<P>().validate(&Request::default()).give()
}

pub fn mutate<P: Mutate>() -> u64 {
    objects::begin();
    let req = Request::default();
    let mut patch = Patch::of_request();
    let response = get::<P>().mutate(&req, &mut patch);
    if !response.is_allowed() {
        return response.give();
    }
    match patch.give() {
        Ok(()) => response.give(),
        Err(text) => Response::error(text).give(),
    }
}

pub fn convert<P: Convert>() -> u64 {
    objects::begin();
    let desired = crate::view::utf8(host::ask(host::admission_desired_api_version));
    let conversion = Conversion::new(host::ask(host::admission_object), desired);
    let mut patch = Patch::new(conversion.object());
    let answer = get::<P>().convert(&conversion, &mut patch).and_then(|()| {
        patch.set_api_version(desired);
        patch.give()
    });
    match answer {
        Ok(()) => 0,
        Err(text) => Response::error(text).give(),
    }
}
