//! The named guest of the conformance suite, by the SDK.

use kubewasm::api::core::Pod;
use kubewasm::api::metrics::Sample;
use kubewasm::sched::{action, activate, get_object, ClusterEvent, Enqueue, EventObject, NodeInfo, Permission, Permit, PodName, Resource, Result, Scheduler, Score};

kubewasm::config! {
    struct Guest;
}

impl Enqueue for Guest {
    fn events(&self) -> core::result::Result<Vec<ClusterEvent<Self>>, String> {
        Ok(vec![
            ClusterEvent::new(Resource::Node, action::ADD),
            ClusterEvent::of("example.com/v1/things", action::ADD | action::UPDATE).with_hint(changed),
        ])
    }
}

fn changed<'a>(_: &Guest, pod: Pod<'a>, _: EventObject<'a>, new: EventObject<'a>) -> core::result::Result<bool, String> {
    let want = format!("\"for\":\"{}\"", pod.metadata().name());
    Ok(core::str::from_utf8(new.bytes().unwrap_or_default()).unwrap_or_default().contains(&want))
}

impl Scheduler for Guest {
    type State = ();
}

impl Permit for Guest {
    fn permit(&self, _: &mut (), _: Pod<'_>, _: &str) -> Result<Permission> {
        let pod = |namespace: &str, name: &str| PodName { namespace: namespace.into(), name: name.into() };
        activate(&[pod("shop", "a"), pod("bank", "b")]);
        Ok(Permission::Allow)
    }
}

impl Score for Guest {
    fn score(&self, _: &mut (), pod: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        let found = get_object(pod, "metrics.kubewasm.dev/v1/load", "", node.node().metadata().name());
        Ok(found.map_or(50, |json| (100.0 * Sample::from_json(pod, json).value().unwrap_or_default()) as i64))
    }
}

kubewasm::plugin! {
    Guest: Enqueue, Permit, Score;
    name = "conformance-named";
}
