//! Reads of a Pod whatever a plugin could read, by the accessors, and returns how much that was.

use kubewasm::api::core::{Container, Node, NodeSelectorTerm, Pod, PodSpec, Volume};
use kubewasm::api::meta::ObjectMeta;
use kubewasm::select::{find_untolerated, PreferredNodeAffinity, RequiredNodeAffinity};
use kubewasm::view::{Map, StringMap};
use kubewasm::Call;

/// Reads a Pod in protobuf, and the same bytes as a Node.
pub fn proto(bytes: &[u8]) -> usize {
    Call::with(|call| pod(Pod::from_proto(call, bytes)) + node(Node::from_proto(call, bytes), Pod::from_proto(call, bytes)))
}

/// Reads a Pod in JSON, and whether it is valid.
pub fn json(text: &[u8]) -> usize {
    let read = Call::with(|call| pod(Pod::from_json(call, text)) + node(Node::from_json(call, text), Pod::from_json(call, text)));
    kubewasm::json::is_valid(text) as usize + read
}

fn strings(map: StringMap<'_>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len() + map.get(key).map_or(0, str::len)).sum::<usize>() + map.len()
}

fn metadata(m: ObjectMeta<'_>) -> usize {
    let owners = m.owner_references().iter().map(|o| o.name().len() + o.controller().is_some() as usize);
    let time = m.creation_timestamp().map_or(0, |t| t.to_string().len());
    m.name().len() + m.uid().len() + strings(m.labels()) + strings(m.annotations()) + owners.sum::<usize>() + time + m.finalizers().len()
}

fn amounts(map: Map<'_, kubewasm::value::Quantity>) -> usize {
    map.iter().map(|(name, amount)| name.len() + amount.to_string().len() + (amount.milli_value() != 0) as usize).sum()
}

fn container(c: Container<'_>) -> usize {
    let ports = c.ports().iter().map(|p| p.host_port() as usize & 1 + p.protocol().len());
    let env = c.env().iter().map(|e| e.name().len() + e.value().len() + e.value_from().is_some() as usize);
    let probe = c.liveness_probe().map_or(0, |p| p.period_seconds() as usize & 1);
    c.image().len() + c.command().iter().map(str::len).sum::<usize>() + ports.sum::<usize>() + env.sum::<usize>() + probe + amounts(c.resources().requests()) + amounts(c.resources().limits())
}

fn term(t: NodeSelectorTerm<'_>) -> usize {
    t.match_expressions().iter().map(|e| e.key().len() + e.values().len()).sum()
}

fn volume(v: Volume<'_>) -> usize {
    let source = v.volume_source();
    v.name().len() + source.host_path().map_or(0, |h| h.path().len()) + source.config_map().map_or(0, |c| c.items().len())
}

fn spec(s: PodSpec<'_>) -> usize {
    let affinity = s.affinity().and_then(|a| a.node_affinity()).unwrap_or_default();
    let required = affinity.required_during_scheduling_ignored_during_execution().unwrap_or_default();
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution();
    let parsed = PreferredNodeAffinity::parse(preferred).is_ok() as usize;
    let terms = required.node_selector_terms().iter().map(term).sum::<usize>() + preferred.iter().map(|p| term(p.preference())).sum::<usize>();
    s.all_containers().map(container).sum::<usize>()
        + s.volumes().iter().map(volume).sum::<usize>()
        + strings(s.node_selector())
        + s.tolerations().iter().map(|t| t.key().len() + t.toleration_seconds().unwrap_or(0) as usize % 2).sum::<usize>()
        + s.priority().unwrap_or(0) as usize % 2
        + amounts(s.overhead())
        + terms
        + parsed
}

fn pod(p: Pod<'_>) -> usize {
    let status = p.status();
    let conditions = status.conditions().iter().map(|c| c.r#type().len() + c.last_transition_time().is_some() as usize);
    metadata(p.metadata()) + spec(p.spec()) + p.requests().len() + p.host_ports().count() + conditions.sum::<usize>() + status.phase().len()
}

fn node(n: Node<'_>, pod: Pod<'_>) -> usize {
    let untolerated = find_untolerated(n.spec().taints(), pod.spec().tolerations()).map_or(0, |t| t.to_string().len());
    let images = n.status().images().iter().map(|i| i.names().len() + i.size_bytes() as usize % 2);
    let matches = RequiredNodeAffinity::of(pod).matches(n).is_ok() as usize;
    metadata(n.metadata()) + untolerated + matches + images.sum::<usize>() + amounts(n.status().allocatable())
}
