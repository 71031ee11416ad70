use alloc::vec::Vec;

use super::handle;
use super::messages;
use crate::api::core::{Node, Pod};
use crate::global::Global;
use crate::object::Form;
use crate::select::Selector;
use crate::view::{List, Message, View};
use crate::{host, memory, wire, Call};

/// The scheduler's state of a node, during the call that it was passed to.
#[derive(Clone, Copy, Debug)]
pub struct NodeInfo<'a> {
    id: u64,
    call: Call<'a>,
}

impl<'a> From<NodeInfo<'a>> for Call<'a> {
    fn from(node: NodeInfo<'a>) -> Self {
        node.call
    }
}

/// What is known of a node beside its object, by the slot of its ref.
struct Known {
    /// The call that the version was last compared in.
    checked: u32,
    version: u64,
    usage: Option<Vec<u8>>,
    images: Option<Vec<u8>>,
}

static KNOWN: Global<Vec<Known>> = Global::new(Vec::new());

/// Returns what is known of a node.
///
/// # Safety
///
/// The reference must end before the next one begins.
unsafe fn known<'a>(id: u64) -> &'a mut Known {
    let all = KNOWN.get();
    let slot = id as u32 as usize;
    while slot >= all.len() {
        all.push(Known { checked: 0, version: 0, usage: None, images: None });
    }
    let known = &mut all[slot];
    if known.checked != memory::number() {
        known.checked = memory::number();
        let version = host::node_info_version(id);
        if version != known.version {
            *known = Known { checked: known.checked, version, usage: None, images: None };
        }
    }
    known
}

impl<'a> NodeInfo<'a> {
    pub(crate) fn of(call: Call<'a>, id: u64) -> Self {
        NodeInfo { id, call }
    }

    /// Returns the Node object. Fields of it are fetched when they are read.
    #[inline]
    pub fn node(self) -> Node<'a> {
        object(self.call, self.id)
    }

    /// Returns the resources that the Pods of the node use. They are fetched when they have
    /// changed.
    pub fn usage(self) -> messages::NodeInfo<'a> {
        let (known, id) = (unsafe { known::<'a>(self.id) }, self.id);
        let bytes = known.usage.get_or_insert_with(|| memory::fill(self.call, |buf, limit| unsafe { host::node_info(id, buf, limit) }).to_vec());
        messages::NodeInfo::from_proto(self.call, bytes)
    }

    /// Returns the images that the node has, sorted by name.
    pub fn images(self) -> List<'a, messages::ImageState<'a>> {
        let (known, id) = (unsafe { known::<'a>(self.id) }, self.id);
        let bytes = known.images.get_or_insert_with(|| memory::fill(self.call, |buf, limit| unsafe { host::node_images(id, buf, limit) }).to_vec());
        messages::NodeImages::from_proto(self.call, bytes).images()
    }

    /// Returns the Pods of the node. Only fields that are read are fetched.
    pub fn pods(self) -> impl Iterator<Item = Pod<'a>> + 'a {
        let (call, id) = (self.call, self.id);
        handle::refs(memory::fill(call, |buf, limit| unsafe { host::node_pods(id, buf, limit) })).map(move |id| object(call, id))
    }

    /// Returns the Pods that are nominated for the node, sorted by namespace and name.
    pub fn nominated_pods(self) -> impl Iterator<Item = Pod<'a>> + 'a {
        let (call, id) = (self.call, self.id);
        handle::refs(memory::fill(call, |buf, limit| unsafe { host::nominated_pods(id, buf, limit) })).map(move |id| object(call, id))
    }
}

/// Returns how many Pods of each node are in a namespace, or in any if it is empty, and chosen by a
/// selector; with those that have a deletionTimestamp only if `terminating` is set. The host counts
/// them, of many nodes side by side, so that no Pod comes to the guest: ask about all nodes at once.
pub fn count_pods(nodes: &[NodeInfo<'_>], namespace: &str, selector: &Selector, terminating: bool) -> Vec<u32> {
    let selector = match selector.text() {
        Some(text) if !nodes.is_empty() => text,
        _ => return nodes.iter().map(|_| 0).collect(),
    };
    let question = [namespace, "\0", &selector].concat();
    let refs: Vec<u64> = nodes.iter().map(|node| node.id).collect();
    let ask = |buf, limit| unsafe {
        host::count_pods(terminating as u32, refs.as_ptr(), 8 * refs.len() as u32, question.as_ptr(), question.len() as u32, buf, limit)
    };
    Call::with(|call| memory::fill(call, ask).chunks_exact(4).map(|b| wire::fixed(b, 0, 4).unwrap_or(0) as u32).collect())
}

/// Returns the Pods of the cluster that are in a namespace, or in any if it is empty, and chosen by a
/// selector, sorted by namespace and name; with those that have a deletionTimestamp only if
/// `terminating` is set. It needs the grant "objects" and a configuration that names `v1/pods`.
pub fn list_pods<'a>(call: impl Into<Call<'a>>, namespace: &str, selector: &Selector, terminating: bool) -> impl Iterator<Item = Pod<'a>> + 'a {
    let call = call.into();
    let refs: &[u8] = match selector.text() {
        Some(text) => {
            let question = [namespace, "\0", &text].concat();
            memory::fill(call, |buf, limit| unsafe { host::list_pods(terminating as u32, question.as_ptr(), question.len() as u32, buf, limit) })
        }
        None => &[],
    };
    handle::refs(refs).map(move |id| object(call, id))
}

/// Returns the Pod or Node of a ref.
#[inline]
pub(crate) fn object<'a, T: Message<'a>>(call: Call<'a>, id: u64) -> T {
    if id == 0 {
        return T::from_view(View::EMPTY);
    }
    T::from_view(View::from_ref(call, id, T::ID, Form::Parts))
}

/// Nodes that were passed to a function. They and their names are fetched when they are read.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a>(Call<'a>);

impl<'a> From<Nodes<'a>> for Call<'a> {
    fn from(nodes: Nodes<'a>) -> Self {
        nodes.0
    }
}

impl<'a> Nodes<'a> {
    pub(crate) fn passed(call: Call<'a>) -> Self {
        Nodes(call)
    }

    /// Returns the names of the nodes, of which all are fetched.
    pub fn names(self) -> Vec<&'a str> {
        handle::names(self.0)
    }

    /// Returns the nodes, of which all refs are fetched.
    pub fn iter(self) -> impl Iterator<Item = NodeInfo<'a>> + 'a {
        handle::refs(host::ask(self.0, host::node_refs)).map(move |id| NodeInfo::of(self.0, id))
    }
}
