//! The queue guest of the conformance suite, by the SDK.

use kubewasm::api::core::Pod;
use kubewasm::sched::{action, ClusterEvent, Enqueue, EventObject, PodName, PreEnqueue, QueueSort, QueuedPod, Resource, Result, Sign, Status};

kubewasm::config! {
    struct Guest;
}

impl PreEnqueue for Guest {
    fn pre_enqueue(&self, pod: Pod<'_>) -> Result {
        match pod.metadata().labels().get("hold") {
            None => Ok(()),
            Some("twice") => Err(Status::unresolvable("first").and("second")),
            Some(hold) => Err(Status::unresolvable(format!("held: {}", hold))),
        }
    }
}

impl QueueSort for Guest {
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool {
        let order = |p: QueuedPod<'_>| p.pod.metadata().labels().get("order").unwrap_or_default().to_owned();
        let (x, y) = (order(a), order(b));
        if x != y {
            return x < y;
        }
        let place = |p: QueuedPod<'_>| (p.attempts, p.initial_attempt_timestamp, -p.timestamp);
        place(a) < place(b)
    }
}

impl Enqueue for Guest {
    fn events(&self) -> core::result::Result<Vec<ClusterEvent<Self>>, String> {
        Ok(vec![
            ClusterEvent::new(Resource::Node, action::ADD | action::UPDATE_NODE_LABEL).with_hint(node_came),
            ClusterEvent::new(Resource::AssignedPod, action::DELETE).with_hint(pod_left),
            ClusterEvent::new(Resource::PersistentVolumeClaim, action::ADD),
            ClusterEvent::new(Resource::Pod, action::ADD).with_pre_hint(pod_came),
        ])
    }
}

fn puzzled(pod: Pod<'_>) -> core::result::Result<(), String> {
    if pod.metadata().labels().contains_key("puzzled") {
        return Err("no hint".into());
    }
    Ok(())
}

fn node_came<'a>(_: &Guest, pod: Pod<'a>, old: EventObject<'a>, new: EventObject<'a>) -> core::result::Result<bool, String> {
    puzzled(pod)?;
    let zone = |o: EventObject<'a>| o.node().metadata().labels().get("zone").unwrap_or_default();
    let want = pod.metadata().labels().get("zone").unwrap_or_default();
    Ok(zone(new) == want && (!old.is_present() || zone(old) != want))
}

fn pod_left<'a>(_: &Guest, pod: Pod<'a>, old: EventObject<'a>, _: EventObject<'a>) -> core::result::Result<bool, String> {
    puzzled(pod)?;
    Ok(old.pod().metadata().name() == pod.metadata().labels().get("after").unwrap_or_default())
}

fn pod_came<'a>(_: &Guest, _: EventObject<'a>, new: EventObject<'a>) -> core::result::Result<Option<Vec<PodName>>, String> {
    puzzled(new.pod())?;
    let labels = new.pod().metadata().labels();
    if labels.contains_key("everyone") {
        return Ok(None);
    }
    let pod = |name: &str| PodName { namespace: "default".into(), name: name.into() };
    Ok(Some(labels.get("before").map_or(Vec::new(), |name| vec![pod(name), pod("always")])))
}

impl Sign for Guest {
    fn sign_pod(&self, pod: Pod<'_>) -> Result<Vec<(String, String)>> {
        let labels = pod.metadata().labels();
        if labels.contains_key("unlike") {
            return Err(Status::unschedulable("unlike any other"));
        }
        let zone = labels.get("zone").unwrap_or_default();
        Ok(vec![("zone".into(), format!("\"{}\"", zone)), ("labels".into(), labels.len().to_string())])
    }
}

kubewasm::plugin! {
    Guest: PreEnqueue, QueueSort, Enqueue, Sign;
    name = "conformance-queue";
}
