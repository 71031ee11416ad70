//! The cycle guest of the conformance suite, by the SDK.

use kubewasm::api::core::{PersistentVolumeClaim, Pod};
use kubewasm::api::meta::LabelSelector;
use kubewasm::sched::messages::NodeStatuses;
use kubewasm::sched::{
    self, count_pods, list_pods, Bind, Code, Filter, NodeInfo, Nodes, Nominated, Permission, Permit, PostBind, PostFilter, PreBind, PreFilter, PreFilterExtensions, PreScore,
    Reserve, Result, Scheduler, Score, Status,
};
use kubewasm::state;
use kubewasm::value::Duration;

kubewasm::config! {
    struct Guest;
}

/// What the guest remembers of a cycle.
#[derive(Clone, Default)]
struct Memory {
    total: i64,
    nodes: usize,
    first: String,
    reserved: Option<String>,
}

impl Memory {
    fn reserved(&self) -> &str {
        self.reserved.as_deref().unwrap_or("nothing")
    }
}

impl Scheduler for Guest {
    type State = Memory;
}

fn label<'a>(pod: Pod<'a>, key: &str) -> &'a str {
    pod.metadata().labels().get(key).unwrap_or_default()
}

/// Counts the Pods of the Pod's app, in its namespace, on a node, but for those that are parked or of
/// two tiers: those that stay, and those that are on their way out.
fn here(node: NodeInfo<'_>, pod: Pod<'_>) -> (u32, u32) {
    let json = format!(
        r#"{{"matchLabels": {{"app": "{0}"}}, "matchExpressions": [
            {{"key": "app", "operator": "Exists"}}, {{"key": "parked", "operator": "DoesNotExist"}},
            {{"key": "tier", "operator": "NotIn", "values": ["out", "old"]}},
            {{"key": "app", "operator": "In", "values": ["any", "{0}"]}}]}}"#,
        label(pod, "app")
    );
    let selector = LabelSelector::from_json(pod, json.as_bytes()).parse().unwrap();
    let count = |terminating| count_pods(&[node], pod.metadata().namespace(), &selector, terminating)[0];
    (count(false), count(true) - count(false))
}

/// Counts the Pods of an app on a node.
fn of_app(node: NodeInfo<'_>, app: &str) -> i64 {
    node.pods().filter(|pod| label(*pod, "app") == app).count() as i64
}

impl PreFilter for Guest {
    fn pre_filter(&self, m: &mut Memory, pod: Pod<'_>, nodes: Nodes<'_>) -> Result<Option<Vec<String>>> {
        m.total = nodes.iter().map(|node| of_app(node, label(pod, "app"))).sum();
        Ok(None)
    }
}

impl PreFilterExtensions for Guest {
    fn add_pod(&self, m: &mut Memory, pod: Pod<'_>, added: Pod<'_>, _: NodeInfo<'_>) -> Result {
        m.total += (label(added, "app") == label(pod, "app")) as i64;
        Ok(())
    }

    fn remove_pod(&self, m: &mut Memory, pod: Pod<'_>, removed: Pod<'_>, _: NodeInfo<'_>) -> Result {
        m.total -= (label(removed, "app") == label(pod, "app")) as i64;
        Ok(())
    }
}

impl Filter for Guest {
    fn filter(&self, m: &mut Memory, pod: Pod<'_>, node: NodeInfo<'_>) -> Result {
        let size = node.images().iter().find(|image| image.name() == "web:1").map_or(0, |image| image.size());
        let (stay, go) = here(node, pod);
        let cpu = |r: Option<sched::messages::Resource<'_>>| r.unwrap_or_default().milli_cpu();
        Err(Status::unschedulable(format!(
            "total={} here={}+{} cpu={}/{} image={}",
            m.total,
            stay,
            go,
            cpu(node.usage().requested()),
            cpu(node.usage().allocatable()),
            size
        )))
    }
}

impl PostFilter for Guest {
    fn post_filter(&self, _: &mut Memory, pod: Pod<'_>, statuses: NodeStatuses<'_>) -> Result<Nominated> {
        if pod.metadata().labels().contains_key("clear") {
            return Ok(Nominated::None);
        }
        match statuses.statuses().iter().find(|s| s.code() == Code::Unschedulable as i32 && s.reason() == "full") {
            Some(status) => Ok(Nominated::Node(status.node_name().into())),
            None => Err(Status::unschedulable(format!("none of {} nodes", sched::snapshot_node_names(pod).len()))),
        }
    }
}

impl PreScore for Guest {
    fn pre_score(&self, m: &mut Memory, _: Pod<'_>, nodes: Nodes<'_>) -> Result {
        let names = nodes.names();
        m.nodes = names.len();
        m.first = names[0].into();
        Ok(())
    }
}

impl Score for Guest {
    fn score(&self, m: &mut Memory, _: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        let score = m.nodes as i64 * if node.node().metadata().name() == m.first { 10 } else { 1 };
        let labels = node.node().metadata().labels();
        Ok(match (labels.contains_key("huge"), labels.contains_key("tiny")) {
            (true, _) => score << 40,
            (_, true) => -score << 40,
            _ => score,
        })
    }
}

