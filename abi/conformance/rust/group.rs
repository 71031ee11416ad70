//! The group guest of the conformance suite, by the SDK.

use kubewasm::api::core::Pod;
use kubewasm::sched::{
    self, messages, GeneratePlacements, Names, NodeInfo, Nomination, NormalizePlacementScore, Placement, PodGroup, PodGroupPostFilter,
    PotentialVictims, Result, Scheduler, ScorePlacement, Status,
};

kubewasm::config! {
    struct Guest;
}

impl Scheduler for Guest {
    type State = ();
}

impl PodGroupPostFilter for Guest {
    fn pod_group_post_filter(&self, _: &mut (), group: PodGroup<'_>) -> Result<Vec<Nomination>> {
        let (mut evicted, mut nominations) = (Vec::new(), Vec::new());
        for pod in group.pods() {
            let m = pod.metadata();
            evicted.extend(m.labels().get("evict"));
            if let Some(node) = m.labels().get("node") {
                nominations.push(Nomination { namespace: m.namespace().into(), name: m.name().into(), node_name: node.into() });
            }
        }
        if !evicted.is_empty() {
            return sched::try_pod_group(&evicted)
                .map_err(|status| Status::unschedulable(format!("trial: {} {}", status.code() as i32, status.reason())));
        }
        if nominations.is_empty() {
            let (kind, namespace, name) = (group.group_type(), group.namespace(), group.name());
            return Err(Status::unschedulable(format!("{} {}/{} of {} Pods is stuck", kind, namespace, name, group.len())));
        }
        Ok(nominations)
    }
}

impl GeneratePlacements for Guest {
    fn generate_placements(&self, _: &mut (), group: PodGroup<'_>, parent: &[&str]) -> Result<Vec<Placement>> {
        let mut racks: Vec<Placement> = Vec::new();
        for name in parent {
            let rack = match sched::snapshot_node(group, name).and_then(|node| node.node().metadata().labels().get("rack")) {
                Some(rack) => rack,
                None => continue,
            };
            match racks.iter_mut().find(|p| p.name == rack) {
                Some(p) => p.node_names.push((*name).into()),
                None => racks.push(Placement { name: rack.into(), node_names: vec![(*name).into()] }),
            }
        }
        if racks.is_empty() {
            return Err(Status::unschedulable("no racks"));
        }
        Ok(racks)
    }
}

impl ScorePlacement for Guest {
    fn score_placement(&self, _: &mut (), _: PodGroup<'_>, placement: messages::Placement<'_>) -> Result<i64> {
        if placement.name() == "odd" {
            return Err(Status::error("odd"));
        }
        let names = placement.node_names();
        let assigned = placement.assignments().iter().filter(|a| names.contains(a.node_name())).count();
        let score = 10 * assigned as i64 - names.len() as i64;
        Ok(if placement.name() == "huge" { score << 40 } else { score })
    }
}

impl NormalizePlacementScore for Guest {
    fn normalize_placement_score(&self, _: &mut (), _: PodGroup<'_>, scores: &mut [i64], _: Names<'_>) -> Result {
        let highest = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            *score = (*score + 100 - highest).max(0);
        }
        Ok(())
    }
}

impl PotentialVictims for Guest {
    fn potential_victims<'a>(&self, _: &mut (), pod: Pod<'a>, node: NodeInfo<'a>) -> Result<Vec<Pod<'a>>> {
        if pod.metadata().labels().get("nominated").is_some() {
            let names: Vec<&str> = node.nominated_pods().map(|p| p.metadata().name()).collect();
            return Err(Status::unschedulable(format!("nominated: {}", names.join(","))));
        }
        Ok(node.pods().filter(|p| p.metadata().labels().get("keep").is_none()).collect())
    }
}

kubewasm::plugin! {
    Guest: PotentialVictims, PodGroupPostFilter, GeneratePlacements, ScorePlacement, NormalizePlacementScore;
    name = "conformance-group";
}
