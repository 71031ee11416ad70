use core::cell::Cell;

use super::messages;
use super::pod::PodOf;
use crate::{host, index, wire, Call};

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted. There is an old object only.
    Delete,
    /// Somebody connects to it: exec, port-forward.
    Connect,
    /// An operation that the crate does not know.
    Other,
}

/// A request to the API server. What it has is fetched when it is first read.
#[derive(Debug)]
pub struct Request<'a> {
    call: Call<'a>,
    envelope: Cell<Option<&'a [u8]>>,
    object: Cell<Option<&'a [u8]>>,
    old_object: Cell<Option<&'a [u8]>>,
    options: Cell<Option<&'a [u8]>>,
    object_proto: Cell<Option<&'a [u8]>>,
    old_object_proto: Cell<Option<&'a [u8]>>,
}

fn fetched<'a>(call: Call<'a>, cell: &Cell<Option<&'a [u8]>>, f: unsafe extern "C" fn(*mut u8, u32) -> u32) -> &'a [u8] {
    match cell.get() {
        Some(bytes) => bytes,
        None => {
            let bytes = host::ask(call, f);
            cell.set(Some(bytes));
            bytes
        }
    }
}

impl<'a> From<&Request<'a>> for Call<'a> {
    fn from(req: &Request<'a>) -> Self {
        req.call
    }
}

impl<'a> Request<'a> {
    pub(crate) fn of_call(call: Call<'a>) -> Self {
        let unread = || Cell::new(None);
        Request { call, envelope: unread(), object: unread(), old_object: unread(), options: unread(), object_proto: unread(), old_object_proto: unread() }
    }

    /// Returns a request for a test: the message `Request` of abi/admission.proto, the object and
    /// the old object in JSON, empty if there is none.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn for_test(envelope: &'a [u8], object: &'a [u8], old_object: &'a [u8]) -> Self {
        let some = |b| Cell::new(Some(b));
        Request { envelope: some(envelope), object: some(object), old_object: some(old_object), ..Request::of_call(Call::for_test()) }
    }

    /// Returns the request without its objects. The methods below read the most common fields.
    pub fn message(&self) -> messages::Request<'a> {
        messages::Request::from_proto(self.call, fetched(self.call, &self.envelope, host::admission_request))
    }

    /// Returns the UID of the request.
    pub fn uid(&self) -> &'a str {
        self.message().uid()
    }

    /// Returns the kind of the object.
    pub fn kind(&self) -> messages::GroupVersionKind<'a> {
        self.message().kind().unwrap_or_default()
    }

    /// Returns the resource of the request.
    pub fn resource(&self) -> messages::GroupVersionResource<'a> {
        self.message().resource().unwrap_or_default()
    }

    /// Returns the subresource, empty for the object itself.
    pub fn sub_resource(&self) -> &'a str {
        self.message().sub_resource()
    }

    /// Returns the name of the object, empty if the API server is to make one.
    pub fn name(&self) -> &'a str {
        self.message().name()
    }

    /// Returns the namespace, empty for an object that has none.
    pub fn namespace(&self) -> &'a str {
        self.message().namespace()
    }

    /// Returns what happens.
    pub fn operation(&self) -> Operation {
        match self.message().operation() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            "CONNECT" => Operation::Connect,
            _ => Operation::Other,
        }
    }

    /// Returns who makes the request.
    pub fn user_info(&self) -> messages::UserInfo<'a> {
        self.message().user_info().unwrap_or_default()
    }

    /// Reports whether nothing is to be stored.
    pub fn is_dry_run(&self) -> bool {
        self.message().dry_run().unwrap_or(false)
    }

    /// Returns the object in JSON, byte for byte as the API server sent it; empty if it is deleted.
    pub fn object(&self) -> &'a [u8] {
        self.indexed(0, &self.object, host::admission_object)
    }

    /// Returns the object before a change in JSON, empty if there was none.
    pub fn old_object(&self) -> &'a [u8] {
        self.indexed(1, &self.old_object, host::admission_old_object)
    }

    /// Returns an object, which is read with the host's index.
    fn indexed(&self, number: usize, cell: &Cell<Option<&'a [u8]>>, f: unsafe extern "C" fn(*mut u8, u32) -> u32) -> &'a [u8] {
        let first = cell.get().is_none();
        let object = fetched(self.call, cell, f);
        if first && !object.is_empty() {
            let envelope = fetched(self.call, &self.envelope, host::admission_request);
            if let Some(places) = wire::last(envelope, 101 + number as u32, false) {
                unsafe { index::set(number, object, places.bytes) }; // Both are of the call.
            }
        }
        object
    }

    /// Returns the options of the request in JSON.
    pub fn options(&self) -> &'a [u8] {
        fetched(self.call, &self.options, host::admission_options)
    }

    /// Returns the object in protobuf, empty if it is of no kind of the Kubernetes API.
    pub fn object_proto(&self) -> &'a [u8] {
        fetched(self.call, &self.object_proto, host::admission_object_proto)
    }

    /// Returns the old object in protobuf, likewise.
    pub fn old_object_proto(&self) -> &'a [u8] {
        fetched(self.call, &self.old_object_proto, host::admission_old_object_proto)
    }

    /// Returns the Pod of the request: its object, or the template of a workload. None for all
    /// other objects, and if there is no object.
    pub fn pod(&self) -> Option<PodOf<'a>> {
        PodOf::of(self.call, self.kind(), self.object())
    }

    /// Returns the Pod of the old object, likewise.
    pub fn old_pod(&self) -> Option<PodOf<'a>> {
        PodOf::of(self.call, self.kind(), self.old_object())
    }
}
