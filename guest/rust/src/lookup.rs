//! Looking objects up: abi/SPEC.md, section 6. It needs the grant "objects".

use alloc::string::String;

use crate::{host, view, wire, Call};

/// Returns an object as the host has it: in a scheduler as protobuf, in admission and services as JSON. None
/// if it is not there.
pub fn get<'a>(call: impl Into<Call<'a>>, resource: &str, namespace: &str, name: &str) -> Option<&'a [u8]> {
    let question = [resource, "\0", namespace, "\0", name].concat();
    Some(host::ask_about(call.into(), host::get_object, question.as_bytes())).filter(|b| !b.is_empty())
}

/// Returns the objects of a resource that a label selector chooses, in a namespace, sorted by
/// namespace and name. An empty selector chooses all objects, an empty namespace means all. They
/// come from the host page by page.
pub fn list<'a>(call: impl Into<Call<'a>>, resource: &str, namespace: &str, selector: &str) -> Objects<'a> {
    Objects { call: call.into(), question: [resource, "\0", namespace, "\0", selector, "\0"].concat(), page: wire::Fields::new(&[]), next: Some("") }
}

/// Iterates over objects.
pub struct Objects<'a> {
    call: Call<'a>,
    question: String,
    page: wire::Fields<'a>,
    /// What asks for the page after this one.
    next: Option<&'a str>,
}

impl<'a> Iterator for Objects<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            for field in &mut self.page {
                match field.number {
                    1 => return Some(field.bytes),
                    2 => self.next = Some(view::utf8(self.call, field.bytes)),
                    _ => {}
                }
            }
            let next = self.next.take()?;
            let question = [&self.question, next].concat();
            self.page = wire::Fields::new(host::ask_about(self.call, host::list_objects, question.as_bytes()));
        }
    }
}
