//! What the host calls: abi/SPEC.md, section 2. plugin! exports these functions.
//!
//! Each begins a call, which ends what the call before has read. P is the type of the plugin.
#![allow(clippy::missing_safety_doc)]

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::event::action;
use super::node::object;
use super::*;
use crate::global::Global;
use crate::plugin::get;
use crate::view::Message;
use crate::{host, object as objects, wire};

/// The states of cycles by slot, with their versions. They are boxes of the plugin's type.
static CYCLES: Global<Vec<(u32, *mut ())>> = Global::new(Vec::new());

const MAX_SLOT: usize = 1 << 20;

/// Returns the state of a cycle. `anew` makes it the default.
///
/// # Safety
///
/// S must be that of the plugin, and no other reference to the state may be used while this one is.
#[inline]
unsafe fn state<'a, S: Default + 'static>(cycle: u64, anew: bool) -> &'a mut S {
    let (slot, version) = (cycle as u32 as usize, (cycle >> 32) as u32);
    let cycles = CYCLES.get();
    if let Some(&(have, state)) = cycles.get(slot) {
        if have == version && !anew && !state.is_null() {
            return &mut *(state as *mut S);
        }
    }
    next_state(slot, version)
}

/// Returns the state of a cycle that is new.
///
/// # Safety
///
/// That of [`state`].
#[inline(never)]
unsafe fn next_state<'a, S: Default + 'static>(slot: usize, version: u32) -> &'a mut S {
    assert!(slot < MAX_SLOT, "the host used a slot beyond the largest");
    let cycles = CYCLES.get();
    if slot >= cycles.len() {
        cycles.resize(slot + 1, (0, core::ptr::null_mut()));
    }
    let known = &mut cycles[slot];
    known.0 = version;
    if known.1.is_null() {
        known.1 = Box::into_raw(Box::new(S::default())) as *mut ();
        return &mut *(known.1 as *mut S);
    }
    let state = &mut *(known.1 as *mut S);
    *state = S::default();
    state
}

/// Ends a call: a status that is not a success with its reason.
#[inline]
fn code(result: Result) -> i32 {
    match result {
        Ok(()) => 0,
        Err(status) => failed(status),
    }
}

#[inline(never)]
fn failed(status: Status) -> i32 {
    if !status.reason().is_empty() {
        host::reason(status.reason());
    }
    status.code() as i32
}

/// Packs a code and a second number.
fn pack(second: u32, code: i32) -> u64 {
    (second as u64) << 32 | code as u32 as u64
}

#[inline]
fn packed_score(result: Result<i64>) -> u64 {
    match result {
        Ok(score) => {
            if i32::try_from(score).is_err() {
                unsafe { host::result_score(score) }
            }
            pack(score as u32, 0)
        }
        Err(status) => pack(0, failed(status)),
    }
}

fn node_name(call: Call<'_>) -> &str {
    crate::view::utf8(call, host::ask(call, host::node_name))
}

pub unsafe fn pre_enqueue<P: PreEnqueue>(pod: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().pre_enqueue(object(call, pod)))
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn queue_sort<P: QueueSort>(
    first: u64, second: u64, first_time: i64, second_time: i64, first_attempt: i64, second_attempt: i64, first_attempts: i64, second_attempts: i64,
) -> i32 {
    let call = objects::begin();
    let queued = |pod, timestamp, initial_attempt_timestamp, attempts| QueuedPod { pod: object(call, pod), timestamp, initial_attempt_timestamp, attempts };
    let a = queued(first, first_time, first_attempt, first_attempts);
    let b = queued(second, second_time, second_attempt, second_attempts);
    let p = get::<P>();
    if p.less(a, b) {
        -1
    } else {
        p.less(b, a) as i32
    }
}

pub unsafe fn events_to_register<P: Enqueue>() -> i32 {
    objects::begin();
    let events = match get::<P>().events() {
        Ok(events) => events,
        Err(text) => return failed(Status::error(text)),
    };
    let mut b = Vec::new();
    for e in &events {
        let mut actions = e.actions;
        if e.hint.is_some() {
            actions |= action::HINT;
        }
        if e.pre_hint.is_some() {
            actions |= action::PRE_HINT;
        }
        b.extend_from_slice(&(e.resource as u32).to_le_bytes());
        b.extend_from_slice(&actions.to_le_bytes());
        if e.resource == Resource::Named {
            b.extend_from_slice(&(e.object.len() as u32).to_le_bytes());
            b.extend_from_slice(e.object.as_bytes());
        }
    }
    host::give(host::result_cluster_events, &b);
    0
}

