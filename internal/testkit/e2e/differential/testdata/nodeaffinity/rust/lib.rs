//! The nodeaffinity guest in Rust is the scheduler's plugin NodeAffinity.

use std::collections::BTreeSet;

use kubewasm::api::core::{NodeAffinity as Affinity, NodeSelectorTerm, Pod};
use kubewasm::sched::{Filter, Names, NodeInfo, Nodes, NormalizeScore, PreFilter, PreScore, Result, Scheduler, Score, Status, MAX_NODE_SCORE};
use kubewasm::select::{PreferredNodeAffinity, RequiredNodeAffinity};

kubewasm::config! {
    struct NodeAffinity;
}

/// What was read of the Pod.
#[derive(Clone, Default)]
struct Read {
    required: Option<RequiredNodeAffinity>,
    preferred: PreferredNodeAffinity,
}

impl Scheduler for NodeAffinity {
    type State = Read;
}

fn affinity(pod: Pod<'_>) -> Affinity<'_> {
    pod.spec().affinity().and_then(|a| a.node_affinity()).unwrap_or_default()
}

/// Returns the names of nodes that all fields of a term ask for, None if no field does.
fn names_of<'a>(term: NodeSelectorTerm<'a>) -> Option<BTreeSet<&'a str>> {
    let mut names: Option<BTreeSet<&str>> = None;
    for r in term.match_fields().iter().filter(|r| r.key() == "metadata.name" && r.operator() == "In") {
        let these = r.values().iter();
        names = Some(match names {
            None => these.collect(),
            Some(names) => these.filter(|name| names.contains(name)).collect(),
        });
    }
    names
}

impl PreFilter for NodeAffinity {
    /// Narrows the nodes down if every term names some.
    fn pre_filter(&self, _: &mut Read, pod: Pod<'_>, _: Nodes<'_>) -> Result<Option<Vec<String>>> {
        let terms = match affinity(pod).required_during_scheduling_ignored_during_execution() {
            Some(required) => required.node_selector_terms(),
            None if pod.spec().node_selector().is_empty() => return Err(Status::skip()),
            None => return Ok(None),
        };
        if terms.is_empty() {
            return Ok(None);
        }
        let mut names = BTreeSet::new();
        for term in terms {
            match names_of(term) {
                Some(of) => names.extend(of),
                None => return Ok(None),
            }
        }
        if names.is_empty() {
            return Err(Status::unresolvable("pod affinity terms conflict"));
        }
        Ok(Some(names.into_iter().map(String::from).collect()))
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, read: &mut Read, pod: Pod<'_>, node: NodeInfo<'_>) -> Result {
        let required = read.required.get_or_insert_with(|| RequiredNodeAffinity::of(pod));
        // The scheduler passes over terms that make no sense.
        match required.matches(node.node()) {
            Ok(true) => Ok(()),
            _ => Err(Status::unresolvable("node(s) didn't match Pod's node affinity/selector")),
        }
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(&self, read: &mut Read, pod: Pod<'_>, _: Nodes<'_>) -> Result {
        let terms = affinity(pod).preferred_during_scheduling_ignored_during_execution();
        if terms.is_empty() {
            return Err(Status::skip());
        }
        read.preferred = PreferredNodeAffinity::parse(terms)?;
        Ok(())
    }
}

impl Score for NodeAffinity {
    fn score(&self, read: &mut Read, _: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        Ok(read.preferred.score(node.node()))
    }
}

impl NormalizeScore for NodeAffinity {
    fn normalize_score(&self, _: &mut Read, _: Pod<'_>, scores: &mut [i64], _: Names<'_>) -> Result {
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores.iter_mut().filter(|_| most != 0) {
            *score = *score * MAX_NODE_SCORE / most;
        }
        Ok(())
    }
}

kubewasm::plugin! {
    NodeAffinity: PreFilter, CloneCycle, Filter, PreScore, Score, NormalizeScore;
}
