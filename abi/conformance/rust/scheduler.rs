//! The scheduler guest of the conformance suite, by the SDK.

use kubewasm::api::core::Pod;
use kubewasm::plugin::Configure;
use kubewasm::sched::{Filter, Names, NodeInfo, Nodes, NormalizeScore, PreFilter, Result, Scheduler, Score, Status};

kubewasm::config! {
    struct Guest {
        label: String,
    }
}

impl Configure for Guest {
    fn configure(&mut self) -> core::result::Result<(), String> {
        if self.label.is_empty() || self.label.len() > 32 {
            return Err("want {\"label\":\"…\"}".into());
        }
        kubewasm::log::info("configured", &[("label", &self.label)]);
        Ok(())
    }
}

impl Scheduler for Guest {
    /// The value of the label that the Pod wants.
    type State = Option<String>;
}

fn wanted(state: &Option<String>) -> &str {
    state.as_deref().expect("the cycle has no PreFilter")
}

impl PreFilter for Guest {
    fn pre_filter(&self, state: &mut Option<String>, pod: Pod<'_>, _: Nodes<'_>) -> Result<Option<Vec<String>>> {
        let labels = pod.metadata().labels();
        if labels.contains_key("skip") {
            return Err(Status::skip());
        }
        match labels.get(&self.label) {
            Some(want) => *state = Some(want.into()),
            None => return Err(Status::unresolvable(format!("the Pod has no {}", self.label))),
        }
        Ok(labels.get("only").map(|only| vec![only.into()]))
    }
}

impl Filter for Guest {
    fn filter(&self, state: &mut Option<String>, _: Pod<'_>, node: NodeInfo<'_>) -> Result {
        let metadata = node.node().metadata();
        let labels = metadata.labels();
        if labels.contains_key("trap") {
            panic!("trap");
        }
        if let Some(why) = metadata.annotations().get("closed") {
            return Err(Status::unschedulable(format!("closed: {}", why)));
        }
        if let Some(taint) = node.node().spec().taints().last() {
            return Err(Status::unresolvable(format!("tainted: {}", taint.key())));
        }
        match (wanted(state), labels.get(&self.label).unwrap_or_default()) {
            (want, got) if want == got => Ok(()),
            (want, got) => Err(Status::unschedulable(format!("want {}, got {}", want, got))),
        }
    }
}

impl Score for Guest {
    fn score(&self, _: &mut Option<String>, _: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        Ok(10 * node.node().metadata().labels().len() as i64)
    }
}

impl NormalizeScore for Guest {
    fn normalize_score(&self, state: &mut Option<String>, _: Pod<'_>, scores: &mut [i64], names: Names<'_>) -> Result {
        for (score, name) in scores.iter_mut().zip(names.get()) {
            *score = if name == wanted(state) { 100 } else { 100 - *score };
        }
        Ok(())
    }
}

kubewasm::plugin! {
    Guest: Configure, PreFilter, Filter, Score, NormalizeScore;
    name = "conformance-scheduler";
}
