//! Plugins of the scheduler: a trait for each extension point of kube-scheduler.
//!
//! A plugin implements [`Scheduler`], which has the type of its state of a cycle, and the traits
//! of its points, and registers by [`plugin!`](crate::plugin!), where there is an example. The
//! traits do what the interfaces of the same names in `k8s.io/kube-scheduler/framework` do.
//!
//! A result must depend only on the arguments and on the state: a plugin runs in several
//! instances, and the host takes the result for one Node for another that is equal in all fields
//! that the plugin reads.

mod event;
#[doc(hidden)]
pub mod export;
mod group;
mod handle;
#[allow(missing_docs)]
pub mod messages;
mod node;
mod status;

use alloc::string::String;
use alloc::vec::Vec;

pub use self::event::{action, ClusterEvent, EventObject, Hint, OtherObject, PodName, PreHint, Resource};
pub use self::group::{try_pod_group, Nomination, Placement, PodGroup};
pub use self::handle::{
    activate, allow_waiting_pod, apply_annotations, apply_status, await_object, event, get_object, get_waiting_pod, list_objects, reject_waiting_pod, snapshot_node, snapshot_node_names, waiting_pods,
};
pub use self::node::{count_pods, list_pods, NodeInfo, Nodes};
pub use self::status::{Code, Result, Status};

use crate::api::core::Pod;
use crate::value::Duration;
use crate::Call;

/// The least score that a node may have after normalisation.
pub const MIN_NODE_SCORE: i64 = 0;
/// The highest score that a node may have after normalisation.
pub const MAX_NODE_SCORE: i64 = 100;

/// A plugin of the scheduler.
pub trait Scheduler: 'static {
    /// What the plugin remembers in the scheduling cycle of a Pod: Filter and Score read what
    /// PreFilter wrote. It is the default when a cycle and PreFilter begin. The host does not see
    /// it.
    ///
    /// Only later calls on the same instance see what Filter and Score write.
    ///
    /// An instance that has not seen a cycle repeats PreFilter, AddPod, RemovePod, PreScore and
    /// Reserve: look-ups, waiting Pods and nodes are as they were the first time, and events and
    /// rejections happen once. Permit, PreBind, Bind, PostBind and Unreserve run on an instance
    /// that has the state. If the guest has trapped meanwhile, and PreFilter or PreScore asked
    /// about nodes, the call fails without reaching the guest, and the Pod is tried again.
    type State: Default + 'static;
}

/// Keeps Pods out of the queue until a condition holds.
pub trait PreEnqueue {
    /// Lets a Pod into the queue, or says why not.
    fn pre_enqueue(&self, pod: Pod<'_>) -> Result;
}

/// Orders the queue.
pub trait QueueSort {
    /// Reports whether `a` is to be scheduled before `b`. It is called some dozen times for each
    /// Pod and must be cheap and transitive. Of two that are equal the one that came first is
    /// first. If it fails, the guest is not called again.
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool;
}

/// A Pod in the queue; of a group of Pods, the first.
#[derive(Clone, Copy, Debug)]
pub struct QueuedPod<'a> {
    /// The Pod.
    pub pod: Pod<'a>,
    /// When it was last queued, in nanoseconds since 1970.
    pub timestamp: i64,
    /// When it was first queued to be tried, in nanoseconds since 1970: it stays the same however
    /// often the Pod is refused. 0 if it was not yet. For a group it is that of the group.
    pub initial_attempt_timestamp: i64,
    /// How many times it was tried.
    pub attempts: i64,
}

/// Names the events that may make a Pod schedulable that the plugin has refused.
pub trait Enqueue: Sized {
    /// Returns the events, the same ones each time.
    fn events(&self) -> core::result::Result<Vec<ClusterEvent<Self>>, String>;
}

/// Examines a Pod before its nodes are filtered.
pub trait PreFilter: Scheduler {
    /// Computes what Filter needs into `state`, and returns the names of the only nodes to look
    /// at further, or None for all of `nodes`. With [`Status::skip`] Filter is not called in the
    /// cycle. It may run more than once in a cycle and must depend on nothing but its arguments
    /// and the snapshot.
    fn pre_filter(&self, state: &mut Self::State, pod: Pod<'_>, nodes: Nodes<'_>) -> Result<Option<Vec<String>>>;
}

