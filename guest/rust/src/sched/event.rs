use alloc::string::String;
use alloc::vec::Vec;

use super::node::object;
use crate::api::core::{Node, Pod};
use crate::Call;

/// The resource of a [`ClusterEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Resource {
    Pod = 0,
    AssignedPod = 1,
    UnscheduledPod = 2,
    TargetPod = 3,
    Node = 4,
    PersistentVolume = 5,
    PersistentVolumeClaim = 6,
    CSINode = 7,
    CSIDriver = 8,
    VolumeAttachment = 9,
    CSIStorageCapacity = 10,
    StorageClass = 11,
    ResourceClaim = 12,
    ResourceSlice = 13,
    DeviceClass = 14,
    PodGroup = 15,
    CompositePodGroup = 16,
    /// Any of them.
    Any = 17,
    /// A resource that the plugin's configuration names, see [`ClusterEvent::of`].
    Named = 255,
}

/// The actions of a [`ClusterEvent`], a bit for each.
#[allow(missing_docs)]
pub mod action {
    pub const ADD: u32 = 1 << 0;
    pub const DELETE: u32 = 1 << 1;
    pub const UPDATE_NODE_ALLOCATABLE: u32 = 1 << 2;
    pub const UPDATE_NODE_LABEL: u32 = 1 << 3;
    pub const UPDATE_NODE_TAINT: u32 = 1 << 4;
    pub const UPDATE_NODE_CONDITION: u32 = 1 << 5;
    pub const UPDATE_NODE_ANNOTATION: u32 = 1 << 6;
    pub const UPDATE_NODE_DECLARED_FEATURE: u32 = 1 << 7;
    pub const UPDATE_NODE_PREEMPTION_POLICY: u32 = 1 << 8;
    pub const UPDATE_POD_LABEL: u32 = 1 << 9;
    pub const UPDATE_POD_SCALE_DOWN: u32 = 1 << 10;
    pub const UPDATE_POD_SCALE_UP: u32 = 1 << 11;
    pub const UPDATE_POD_TOLERATION: u32 = 1 << 12;
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: u32 = 1 << 13;
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: u32 = 1 << 14;
    /// Any update.
    pub const UPDATE: u32 = ((1 << 15) - 1) & !(ADD | DELETE);
    pub(crate) const PRE_HINT: u32 = 1 << 30;
    pub(crate) const HINT: u32 = 1 << 31;
}

/// Decides whether a Pod that the plugin has refused is tried again after an event in which the
/// first object became the second. An error counts as true.
pub type Hint<P> = for<'a> fn(&P, Pod<'a>, EventObject<'a>, EventObject<'a>) -> Result<bool, String>;

/// Returns the Pods to which such an event may matter, None for all. An error counts as all.
pub type PreHint<P> = for<'a> fn(&P, EventObject<'a>, EventObject<'a>) -> Result<Option<Vec<PodName>>, String>;

/// The name of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

/// An event that may make a Pod schedulable.
pub struct ClusterEvent<P> {
    pub(crate) resource: Resource,
    pub(crate) object: String,
    pub(crate) actions: u32,
    pub(crate) hint: Option<Hint<P>>,
    pub(crate) pre_hint: Option<PreHint<P>>,
}

impl<P> ClusterEvent<P> {
    /// Returns an event that tries all Pods again: a resource and bits of [`action`].
    pub fn new(resource: Resource, actions: u32) -> Self {
        ClusterEvent { resource, object: String::new(), actions, hint: None, pre_hint: None }
    }

    /// Returns an event about any resource that the objects of the plugin's configuration name, in
    /// the same words: `scheduling.x-k8s.io/v1alpha1/podgroups`. Its actions are
    /// [`action::ADD`], [`action::UPDATE`] and [`action::DELETE`].
    pub fn of(object: impl Into<String>, actions: u32) -> Self {
        ClusterEvent { resource: Resource::Named, object: object.into(), actions, hint: None, pre_hint: None }
    }

    /// Asks `hint` about each Pod.
    pub fn with_hint(mut self, hint: Hint<P>) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Asks `hint` once for the event. Kubernetes calls it from 1.37 on.
    pub fn with_pre_hint(mut self, hint: PreHint<P>) -> Self {
        self.pre_hint = Some(hint);
        self
    }

    pub(crate) fn object<'a>(&self, call: Call<'a>, id: u64) -> EventObject<'a> {
        match self.resource {
            _ if id == 0 => EventObject::Absent,
            Resource::Pod | Resource::AssignedPod | Resource::UnscheduledPod | Resource::TargetPod => EventObject::Pod(object(call, id)),
            Resource::Node => EventObject::Node(object(call, id)),
            _ => EventObject::Other(OtherObject { call, id }),
        }
    }
}

/// The object of an event, before it or after it.
#[derive(Clone, Copy, Debug)]
pub enum EventObject<'a> {
    /// There is none: the object was added or deleted.
    Absent,
    /// A Pod.
    Pod(Pod<'a>),
    /// A Node.
    Node(Node<'a>),
    /// An object of another kind.
    Other(OtherObject<'a>),
}

/// An object of an event about another kind than Pods and Nodes.
#[derive(Clone, Copy, Debug)]
pub struct OtherObject<'a> {
    call: Call<'a>,
    id: u64,
}

impl<'a> OtherObject<'a> {
    /// Returns the object as [`crate::lookup::get`] does: as protobuf or, for a custom resource, as
    /// JSON.
    pub fn bytes(self) -> &'a [u8] {
        crate::memory::fill(self.call, |buf, limit| unsafe { crate::host::object(self.id, buf, limit) })
    }
}

impl<'a> EventObject<'a> {
    /// Reports whether there is an object.
    pub fn is_present(self) -> bool {
        !matches!(self, EventObject::Absent)
    }

    /// Returns the Pod, an empty one if the object is none.
    pub fn pod(self) -> Pod<'a> {
        match self {
            EventObject::Pod(pod) => pod,
            _ => Pod::default(),
        }
    }

    /// Returns the bytes of an object that is neither a Pod nor a Node, None otherwise.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            EventObject::Other(object) => Some(object.bytes()),
            _ => None,
        }
    }

    /// Returns the Node, an empty one if the object is none.
    pub fn node(self) -> Node<'a> {
        match self {
            EventObject::Node(node) => node,
            _ => Node::default(),
        }
    }
}
