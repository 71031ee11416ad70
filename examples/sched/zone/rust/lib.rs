//! The zone guest in Rust: what ../main.go is in Go, held against the same ../cases.yaml.

use kubewasm::api::core::Pod;
use kubewasm::sched::{Filter, Names, NodeInfo, Nodes, NormalizeScore, PreFilter, Result, Scheduler, Score, Status, MAX_NODE_SCORE};
use kubewasm::select::find_untolerated;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const ZONES_ANNOTATION: &str = "kubewasm.dev/zones";

kubewasm::config! {
    struct Zone {
        /// For Pods without the annotation; none means every zone.
        default_zones: Vec<String>,
    }
}

/// What PreFilter finds out about a Pod, for all Nodes.
#[derive(Clone, Default)]
struct Want {
    zones: Vec<String>,
    images: Vec<String>,
}

impl Scheduler for Zone {
    type State = Want;
}

impl PreFilter for Zone {
    fn pre_filter(&self, want: &mut Want, pod: Pod<'_>, _: Nodes<'_>) -> Result<Option<Vec<String>>> {
        want.zones = self.default_zones.clone();
        if let Some(list) = pod.metadata().annotations().get(ZONES_ANNOTATION) {
            want.zones = list.split(',').map(|name| name.trim().to_owned()).collect();
            if want.zones.iter().any(|name| name.is_empty()) {
                return Err(Status::unresolvable(format!("annotation {ZONES_ANNOTATION} has an empty zone in \"{list}\"")));
            }
        }
        want.images = pod.spec().containers().iter().map(|c| c.image().to_owned()).collect();
        Ok(None)
    }
}

impl Filter for Zone {
    fn filter(&self, want: &mut Want, pod: Pod<'_>, node: NodeInfo<'_>) -> Result {
        let node = node.node();
        let zone = node.metadata().labels().get(ZONE_LABEL).unwrap_or_default();
        if !want.zones.is_empty() && !want.zones.iter().any(|z| z == zone) {
            return Err(Status::unschedulable(format!("node is in zone \"{zone}\", the Pod wants {}", want.zones.join(" or "))));
        }
        if node.spec().unschedulable() {
            return Err(Status::unresolvable("node is cordoned"));
        }
        if let Some(taint) = find_untolerated(node.spec().taints(), pod.spec().tolerations()) {
            return Err(Status::unresolvable(format!("node has the taint {taint}, which the Pod does not tolerate")));
        }
        Ok(())
    }
}

impl Score for Zone {
    /// The score is how many MiB of the Pod's images the node has already.
    fn score(&self, want: &mut Want, _: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        let wanted = |name: &str| want.images.iter().any(|image| image == name);
        let images = node.node().status().images();
        let size: i64 = images.iter().filter(|image| image.names().iter().any(wanted)).map(|image| image.size_bytes()).sum();
        Ok(size >> 20)
    }
}

impl NormalizeScore for Zone {
    /// The best node gets the highest score, and the others their share of it.
    fn normalize_score(&self, _: &mut Want, _: Pod<'_>, scores: &mut [i64], _: Names<'_>) -> Result {
        let best = scores.iter().copied().max().unwrap_or(0);
        for score in scores.iter_mut().filter(|_| best != 0) {
            *score = *score * MAX_NODE_SCORE / best;
        }
        Ok(())
    }
}

kubewasm::plugin! {
    Zone: PreFilter, CloneCycle, Filter, Score, NormalizeScore;
    reads = [
        "node.metadata.labels[topology.kubernetes.io/zone]", "node.spec.unschedulable", "node.spec.taints", "node.status.images",
        "pod.metadata.annotations[kubewasm.dev/zones]", "pod.spec.containers.image", "pod.spec.tolerations",
        "-pod.metadata.name", "-pod.metadata.uid",
    ];
}