/// Updates the state while the scheduler simulates that a Pod is added to a node or removed.
pub trait PreFilterExtensions: PreFilter {
    /// `added` runs on the node, too.
    fn add_pod(&self, state: &mut Self::State, pod: Pod<'_>, added: Pod<'_>, node: NodeInfo<'_>) -> Result;
    /// `removed` does not run on the node any more.
    fn remove_pod(&self, state: &mut Self::State, pod: Pod<'_>, removed: Pod<'_>, node: NodeInfo<'_>) -> Result;
}

/// Saves the repetition of PreFilter where the scheduler clones a cycle. Registering it is
/// enough.
pub trait CloneCycle: Scheduler {
    /// Returns a copy of the state. A change of one must not be visible in the other.
    fn clone_state(state: &Self::State) -> Self::State;
}

impl<P: Scheduler> CloneCycle for P
where
    P::State: Clone,
{
    fn clone_state(state: &Self::State) -> Self::State {
        state.clone()
    }
}

/// Decides whether a Pod can run on a node.
pub trait Filter: Scheduler {
    /// Returns Ok if it can.
    fn filter(&self, state: &mut Self::State, pod: Pod<'_>, node: NodeInfo<'_>) -> Result;
}

/// Tries to make room for a Pod that fits on no node.
pub trait PostFilter: Scheduler {
    /// Returns Ok if the Pod can be scheduled now, and [`Status::unschedulable`] otherwise.
    fn post_filter(&self, state: &mut Self::State, pod: Pod<'_>, statuses: messages::NodeStatuses<'_>) -> Result<Nominated>;
}

/// What becomes of the nomination of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nominated {
    /// It stays.
    Unchanged,
    /// The Pod has none any more.
    None,
    /// The Pod will fit on the node.
    Node(String),
}

/// Computes once what Score needs for each node.
pub trait PreScore: Scheduler {
    /// `nodes` are those that passed Filter. With [`Status::skip`] Score is not called in the
    /// cycle.
    fn pre_score(&self, state: &mut Self::State, pod: Pod<'_>, nodes: Nodes<'_>) -> Result;
}

/// Ranks the nodes that passed Filter.
pub trait Score: Scheduler {
    /// Returns the score of a node: 0 to 100, unless NormalizeScore brings it there. A profile
    /// may have the plugin at score only: then it is called without PreScore.
    fn score(&self, state: &mut Self::State, pod: Pod<'_>, node: NodeInfo<'_>) -> Result<i64>;
}

/// Changes scores whose meaning is relative to one another.
pub trait NormalizeScore: Score {
    /// Changes the scores in place. `names` has the names of the nodes, in the same order.
    fn normalize_score(&self, state: &mut Self::State, pod: Pod<'_>, scores: &mut [i64], names: Names<'_>) -> Result;
}

/// Names that are fetched when they are first read.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a>(Call<'a>);

impl<'a> Names<'a> {
    /// Returns the names, of which all are fetched.
    pub fn get(self) -> Vec<&'a str> {
        handle::names(self.0)
    }
}

/// Reserves resources of a node for a Pod.
pub trait Reserve: Scheduler {
    /// Reserves them. It may run more than once, as PreFilter may.
    fn reserve(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str) -> Result;
    /// Undoes that, and may be called without it.
    fn unreserve(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str);
}

/// Delays the binding of Pods.
pub trait Permit: Scheduler {
    /// Permits the binding, or says how long the Pod waits for
    /// [`allow_waiting_pod`], or why it is refused.
    fn permit(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str) -> Result<Permission>;
}

/// The answer of [`Permit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The Pod is bound.
    Allow,
    /// The Pod waits, at most so long.
    Wait(Duration),
}

/// Prepares a node for a Pod.
pub trait PreBind: Scheduler {
    /// Returns [`Status::skip`] for a Pod that needs no preparation, and otherwise whether
    /// `pre_bind` may run beside that of other plugins.
    fn pre_bind_pre_flight(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str) -> Result<bool>;
    /// Prepares the node.
    fn pre_bind(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str) -> Result;
}

/// Binds Pods itself.
pub trait Bind: Scheduler {
    /// Binds the Pod, or returns [`Status::skip`] to leave it to others.
    fn bind(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str) -> Result;
}

/// Acts after a Pod was bound.
pub trait PostBind: Scheduler {
    /// The Pod runs on the node.
    fn post_bind(&self, state: &mut Self::State, pod: Pod<'_>, node_name: &str);
}

/// Names the parts of a Pod that the plugin reads, so that results of one Pod count for others
/// with the same signature.
pub trait Sign {
    /// Returns the fragments: names of fields, such as `v1.Pod.Spec.NodeName`, with values in
    /// JSON.
    fn sign_pod(&self, pod: Pod<'_>) -> Result<Vec<(String, String)>>;
}

/// Chooses the Pods that may be evicted for a Pod that fits on no node. The scheduler evicts as few of
/// them as it can. It needs the grant "preempt" or "preempt-any", and takes the place of
/// [`PostFilter`].
pub trait PotentialVictims: Scheduler {
    /// Returns Pods of [`NodeInfo::pods`]. The state is that of a copy of the cycle.
    fn potential_victims<'a>(&self, state: &mut Self::State, pod: Pod<'a>, node: NodeInfo<'a>) -> Result<Vec<Pod<'a>>>;
}

/// Tries to make room for a group of Pods that does not fit.
pub trait PodGroupPostFilter: Scheduler {
    /// Returns the nodes that it nominates.
    fn pod_group_post_filter(&self, state: &mut Self::State, group: PodGroup<'_>) -> Result<Vec<Nomination>>;
}

/// Proposes sets of nodes to place a group on.
pub trait GeneratePlacements: Scheduler {
    /// Returns sets of nodes of `parent`, which has names.
    fn generate_placements(&self, state: &mut Self::State, group: PodGroup<'_>, parent: &[&str]) -> Result<Vec<Placement>>;
}

/// Ranks placements.
pub trait ScorePlacement: Scheduler {
    /// Returns the score of a placement.
    fn score_placement(&self, state: &mut Self::State, group: PodGroup<'_>, placement: messages::Placement<'_>) -> Result<i64>;
}

/// Changes scores of placements whose meaning is relative to one another.
pub trait NormalizePlacementScore: ScorePlacement {
    /// Changes the scores in place. `names` has the names of the placements, in the same order.
    fn normalize_placement_score(&self, state: &mut Self::State, group: PodGroup<'_>, scores: &mut [i64], names: Names<'_>) -> Result;
}
