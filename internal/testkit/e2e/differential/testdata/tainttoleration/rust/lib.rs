//! The tainttoleration guest in Rust is the scheduler's plugin TaintToleration.

use kubewasm::api::core::Pod;
use kubewasm::sched::{Filter, Names, NodeInfo, NormalizeScore, Result, Scheduler, Score, Status, MAX_NODE_SCORE};
use kubewasm::select::find_untolerated;

kubewasm::config! {
    struct TaintToleration;
}

impl Scheduler for TaintToleration {
    type State = ();
}

impl Filter for TaintToleration {
    fn filter(&self, _: &mut (), pod: Pod<'_>, node: NodeInfo<'_>) -> Result {
        match find_untolerated(node.node().spec().taints(), pod.spec().tolerations()) {
            Some(_) => Err(Status::unresolvable("node(s) had untolerated taint(s)")),
            None => Ok(()),
        }
    }
}

impl Score for TaintToleration {
    /// Counts the taints that the Pod would rather not have.
    fn score(&self, _: &mut (), pod: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        let soft = |effect: &str| effect == "PreferNoSchedule";
        let tolerations = pod.spec().tolerations();
        let taints = node.node().spec().taints().iter().filter(|taint| soft(taint.effect()));
        let count = taints.filter(|taint| !tolerations.iter().any(|t| (t.effect().is_empty() || soft(t.effect())) && t.tolerates(*taint))).count();
        Ok(count as i64)
    }
}

impl NormalizeScore for TaintToleration {
    /// Turns the counts round: none is best.
    fn normalize_score(&self, _: &mut (), _: Pod<'_>, scores: &mut [i64], _: Names<'_>) -> Result {
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            *score = if most == 0 { MAX_NODE_SCORE } else { MAX_NODE_SCORE - *score * MAX_NODE_SCORE / most };
        }
        Ok(())
    }
}

kubewasm::plugin! {
    TaintToleration: Filter, Score, NormalizeScore;
}
