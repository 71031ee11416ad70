//! What a plugin asks the scheduler for.

use alloc::vec::Vec;

use super::messages::{WaitingPod, WaitingPods};
use super::node::NodeInfo;
use crate::api::core::Pod;
use crate::view::List;
use crate::{host, view, wire, Call};

/// Splits names that have a NUL after each.
pub(crate) fn split<'a>(call: Call<'a>, bytes: &'a [u8]) -> Vec<&'a str> {
    let mut names = Vec::with_capacity(bytes.iter().filter(|b| **b == 0).count());
    names.extend(bytes.split(|b| *b == 0).map(|name| view::utf8(call, name)));
    names.pop(); // What follows the last NUL.
    names
}

/// Joins names.
pub(crate) fn join<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut b = Vec::new();
    for name in names {
        b.extend_from_slice(name.as_bytes());
        b.push(0);
    }
    b
}

pub(crate) fn names(call: Call<'_>) -> Vec<&str> {
    split(call, host::ask(call, host::node_names))
}

pub(crate) fn refs<'a>(bytes: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    bytes.chunks_exact(8).map(|b| wire::fixed(b, 0, 8).unwrap_or(0))
}

/// Returns the names of the nodes of the call: in PreFilter, PostFilter, Reserve and Permit all that
/// the scheduler knows. Only functions of a scheduling cycle up to Permit that are not about one node
/// may call it.
pub fn snapshot_node_names<'a>(call: impl Into<Call<'a>>) -> Vec<&'a str> {
    names(call.into())
}

/// Returns a node by its name, None if there is none, and always after Permit.
pub fn snapshot_node<'a>(call: impl Into<Call<'a>>, name: &str) -> Option<NodeInfo<'a>> {
    match unsafe { host::node_by_name(name.as_ptr(), name.len() as u32) } {
        0 => None,
        id => Some(NodeInfo::of(call.into(), id)),
    }
}

/// Reports an event about the Pod that is being scheduled, of the type "Normal" or "Warning". It
/// needs the grant "events".
pub fn event(event_type: &str, reason: &str, action: &str, note: &str) {
    let mut b = Vec::new();
    for (number, text) in [(1, event_type), (2, reason), (3, action), (4, note)] {
        wire::append_bytes(&mut b, number, text.as_bytes());
    }
    host::give(host::event, &b);
}

/// Returns the Pods that wait in Permit, in no order. It needs the grant "waiting-pods".
pub fn waiting_pods<'a>(call: impl Into<Call<'a>>) -> List<'a, WaitingPod<'a>> {
    let call = call.into();
    WaitingPods::from_proto(call, host::ask(call, host::waiting_pods)).pods()
}

/// Returns the Pod that waits in Permit under a UID, if there is one. It needs the grant
/// "waiting-pods".
pub fn get_waiting_pod<'a>(call: impl Into<Call<'a>>, uid: &str) -> Option<Pod<'a>> {
    let call = call.into();
    let bytes = host::ask_about(call, host::waiting_pod, uid.as_bytes());
    if bytes.is_empty() {
        return None;
    }
    Some(Pod::from_proto(call, bytes))
}

/// Gives this plugin's permission to a Pod that waits for it, and reports whether it waits. It
/// needs the grant "waiting-pods".
pub fn allow_waiting_pod(uid: &str) -> bool {
    unsafe { host::allow_waiting_pod(uid.as_ptr(), uid.len() as u32) != 0 }
}

/// Makes a Pod that waits unschedulable, and reports whether it waited. It needs the grant
/// "waiting-pods".
pub fn reject_waiting_pod(uid: &str, reason: &str) -> bool {
    let question = [uid, "\0", reason].concat();
    unsafe { host::reject_waiting_pod(question.as_ptr(), question.len() as u32) != 0 }
}

/// Has the queue try Pods again, at most 1,000 in a call, whose names have 8 KiB together. In
/// PreEnqueue, PostFilter, Reserve, Unreserve, Permit, PreBind and PostBind; it takes effect after
/// the call, for a Pod at most once a second. It needs the grant "activate".
pub fn activate(pods: &[super::PodName]) {
    host::give(host::activate, &join(pods.iter().flat_map(|p| [p.namespace.as_str(), p.name.as_str()])));
}

/// Has the host apply annotations to an object, in PostFilter, Unreserve, PreBind and PostBind, after
/// the call. They are all that the plugin manages of the object: those that it has applied before and
/// that are missing now are removed. A call applies to at most 100 objects, and a request has 8 KiB. It
/// needs the grant "apply", and a configuration that names the resource with `apply: [annotations]`.
pub fn apply_annotations(resource: &str, namespace: &str, name: &str, annotations: &[(&str, &str)]) {
    let object = [resource, namespace, name];
    host::give(host::apply_annotations, &join(object.into_iter().chain(annotations.iter().flat_map(|(key, value)| [*key, *value]))));
}

/// Is `apply_annotations` for the fields of the status that the plugin manages, a JSON object.
pub fn apply_status(resource: &str, namespace: &str, name: &str, status: &str) {
    host::give(host::apply_status, [resource, "\0", namespace, "\0", name, "\0", status].concat().as_bytes());
}

/// Has PreBind called again after an object has changed, if it returns the code `Wait`. The Pod is
/// refused after so many milliseconds since PreBind was first called. It needs the grant "objects".
pub fn await_object(resource: &str, namespace: &str, name: &str, milliseconds: u32) {
    let question = [resource, "\0", namespace, "\0", name].concat();
    unsafe { host::await_object(question.as_ptr(), question.len() as u32, milliseconds) }
}

/// Returns an object of the Kubernetes API as protobuf or, of a custom resource, as JSON, for example for
/// `PersistentVolumeClaim::from_proto`. The resource is named as in the plugin's configuration:
/// `v1/persistentvolumeclaims`. It needs the grant "objects".
pub fn get_object<'a>(call: impl Into<Call<'a>>, resource: &str, namespace: &str, name: &str) -> Option<&'a [u8]> {
    crate::lookup::get(call, resource, namespace, name)
}

/// Returns the objects of a resource as protobuf, sorted by namespace and name: those of all
/// namespaces if `namespace` is empty. It needs the grant "objects".
pub fn list_objects<'a>(call: impl Into<Call<'a>>, resource: &str, namespace: &str) -> crate::lookup::Objects<'a> {
    crate::lookup::list(call, resource, namespace, "")
}