pub unsafe fn queueing_hint<P: Enqueue>(event: i32, pod: u64, old: u64, new: u64) -> u64 {
    let call = objects::begin();
    let p = get::<P>();
    let answer = p.events().and_then(|events| match events.get(event as usize) {
        Some(e) => match e.hint {
            Some(hint) => hint(p, object(call, pod), e.object(call, old), e.object(call, new)),
            None => Ok(true),
        },
        None => Ok(true),
    });
    match answer {
        Ok(queue) => pack(queue as u32, 0),
        Err(text) => pack(1, failed(Status::error(text))),
    }
}

pub unsafe fn pre_queueing_hint<P: Enqueue>(event: i32, old: u64, new: u64) -> i32 {
    let call = objects::begin();
    let p = get::<P>();
    let answer = p.events().and_then(|events| match events.get(event as usize) {
        Some(e) => match e.pre_hint {
            Some(hint) => hint(p, e.object(call, old), e.object(call, new)),
            None => Ok(None),
        },
        None => Ok(None),
    });
    match answer {
        Ok(None) => 0,
        Ok(Some(pods)) => {
            let names = handle::join(pods.iter().flat_map(|p| [p.namespace.as_str(), p.name.as_str()]));
            host::give(host::result_pods, &names);
            0
        }
        Err(text) => failed(Status::error(text)),
    }
}

pub unsafe fn pre_filter<P: PreFilter>(cycle: u64, pod: u64) -> i32 {
    let call = objects::begin();
    match get::<P>().pre_filter(state(cycle, true), object(call, pod), Nodes::passed(call)) {
        Ok(None) => 0,
        Ok(Some(names)) => {
            host::give(host::result_node_names, &handle::join(names.iter().map(|n| n.as_str())));
            0
        }
        Err(status) => failed(status),
    }
}

pub unsafe fn clone_cycle<P: CloneCycle>(cycle: u64, from: u64) -> i32 {
    objects::begin();
    let copy = P::clone_state(state::<P::State>(from, false));
    *state::<P::State>(cycle, true) = copy;
    0
}

pub unsafe fn add_pod<P: PreFilterExtensions>(cycle: u64, pod: u64, added: u64, node: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().add_pod(state(cycle, false), object(call, pod), object(call, added), NodeInfo::of(call, node)))
}

pub unsafe fn remove_pod<P: PreFilterExtensions>(cycle: u64, pod: u64, removed: u64, node: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().remove_pod(state(cycle, false), object(call, pod), object(call, removed), NodeInfo::of(call, node)))
}

#[inline]
pub unsafe fn filter<P: Filter>(cycle: u64, pod: u64, node: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().filter(state(cycle, false), object(call, pod), NodeInfo::of(call, node)))
}

pub unsafe fn post_filter<P: PostFilter>(cycle: u64, pod: u64) -> u64 {
    let call = objects::begin();
    let statuses = messages::NodeStatuses::from_proto(call, host::ask(call, host::node_statuses));
    match get::<P>().post_filter(state(cycle, false), object(call, pod), statuses) {
        Ok(Nominated::Unchanged) => 0,
        Ok(Nominated::None) => pack(1, 0),
        Ok(Nominated::Node(name)) => {
            host::give(host::result_nominated_node_name, name.as_bytes());
            pack(1, 0)
        }
        Err(status) => pack(0, failed(status)),
    }
}

pub unsafe fn potential_victims<P: PotentialVictims>(cycle: u64, pod: u64, node: u64) -> i32 {
    let call = objects::begin();
    let result = get::<P>().potential_victims(state(cycle, false), object(call, pod), NodeInfo::of(call, node));
    if let Ok(victims) = &result {
        let mut b = Vec::with_capacity(8 * victims.len());
        for victim in victims {
            b.extend_from_slice(&victim.view().object_ref().to_le_bytes());
        }
        host::give(host::result_victims, &b);
    }
    code(result.map(|_| ()))
}

pub unsafe fn pre_score<P: PreScore>(cycle: u64, pod: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().pre_score(state(cycle, false), object(call, pod), Nodes::passed(call)))
}

#[inline]
pub unsafe fn score<P: Score>(cycle: u64, pod: u64, node: u64) -> u64 {
    let call = objects::begin();
    packed_score(get::<P>().score(state(cycle, false), object(call, pod), NodeInfo::of(call, node)))
}

/// Lets `change` change the scores.
fn normalize<'a>(call: Call<'a>, change: impl FnOnce(&mut [i64], Names<'a>) -> Result) -> i32 {
    let mut scores: Vec<i64> = host::ask(call, host::node_scores).chunks_exact(8).map(|b| wire::fixed(b, 0, 8).unwrap_or(0) as i64).collect();
    let result = change(&mut scores, Names(call));
    if result.is_ok() {
        let mut b = Vec::with_capacity(scores.len() * 8);
        for score in &scores {
            b.extend_from_slice(&score.to_le_bytes());
        }
        host::give(host::result_scores, &b);
    }
    code(result)
}

