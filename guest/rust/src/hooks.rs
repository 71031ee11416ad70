//! Runtime hooks: a plugin decides about the resources of pods and containers on a node.
//!
//! ```
//! use kubewasm::hooks::{messages::Request, Decision, Hook};
//!
//! kubewasm::config! {
//!     pub struct Batch;
//! }
//!
//! impl Hook for Batch {
//!     fn decide(&self, req: Request<'_>, d: &mut Decision) -> Result<(), String> {
//!         if req.pod_labels().get("tier") == Some("batch") {
//!             d.resources.cpu_shares = Some(128);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! kubewasm::plugin! {
//!     Batch: Hook;
//!     reads = ["pod_labels[tier]"];
//!     decides = ["cpu_shares"];
//! }
//! # fn main() {}
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use crate::{wire, Call};

#[path = "hooks/messages/mod.rs"]
#[allow(missing_docs)]
pub mod messages;

pub use self::messages::{Level, QOSClass as QosClass, Request, Stage};

/// The quota or the amount of memory that stands for no limit.
pub const UNLIMITED: i64 = -1;

/// Returns the object of a resource that has the name of the node, as JSON for the `from_json` of a
/// view; None if there is none:
///
/// ```
/// # use kubewasm::{api::core::Node, hooks::{self, Request}};
/// # fn zone<'a>(req: Request<'a>) -> Option<&'a str> {
/// let node = Node::from_json(req, hooks::get(req, "v1/nodes", req.node_name())?);
/// # node.metadata().labels().get("zone")
/// # }
/// ```
///
/// The plugin's configuration must name the resource, and the host must know the object: otherwise
/// the plugin fails, and `get` does not return. The host asks it anew when the object has changed.
pub fn get<'a>(call: impl Into<Call<'a>>, resource: &str, name: &str) -> Option<&'a [u8]> {
    crate::lookup::get(call, resource, "", name)
}

/// Decides about pods and containers.
pub trait Hook {
    /// Sets in `d` what is to change: everything else stays. An error makes the hook fail, with
    /// its text.
    fn decide(&self, req: Request<'_>, d: &mut Decision) -> Result<(), String>;
}

/// What a plugin decides: `kubewasm.hooks.v1.Decision`. The default changes nothing. Everything
/// except the resources needs a grant of the plugin's operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The resources of the cgroup of the request.
    pub resources: Resources,
    /// Annotations of the container.
    pub container_annotations: Vec<(String, String)>,
    /// Variables of the container's environment, at `PRE_CREATE_CONTAINER` only.
    pub container_envs: Vec<(String, String)>,
    /// Mounts of the container, likewise.
    pub container_mounts: Vec<Mount>,
    /// Devices of the container, likewise.
    pub container_devices: Vec<Device>,
}

/// Resources of a cgroup: `kubewasm.hooks.v1.Resources`. The units are those of abi/hook.proto.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Resources {
    /// 2 to 262144, where 1024 is one CPU.
    pub cpu_shares: Option<i64>,
    /// Microseconds of CPU time in each period, at least 1000, or [`UNLIMITED`].
    pub cfs_quota_us: Option<i64>,
    pub cfs_period_us: Option<i64>,
    /// A list of CPUs: "0-3,8".
    pub cpuset_cpus: Option<String>,
    pub cpuset_mems: Option<String>,
    pub cpu_bvt: Option<i64>,
    pub cpu_idle: Option<i64>,
    pub cpu_burst_us: Option<i64>,
    /// Bytes, or [`UNLIMITED`].
    pub memory_limit_bytes: Option<i64>,
    pub memory_min_bytes: Option<i64>,
    pub memory_low_bytes: Option<i64>,
    pub memory_high_bytes: Option<i64>,
    pub oom_score_adj: Option<i64>,
    /// Other files of the cgroup with their contents.
    pub unified: Vec<(String, String)>,
    pub net_cls_classid: Option<i64>,
    pub core_sched_group: Option<String>,
    pub resctrl_group: Option<String>,
    pub resctrl_schemata: Option<String>,
}

