use alloc::string::String;
use alloc::vec::Vec;

use super::messages::{self, Assignment};
use super::{handle, Code, Result, Status};
use crate::api::core::Pod;
use crate::{host, memory, Call};

/// A group of Pods that are scheduled together.
#[derive(Clone, Copy, Debug)]
pub struct PodGroup<'a>(Call<'a>, messages::PodGroup<'a>);

impl<'a> From<PodGroup<'a>> for Call<'a> {
    fn from(group: PodGroup<'a>) -> Self {
        group.0
    }
}

impl<'a> PodGroup<'a> {
    pub(crate) fn of_call(call: Call<'a>) -> Self {
        PodGroup(call, messages::PodGroup::from_proto(call, host::ask(call, host::pod_group)))
    }

    /// Returns "podgroup" or "compositepodgroup".
    pub fn group_type(self) -> &'a str {
        self.1.r#type()
    }

    /// Returns the namespace of the group.
    pub fn namespace(self) -> &'a str {
        self.1.namespace()
    }

    /// Returns the name of the group.
    pub fn name(self) -> &'a str {
        self.1.name()
    }

    /// Returns the number of Pods of the group that are to be scheduled.
    pub fn len(self) -> usize {
        self.1.unscheduled_pods().max(0) as usize
    }

    /// Reports whether no Pod is to be scheduled.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the Pods of the group that are to be scheduled.
    pub fn pods(self) -> impl Iterator<Item = Pod<'a>> + 'a {
        let call = self.0;
        (0..self.len() as u32).map(move |i| Pod::from_proto(call, memory::fill(call, |buf, limit| unsafe { host::pod_group_pod(i, buf, limit) })))
    }
}

/// The node that a Pod will fit on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Nomination {
    pub namespace: String,
    pub name: String,
    pub node_name: String,
}

impl From<Assignment<'_>> for Nomination {
    fn from(a: Assignment<'_>) -> Self {
        Nomination { namespace: a.namespace().into(), name: a.name().into(), node_name: a.node_name().into() }
    }
}

/// A set of nodes to place a group on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Placement {
    pub name: String,
    pub node_names: Vec<String>,
}

/// Simulates the scheduling of the group of the call, as if the running Pods with the UIDs were
/// gone, and returns the node of each of its Pods if it fits. It runs all plugins of the
/// scheduler, this one on another instance, so the plugin needs two of them. Only
/// [`PodGroupPostFilter`](super::PodGroupPostFilter) may call it.
pub fn try_pod_group(without: &[&str]) -> Result<Vec<Nomination>> {
    let question = handle::join(without.iter().copied());
    Call::with(|call| {
        let trial = messages::Trial::from_proto(call, host::ask_about(call, host::try_pod_group, &question));
        match Code::of(trial.code()) {
            None => Ok(trial.assignments().iter().map(Nomination::from).collect()),
            Some(code) => Err(Status::new(code, trial.reason())),
        }
    })
}