pub unsafe fn normalize_score<P: NormalizeScore>(cycle: u64, pod: u64) -> i32 {
    let call = objects::begin();
    normalize(call, |scores, names| get::<P>().normalize_score(state(cycle, false), object(call, pod), scores, names))
}

pub unsafe fn reserve<P: Reserve>(cycle: u64, pod: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().reserve(state(cycle, false), object(call, pod), node_name(call)))
}

pub unsafe fn unreserve<P: Reserve>(cycle: u64, pod: u64) {
    let call = objects::begin();
    get::<P>().unreserve(state(cycle, false), object(call, pod), node_name(call));
}

pub unsafe fn permit<P: Permit>(cycle: u64, pod: u64) -> u64 {
    let call = objects::begin();
    match get::<P>().permit(state(cycle, false), object(call, pod), node_name(call)) {
        Ok(Permission::Allow) => 0,
        Ok(Permission::Wait(time)) => pack(time.as_millis().clamp(0, u32::MAX as i64) as u32, Code::Wait as i32),
        Err(status) => pack(0, failed(status)),
    }
}

pub unsafe fn pre_bind_pre_flight<P: PreBind>(cycle: u64, pod: u64) -> u64 {
    let call = objects::begin();
    match get::<P>().pre_bind_pre_flight(state(cycle, false), object(call, pod), node_name(call)) {
        Ok(parallel) => pack(parallel as u32, 0),
        Err(status) => pack(0, failed(status)),
    }
}

pub unsafe fn pre_bind<P: PreBind>(cycle: u64, pod: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().pre_bind(state(cycle, false), object(call, pod), node_name(call)))
}

pub unsafe fn bind<P: Bind>(cycle: u64, pod: u64) -> i32 {
    let call = objects::begin();
    code(get::<P>().bind(state(cycle, false), object(call, pod), node_name(call)))
}

pub unsafe fn post_bind<P: PostBind>(cycle: u64, pod: u64) {
    let call = objects::begin();
    get::<P>().post_bind(state(cycle, false), object(call, pod), node_name(call));
}

pub unsafe fn sign_pod<P: Sign>(pod: u64) -> i32 {
    let call = objects::begin();
    match get::<P>().sign_pod(object(call, pod)) {
        Ok(fragments) => {
            let list = handle::join(fragments.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]));
            host::give(host::result_sign_fragments, &list);
            0
        }
        Err(status) => failed(status),
    }
}

pub unsafe fn pod_group_post_filter<P: PodGroupPostFilter>(cycle: u64) -> i32 {
    let call = objects::begin();
    match get::<P>().pod_group_post_filter(state(cycle, false), PodGroup::of_call(call)) {
        Ok(nominations) => {
            let mut b = Vec::new();
            for n in &nominations {
                wire::append_message(&mut b, 1, |b| {
                    for (number, text) in [(1, &n.namespace), (2, &n.name), (3, &n.node_name)] {
                        wire::append_bytes(b, number, text.as_bytes());
                    }
                });
            }
            host::give(host::result_nominations, &b);
            0
        }
        Err(status) => failed(status),
    }
}

pub unsafe fn generate_placements<P: GeneratePlacements>(cycle: u64) -> i32 {
    let call = objects::begin();
    match get::<P>().generate_placements(state(cycle, false), PodGroup::of_call(call), &handle::names(call)) {
        Ok(placements) => {
            let mut b = Vec::new();
            for p in &placements {
                wire::append_message(&mut b, 1, |b| {
                    wire::append_bytes(b, 1, p.name.as_bytes());
                    for name in &p.node_names {
                        wire::append_bytes(b, 2, name.as_bytes());
                    }
                });
            }
            host::give(host::result_placements, &b);
            0
        }
        Err(status) => failed(status),
    }
}

pub unsafe fn score_placement<P: ScorePlacement>(cycle: u64) -> u64 {
    let call = objects::begin();
    let placement = messages::Placement::from_proto(call, host::ask(call, host::placement));
    packed_score(get::<P>().score_placement(state(cycle, false), PodGroup::of_call(call), placement))
}

pub unsafe fn normalize_placement_score<P: NormalizePlacementScore>(cycle: u64) -> i32 {
    let call = objects::begin();
    normalize(call, |scores, names| get::<P>().normalize_placement_score(state(cycle, false), PodGroup::of_call(call), scores, names))
}