/// A mount of a container, as in the OCI runtime specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Mount {
    pub destination: String,
    pub source: String,
    pub mount_type: String,
    pub options: Vec<String>,
}

/// A device of a container, as in the OCI runtime specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Device {
    pub path: String,
    pub device_type: String,
    pub major: i64,
    pub minor: i64,
    pub file_mode: Option<i64>,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
}

fn append_optional(b: &mut Vec<u8>, number: u32, value: Option<i64>) {
    if let Some(n) = value {
        wire::append_number(b, number, n as u64);
    }
}

fn append_text(b: &mut Vec<u8>, number: u32, text: &str) {
    if !text.is_empty() {
        wire::append_bytes(b, number, text.as_bytes());
    }
}

fn append_optional_text(b: &mut Vec<u8>, number: u32, text: &Option<String>) {
    if let Some(text) = text {
        wire::append_bytes(b, number, text.as_bytes());
    }
}

impl Resources {
    fn append(&self, b: &mut Vec<u8>) {
        append_optional(b, 1, self.cpu_shares);
        append_optional(b, 2, self.cfs_quota_us);
        append_optional(b, 3, self.cfs_period_us);
        append_optional_text(b, 4, &self.cpuset_cpus);
        append_optional_text(b, 5, &self.cpuset_mems);
        append_optional(b, 6, self.cpu_bvt);
        append_optional(b, 7, self.cpu_idle);
        append_optional(b, 8, self.cpu_burst_us);
        append_optional(b, 9, self.memory_limit_bytes);
        append_optional(b, 10, self.memory_min_bytes);
        append_optional(b, 11, self.memory_low_bytes);
        append_optional(b, 12, self.memory_high_bytes);
        append_optional(b, 13, self.oom_score_adj);
        for (file, value) in &self.unified {
            wire::append_entry(b, 14, file, value);
        }
        append_optional(b, 15, self.net_cls_classid);
        append_optional_text(b, 16, &self.core_sched_group);
        append_optional_text(b, 17, &self.resctrl_group);
        append_optional_text(b, 18, &self.resctrl_schemata);
    }
}

impl Decision {
    /// Returns the message, no bytes for a decision that changes nothing.
    pub fn to_proto(&self) -> Vec<u8> {
        let mut b = Vec::new();
        if self.resources != Resources::default() {
            wire::append_message(&mut b, 1, |b| self.resources.append(b));
        }
        for (key, value) in &self.container_annotations {
            wire::append_entry(&mut b, 2, key, value);
        }
        for (name, value) in &self.container_envs {
            wire::append_entry(&mut b, 3, name, value);
        }
        for m in &self.container_mounts {
            wire::append_message(&mut b, 4, |b| {
                append_text(b, 1, &m.destination);
                append_text(b, 2, &m.source);
                append_text(b, 3, &m.mount_type);
                for option in &m.options {
                    wire::append_bytes(b, 4, option.as_bytes());
                }
            });
        }
        for d in &self.container_devices {
            wire::append_message(&mut b, 5, |b| {
                append_text(b, 1, &d.path);
                append_text(b, 2, &d.device_type);
                append_optional(b, 3, Some(d.major).filter(|n| *n != 0));
                append_optional(b, 4, Some(d.minor).filter(|n| *n != 0));
                append_optional(b, 5, d.file_mode);
                append_optional(b, 6, d.uid);
                append_optional(b, 7, d.gid);
            });
        }
        b
    }
}

#[doc(hidden)]
pub mod export {
    use super::*;
    use crate::plugin::get;
    use crate::{host, object as objects};

    /// Begins a call, which ends what the call before has read. P is the type of the plugin.
    #[allow(clippy::missing_safety_doc)]
    pub unsafe fn hook<P: Hook>() -> i32 {
        let call = objects::begin();
        let mut d = Decision::default();
        match get::<P>().decide(Request::from_proto(call, host::ask(call, host::hook_request)), &mut d) {
            Ok(()) => {
                let b = d.to_proto();
                if !b.is_empty() {
                    host::give(host::hook_decision, &b);
                }
                0
            }
            Err(text) => {
                host::reason(&text);
                1
            }
        }
    }
}