/// Writes and reads the state that all instances share.
fn use_state(pod: Pod<'_>, how: &str) -> String {
    if how == "keep" {
        state::keep();
    }
    let mut answers: Vec<String> = [
        state::add("n", 2, 3),
        state::add("n", 2, 3),
        state::add("n", -1, 0),
        state::put("k/1", b"one"),
        state::put("k/2", b"two"),
        state::put_if("k/1", b"three", 0),
        state::get(pod, "k/1").map_or(false, |one| state::put_if("k/1", b"uno", one.version)),
        state::delete("k/2"),
        state::delete("k/2"),
    ]
    .iter()
    .map(|ok| ok.to_string())
    .collect();
    answers.extend(state::list(pod, "k/").map(|e| format!("{}={}", e.key, String::from_utf8_lossy(e.value))));
    let json = format!(r#"{{"matchLabels": {{"app": "{}"}}}}"#, label(pod, "app"));
    let selector = LabelSelector::from_json(pod, json.as_bytes()).parse().unwrap();
    let pods: usize = list_pods(pod, "", &selector, true).map(|other| other.metadata().name().len()).sum();
    let n = state::get(pod, "n").map_or(0, |n| n.number());
    format!("{} {} {}", answers.join(" "), n, pods)
}

impl Reserve for Guest {
    fn reserve(&self, m: &mut Memory, pod: Pod<'_>, node_name: &str) -> Result {
        m.reserved = Some(node_name.into());
        if label(pod, "refuse") == node_name {
            return Err(Status::unschedulable("refused"));
        }
        match pod.metadata().labels().get("state") {
            Some(how) => Err(Status::unschedulable(use_state(pod, how))),
            None => Ok(()),
        }
    }

    fn unreserve(&self, m: &mut Memory, _: Pod<'_>, node_name: &str) {
        sched::event("Warning", "Unreserved", "Binding", &format!("{}, reserved {}", node_name, m.reserved()));
    }
}

impl Permit for Guest {
    fn permit(&self, _: &mut Memory, pod: Pod<'_>, node_name: &str) -> Result<Permission> {
        match label(pod, "permit") {
            "wait" => return Ok(Permission::Wait(Duration::from_millis(1500))),
            "deny" => return Err(Status::unschedulable(format!("denied on {}", node_name))),
            action @ ("allow" | "reject") => {
                let mut waited = false;
                for w in sched::waiting_pods(pod) {
                    match sched::get_waiting_pod(pod, w.uid()) {
                        Some(other) if label(other, "group") == label(pod, "group") => {}
                        _ => continue,
                    }
                    if action == "allow" {
                        waited |= sched::allow_waiting_pod(w.uid());
                    } else {
                        let plugins: Vec<&str> = w.pending_plugins().iter().collect();
                        waited |= sched::reject_waiting_pod(w.uid(), &format!("{} waits for {}", w.name(), plugins.join(",")));
                    }
                }
                if !waited {
                    return Err(Status::unschedulable("nobody waits"));
                }
            }
            "ghost" => {
                let waits = sched::get_waiting_pod(pod, "ghost").is_some();
                if !waits && !sched::allow_waiting_pod("ghost") && !sched::reject_waiting_pod("ghost", "") {
                    return Err(Status::unschedulable("there is no ghost"));
                }
            }
            _ => {}
        }
        Ok(Permission::Allow)
    }
}

impl PreBind for Guest {
    fn pre_bind_pre_flight(&self, _: &mut Memory, pod: Pod<'_>, _: &str) -> Result<bool> {
        let labels = pod.metadata().labels();
        if !labels.contains_key("claim") {
            return Err(Status::skip());
        }
        Ok(labels.contains_key("parallel"))
    }

    fn pre_bind(&self, _: &mut Memory, pod: Pod<'_>, _: &str) -> Result {
        const CLAIMS: &str = "v1/persistentvolumeclaims";
        let (namespace, name) = (pod.metadata().namespace(), label(pod, "claim"));
        let claim = match sched::get_object(pod, CLAIMS, namespace, name) {
            Some(bytes) => PersistentVolumeClaim::from_proto(pod, bytes),
            None => return Err(Status::error(format!("no claim {}/{}", namespace, name))),
        };
        match claim.spec().volume_name() {
            "" => Err(Status::new(Code::Pending, format!("claim {} is not bound", name))),
            volume => {
                let count = |namespace| sched::list_objects(pod, CLAIMS, namespace).count();
                Err(Status::unschedulable(format!("{}, {} claims of {}", volume, count(namespace), count(""))))
            }
        }
    }
}

impl Bind for Guest {
    fn bind(&self, m: &mut Memory, pod: Pod<'_>, node_name: &str) -> Result {
        if label(pod, "bind") != "self" {
            return Err(Status::skip());
        }
        if m.reserved() != node_name {
            return Err(Status::error(format!("{} is not {}", node_name, m.reserved())));
        }
        Ok(())
    }
}

impl PostBind for Guest {
    fn post_bind(&self, _: &mut Memory, _: Pod<'_>, node_name: &str) {
        sched::event("Normal", "Bound", "Binding", &format!("to {}", node_name));
    }
}

kubewasm::plugin! {
    Guest: PreFilter, CloneCycle, PreFilterExtensions, Filter, PostFilter, PreScore, Score, Reserve, Permit, PreBind, Bind, PostBind;
    name = "conformance-cycle";
}
