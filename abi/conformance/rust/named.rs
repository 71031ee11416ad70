//! The named guest of the conformance suite, by the SDK.

use kubewasm::api::core::Pod;
use kubewasm::api::metrics::Sample;
use kubewasm::sched::{action, activate, apply_annotations, apply_status, await_object, get_object, ClusterEvent, Code, Enqueue, EventObject, Filter, NodeInfo, Permission, Permit, PodName, PreBind, Resource, Result, Scheduler, Score, Status};

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

impl Filter for Guest {
    fn filter(&self, _: &mut (), pod: Pod<'_>, _: NodeInfo<'_>) -> Result {
        let mut reason = String::from(pod.qos_class());
        for name in ["cpu", "memory", "hugepages-2Mi", "example.com/gpu"] {
            reason += &format!(" {}", pod.requests().get(name).map_or(0, |q| q.milli_value()));
        }
        Err(Status::unschedulable(reason))
    }
}

impl Score for Guest {
    fn score(&self, _: &mut (), pod: Pod<'_>, node: NodeInfo<'_>) -> Result<i64> {
        let found = get_object(pod, "metrics.kubewasm.dev/v1/load", "", node.node().metadata().name());
        Ok(found.map_or(50, |json| (100.0 * Sample::from_json(pod, json).value().unwrap_or_default()) as i64))
    }
}

impl PreBind for Guest {
    fn pre_bind_pre_flight(&self, _: &mut (), _: Pod<'_>, _: &str) -> Result<bool> {
        Ok(false)
    }

    fn pre_bind(&self, _: &mut (), pod: Pod<'_>, _: &str) -> Result {
        const THINGS: &str = "example.com/v1/things";
        let name = pod.metadata().name();
        if get_object(pod, THINGS, "shop", name).is_none() {
            await_object(THINGS, "shop", name, 600_000);
            return Err(Status::new(Code::Wait, format!("no thing {}", name)));
        }
        apply_annotations(THINGS, "shop", name, &[("example.com/a", "\"ä"), ("example.com/by", name)]);
        apply_status(THINGS, "shop", name, "{\"phase\":\"Bound\"}");
        Ok(())
    }
}

kubewasm::plugin! {
    Guest: Enqueue, Filter, Permit, PreBind, Score;
    name = "conformance-named";
}
