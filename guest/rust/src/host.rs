//! The functions of the host: abi/SPEC.md, section 6. A module imports those that it uses.
//! Natively there is no host: it knows nothing and takes everything.

use crate::Call;

/// Declares host functions of one module.
macro_rules! imports {
    ($module:literal { $($(#[$doc:meta])* $name:ident = $import:literal ($($arg:ident: $type:ty),*) $(-> $result:ty)?;)* }) => {
        #[cfg(target_arch = "wasm32")]
        #[link(wasm_import_module = $module)]
        extern "C" {
            $(#[link_name = $import] pub(crate) fn $name($($arg: $type),*) $(-> $result)?;)*
        }
        $(
            #[cfg(not(target_arch = "wasm32"))]
            pub(crate) unsafe extern "C" fn $name($(_: $type),*) $(-> $result)? { $(0 as $result)? }
        )*
    };
}

imports! { "kubewasm" {
    config = "config" (buf: *mut u8, limit: u32) -> u32;
    status_reason = "status_reason" (ptr: *const u8, len: u32);
    log = "log" (level: i32, ptr: *const u8, len: u32);
} }

imports! { "k8s.io/api" {
    object = "object" (object: u64, buf: *mut u8, limit: u32) -> u32;
    object_part = "object_part" (object: u64, part: u32, fields: u64, buf: *mut u8, limit: u32) -> u32;
    object_entry = "object_entry" (object: u64, field: u32, ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    get_object = "get_object" (ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    list_objects = "list_objects" (ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
} }

imports! { "k8s.io/scheduler" {
    node_names = "node_names" (buf: *mut u8, limit: u32) -> u32;
    node_refs = "node_refs" (buf: *mut u8, limit: u32) -> u32;
    node_scores = "node_scores" (buf: *mut u8, limit: u32) -> u32;
    node_by_name = "node_by_name" (ptr: *const u8, len: u32) -> u64;
    node_info = "node_info" (node: u64, buf: *mut u8, limit: u32) -> u32;
    node_info_version = "node_info_version" (node: u64) -> u64;
    node_images = "node_images" (node: u64, buf: *mut u8, limit: u32) -> u32;
    node_pods = "node_pods" (node: u64, buf: *mut u8, limit: u32) -> u32;
    nominated_pods = "nominated_pods" (node: u64, buf: *mut u8, limit: u32) -> u32;
    count_pods = "count_pods" (terminating: u32, nodes: *const u64, bytes: u32, ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    list_pods = "list_pods" (terminating: u32, ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    node_name = "node_name" (buf: *mut u8, limit: u32) -> u32;
    node_statuses = "node_statuses" (buf: *mut u8, limit: u32) -> u32;
    pod_group = "pod_group" (buf: *mut u8, limit: u32) -> u32;
    pod_group_pod = "pod_group_pod" (index: u32, buf: *mut u8, limit: u32) -> u32;
    try_pod_group = "try_pod_group" (ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    placement = "placement" (buf: *mut u8, limit: u32) -> u32;
    result_node_names = "result_node_names" (ptr: *const u8, len: u32);
    result_scores = "result_scores" (ptr: *const u8, len: u32);
    result_score = "result_score" (score: i64);
    result_cluster_events = "result_cluster_events" (ptr: *const u8, len: u32);
    result_pods = "result_pods" (ptr: *const u8, len: u32);
    result_nominated_node_name = "result_nominated_node_name" (ptr: *const u8, len: u32);
    result_sign_fragments = "result_sign_fragments" (ptr: *const u8, len: u32);
    result_victims = "result_victims" (ptr: *const u8, len: u32);
    result_nominations = "result_nominations" (ptr: *const u8, len: u32);
    result_placements = "result_placements" (ptr: *const u8, len: u32);
    event = "event" (ptr: *const u8, len: u32);
    waiting_pods = "waiting_pods" (buf: *mut u8, limit: u32) -> u32;
    waiting_pod = "waiting_pod" (ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    allow_waiting_pod = "allow_waiting_pod" (ptr: *const u8, len: u32) -> u32;
    reject_waiting_pod = "reject_waiting_pod" (ptr: *const u8, len: u32) -> u32;
    activate = "activate" (ptr: *const u8, len: u32);
    apply_annotations = "apply_annotations" (ptr: *const u8, len: u32);
    apply_status = "apply_status" (ptr: *const u8, len: u32);
    await_object = "await_object" (ptr: *const u8, len: u32, milliseconds: u32);
} }

imports! { "k8s.io/admission" {
    admission_request = "request" (buf: *mut u8, limit: u32) -> u32;
    admission_object = "object" (buf: *mut u8, limit: u32) -> u32;
    admission_old_object = "old_object" (buf: *mut u8, limit: u32) -> u32;
    admission_options = "options" (buf: *mut u8, limit: u32) -> u32;
    admission_object_proto = "object_proto" (buf: *mut u8, limit: u32) -> u32;
    admission_old_object_proto = "old_object_proto" (buf: *mut u8, limit: u32) -> u32;
    admission_result = "result" (ptr: *const u8, len: u32);
    admission_patch = "patch" (ptr: *const u8, len: u32);
    admission_mutated_object = "mutated_object" (ptr: *const u8, len: u32);
    admission_desired_api_version = "desired_api_version" (buf: *mut u8, limit: u32) -> u32;
} }

imports! { "k8s.io/hooks" {
    hook_request = "request" (buf: *mut u8, limit: u32) -> u32;
    hook_decision = "decision" (ptr: *const u8, len: u32);
} }

imports! { "kubewasm/state" {
    state_get = "get" (ptr: *const u8, len: u32, buf: *mut u8, limit: u32) -> u32;
    state_put = "put" (ptr: *const u8, len: u32, value: *const u8, bytes: u32, version: i64) -> u32;
    state_delete = "delete" (ptr: *const u8, len: u32, version: i64) -> u32;
    state_add = "add" (ptr: *const u8, len: u32, delta: i64, limit: i64) -> u32;
    state_list = "list" (ptr: *const u8, len: u32, after: *const u8, bytes: u32, buf: *mut u8, limit: u32) -> u32;
    state_keep = "keep" ();
} }

imports! { "kubewasm/service" {
    service_request = "request" (buf: *mut u8, limit: u32) -> u32;
    service_response = "response" (ptr: *const u8, len: u32);
    service_answer = "answer" (buf: *mut u8, limit: u32) -> u32;
    service_serve = "serve" (ptr: *const u8, len: u32);
} }

/// Tells the host why the function that runs does not succeed.
pub(crate) fn reason(text: &str) {
    unsafe { status_reason(text.as_ptr(), text.len() as u32) }
}

/// Hands bytes over to the host.
pub(crate) fn give(f: unsafe extern "C" fn(*const u8, u32), bytes: &[u8]) {
    unsafe { f(bytes.as_ptr(), bytes.len() as u32) }
}

/// Returns an answer of the host.
pub(crate) fn ask<'a>(call: Call<'a>, f: unsafe extern "C" fn(*mut u8, u32) -> u32) -> &'a [u8] {
    crate::memory::fill(call, |buf, limit| unsafe { f(buf, limit) })
}

/// Returns the answer of the host to a question.
pub(crate) fn ask_about<'a>(call: Call<'a>, f: unsafe extern "C" fn(*const u8, u32, *mut u8, u32) -> u32, question: &[u8]) -> &'a [u8] {
    crate::memory::fill(call, |buf, limit| unsafe { f(question.as_ptr(), question.len() as u32, buf, limit) })
}
