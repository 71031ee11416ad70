//! Selectors of labels and nodes, taints and tolerations, and what a Pod asks a node for: by the
//! rules of Kubernetes. A selector that is compared with many objects is read once.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::api::core::{
    Container, ContainerPort, EphemeralContainer, Node, NodeSelector, NodeSelectorTerm, Pod, PodSpec, PreferredSchedulingTerm, ResourceRequirements, Taint,
    Toleration,
};
use crate::api::meta::LabelSelector;
use crate::compare::same;
use crate::value::Quantity;
use crate::view::{List, Map, Message, StringMap};

/// What a selector says of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// In, NotIn, Exists, DoesNotExist; or Gt and Lt, which compare whole numbers.
    pub operator: String,
    /// The values that the operator compares with.
    pub values: Vec<String>,
}

impl Requirement {
    /// Returns the requirement that a label has one value.
    pub fn is(key: &str, value: &str) -> Self {
        Requirement { key: key.to_owned(), operator: "In".to_owned(), values: [value.to_owned()].into() }
    }

    fn of<'a>(key: &str, operator: &str, values: List<'a, &'a str>) -> Self {
        Requirement { key: key.to_owned(), operator: operator.to_owned(), values: values.iter().map(ToOwned::to_owned).collect() }
    }

    fn mistake(&self, what: &str) -> String {
        format!("selector: key {:?}, operator {:?}: {}", self.key, self.operator, what)
    }

    /// Returns an error for an operator that does not exist, for values that do not fit the
    /// operator, and for a key or values that no label has, as
    /// `k8s.io/apimachinery/pkg/labels.NewRequirement` does.
    pub fn validate(&self) -> Result<(), String> {
        let what = match self.operator.as_str() {
            "In" | "NotIn" if self.values.is_empty() => "want values",
            "Exists" | "DoesNotExist" if !self.values.is_empty() => "want no values",
            "Gt" | "Lt" if self.values.len() != 1 => "want one value",
            "Gt" | "Lt" if self.values[0].parse::<i64>().is_err() => "want a whole number",
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => "",
            _ => "there is no such operator",
        };
        if !what.is_empty() {
            return Err(self.mistake(what));
        }
        if !is_label_key(&self.key) {
            return Err(self.mistake("no label has this key"));
        }
        match self.values.iter().find(|v| !v.is_empty() && !is_label_name(v)) {
            Some(value) => Err(self.mistake(&format!("no label has the value {:?}", value))),
            None => Ok(()),
        }
    }

    /// Reports whether labels meet the requirement, which is valid.
    pub fn matches(&self, labels: StringMap<'_>) -> bool {
        let value = labels.get(&self.key);
        match (self.operator.as_str(), value) {
            ("In", value) => value.map_or(false, |v| self.values.iter().any(|w| w == v)),
            ("NotIn", value) => value.map_or(true, |v| self.values.iter().all(|w| w != v)),
            ("Exists", value) => value.is_some(),
            ("DoesNotExist", value) => value.is_none(),
            ("Gt" | "Lt", Some(value)) => match (value.parse::<i64>(), self.values.first().map(|v| v.parse::<i64>())) {
                (Ok(have), Some(Ok(want))) => (self.operator == "Gt" && have > want) || (self.operator == "Lt" && have < want),
                _ => false,
            },
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    /// Writes the requirement in the syntax of `k8s.io/apimachinery/pkg/labels`: "app=web",
    /// "app in (shop,web)", "!app".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator.as_str() {
            "Exists" => write!(f, "{}", key),
            "DoesNotExist" => write!(f, "!{}", key),
            "In" if self.values.len() == 1 => write!(f, "{}={}", key, values),
            "In" => write!(f, "{} in ({})", key, values),
            "NotIn" => write!(f, "{} notin ({})", key, values),
            "Gt" => write!(f, "{}>{}", key, values),
            "Lt" => write!(f, "{}<{}", key, values),
            op => write!(f, "{} {} ({})", key, op, values),
        }
    }
}

/// Reports whether a label can have the key: a name, or a DNS subdomain, a slash and a name.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_name(key),
        Some((prefix, name)) => {
            let part = |p: &str| {
                !p.is_empty() && !p.starts_with('-') && !p.ends_with('-') && p.bytes().all(|c| c == b'-' || c.is_ascii_digit() || c.is_ascii_lowercase())
            };
            prefix.len() <= 253 && prefix.split('.').all(part) && is_label_name(name)
        }
    }
}

/// Reports whether a text is a name as keys and values of labels are.
fn is_label_name(s: &str) -> bool {
    let b = s.as_bytes();
    let inner = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    match (b.first(), b.last()) {
        (Some(first), Some(last)) => b.len() <= 63 && first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && b.iter().all(inner),
        _ => false,
    }
}

/// A LabelSelector that was read and checked. The default selects nothing.
///
/// ```
/// use kubewasm::api::core::Pod;
/// use kubewasm::api::meta::LabelSelector;
///
/// let call = kubewasm::Call::for_test();
/// let selector = LabelSelector::from_json(call, br#"{"matchLabels": {"app": "web"}}"#).parse().unwrap();
/// let pod = Pod::from_json(call, br#"{"metadata": {"labels": {"app": "web", "tier": "a"}}}"#);
/// assert!(selector.matches(pod.metadata().labels()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    selects: bool,
}

impl Selector {
    /// Reports whether the selector selects everything.
    pub fn is_empty(&self) -> bool {
        self.selects && self.requirements.is_empty()
    }

    /// Returns the requirements with commas between them, as the host reads a selector: none for
    /// a selector that selects nothing, "" for one that selects everything.
    pub(crate) fn text(&self) -> Option<String> {
        if !self.selects {
            return None;
        }
        Some(self.requirements.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }

    /// Adds a valid requirement. A selector that selects nothing stays so.
    pub fn add(&mut self, requirement: Requirement) {
        self.requirements.push(requirement);
    }

    /// Reports whether the selector selects an object with the labels.
    pub fn matches(&self, labels: StringMap<'_>) -> bool {
        self.selects && self.requirements.iter().all(|r| r.matches(labels))
    }
}

impl<'a> LabelSelector<'a> {
    /// Reads the selector: an empty one selects everything. One that is absent, None, selects
    /// nothing in Kubernetes.
    pub fn parse(self) -> Result<Selector, String> {
        let mut s = Selector { requirements: Vec::new(), selects: true };
        s.requirements.extend(self.match_labels().iter().map(|(key, value)| Requirement::is(key, value)));
        for e in self.match_expressions() {
            let r = Requirement::of(e.key(), e.operator(), e.values());
            if r.operator == "Gt" || r.operator == "Lt" {
                return Err(r.mistake("there is no such operator"));
            }
            s.requirements.push(r);
        }
        s.requirements.iter().try_for_each(Requirement::validate)?;
        Ok(s)
    }
}

/// A term with its requirements, of which there is one at least, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    expressions: Vec<Requirement>,
    fields: Vec<Requirement>,
    mistake: Option<String>,
}

impl Term {
    fn parse(term: NodeSelectorTerm<'_>) -> Option<Term> {
        let (mut expressions, mut fields, mut mistakes) = (Vec::new(), Vec::new(), Vec::new());
        for e in term.match_expressions() {
            let r = Requirement::of(e.key(), e.operator(), e.values());
            mistakes.extend(r.validate().err());
            expressions.push(r);
        }
        for f in term.match_fields() {
            let r = Requirement::of(f.key(), f.operator(), f.values());
            if r.operator != "In" && r.operator != "NotIn" {
                mistakes.push(r.mistake("there is no such operator for fields"));
            } else if r.values.len() != 1 {
                mistakes.push(r.mistake("want one value"));
            }
            fields.push(r);
        }
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let mistake = if mistakes.is_empty() { None } else { Some(mistakes.join("\n")) };
        Some(Term { expressions, fields, mistake })
    }

    fn matches(&self, node: Node<'_>) -> bool {
        let labels = node.metadata().labels();
        if !self.expressions.iter().all(|r| r.matches(labels)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let name = node.metadata().name();
        // A node without a name has no fields, and meets what is said of them.
        name.is_empty()
            || self.fields.iter().all(|f| {
                let have = if f.key == "metadata.name" { name } else { "" };
                (have == f.values[0]) == (f.operator == "In")
            })
    }
}

/// A NodeSelector that was read and checked. The default matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerms(Vec<Term>);

impl NodeTerms {
    /// Reports whether one of the terms matches the node. A term without requirements matches
    /// none. The error is about terms that make no sense; it is Ok if another term matches.
    pub fn matches(&self, node: Node<'_>) -> Result<bool, String> {
        let mut mistakes: Vec<&str> = Vec::new();
        for term in &self.0 {
            match &term.mistake {
                Some(text) => mistakes.push(text),
                None if term.matches(node) => return Ok(true),
                None => {}
            }
        }
        if mistakes.is_empty() {
            Ok(false)
        } else {
            Err(mistakes.join("\n"))
        }
    }
}

impl<'a> NodeSelector<'a> {
    /// Reads the selector. A term that makes no sense is an error of `matches`, as in the
    /// scheduler, which takes a Pod with such a term if another one matches.
    pub fn parse(self) -> NodeTerms {
        NodeTerms(self.node_selector_terms().iter().filter_map(Term::parse).collect())
    }
}

/// What a Pod's spec.nodeSelector and its required node affinity say about nodes, by the rules of
/// `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredNodeAffinity {
    labels: Vec<Requirement>,
    terms: Option<NodeTerms>,
}

impl RequiredNodeAffinity {
    /// Reads what a Pod says about nodes.
    pub fn of(pod: Pod<'_>) -> Self {
        let spec = pod.spec();
        let required = spec.affinity().and_then(|a| a.node_affinity()).and_then(|a| a.required_during_scheduling_ignored_during_execution());
        RequiredNodeAffinity {
            labels: spec.node_selector().iter().map(|(key, value)| Requirement::is(key, value)).collect(),
            terms: required.map(NodeSelector::parse),
        }
    }

    /// Reports whether the Pod may run on the node. The error is about terms that make no sense;
    /// it is Ok if another term matches.
    pub fn matches(&self, node: Node<'_>) -> Result<bool, String> {
        if !self.labels.is_empty() {
            let labels = node.metadata().labels();
            if !self.labels.iter().all(|r| r.matches(labels)) {
                return Ok(false);
            }
        }
        self.terms.as_ref().map_or(Ok(true), |terms| terms.matches(node))
    }
}

/// The terms of a Pod's preferred node affinity with their weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreferredNodeAffinity(Vec<(Term, i64)>);

impl PreferredNodeAffinity {
    /// Reads terms, an error if one of them makes no sense.
    pub fn parse<'a>(terms: List<'a, PreferredSchedulingTerm<'a>>) -> Result<Self, String> {
        let mut read = Vec::new();
        for preferred in terms.iter().filter(|t| t.weight() != 0) {
            if let Some(term) = Term::parse(preferred.preference()) {
                if let Some(mistake) = term.mistake {
                    return Err(mistake);
                }
                read.push((term, preferred.weight() as i64));
            }
        }
        Ok(PreferredNodeAffinity(read))
    }

    /// Returns the sum of the weights of those terms that match the node.
    pub fn score(&self, node: Node<'_>) -> i64 {
        self.0.iter().filter(|(term, _)| term.matches(node)).map(|(_, weight)| weight).sum()
    }
}

impl fmt::Display for Taint<'_> {
    /// Writes the taint as kubectl does: key=value:effect.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())?;
        for (mark, text) in [("=", self.value()), (":", self.effect())] {
            if !text.is_empty() {
                f.write_str(mark)?;
                f.write_str(text)?;
            }
        }
        Ok(())
    }
}

/// The texts of a taint or of a toleration, read in one pass.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms<'a> {
    key: &'a [u8],
    operator: &'a [u8],
    value: &'a [u8],
    effect: &'a [u8],
}

impl<'a> Terms<'a> {
    fn of_taint(taint: Taint<'a>) -> Self {
        let mut terms = Terms::default();
        match taint.view().protobuf() {
            Some(fields) => {
                for f in fields {
                    match f.number {
                        1 => terms.key = f.bytes,
                        2 => terms.value = f.bytes,
                        3 => terms.effect = f.bytes,
                        _ => {}
                    }
                }
            }
            None => {
                terms.key = taint.key().as_bytes();
                terms.value = taint.value().as_bytes();
                terms.effect = taint.effect().as_bytes();
            }
        }
        terms
    }

    fn of_toleration(t: Toleration<'a>) -> Self {
        let mut terms = Terms::default();
        match t.view().protobuf() {
            Some(fields) => {
                for f in fields {
                    match f.number {
                        1 => terms.key = f.bytes,
                        2 => terms.operator = f.bytes,
                        3 => terms.value = f.bytes,
                        4 => terms.effect = f.bytes,
                        _ => {}
                    }
                }
            }
            None => {
                terms.key = t.key().as_bytes();
                terms.operator = t.operator().as_bytes();
                terms.value = t.value().as_bytes();
                terms.effect = t.effect().as_bytes();
            }
        }
        terms
    }

    /// Reports whether the toleration matches a taint.
    fn match_taint(&self, taint: &Terms<'_>) -> bool {
        if !self.effect.is_empty() && !same(self.effect, taint.effect) || !self.key.is_empty() && !same(self.key, taint.key) {
            return false;
        }
        if self.operator.is_empty() || same(self.operator, b"Equal") {
            return same(self.value, taint.value);
        }
        same(self.operator, b"Exists") || self.compare(taint)
    }

    #[inline(never)]
    fn compare(&self, taint: &Terms<'_>) -> bool {
        match (decimal(taint.value), decimal(self.value)) {
            (Some(have), Some(want)) => same(self.operator, b"Lt") && have < want || same(self.operator, b"Gt") && have > want,
            _ => false,
        }
    }
}

impl<'a> Toleration<'a> {
    /// Reports whether the toleration matches the taint, by the rules of
    /// `k8s.io/api/core/v1.Toleration.ToleratesTaint` with comparison operators enabled.
    pub fn tolerates(self, taint: Taint<'_>) -> bool {
        Terms::of_toleration(self).match_taint(&Terms::of_taint(taint))
    }
}

/// Reads a decimal integer without leading zeros or plus sign, which is what the API accepts.
fn decimal(text: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(text).ok()?;
    let n: i64 = text.parse().ok()?;
    if n.to_string() == text {
        Some(n)
    } else {
        None
    }
}

/// Returns the first taint that keeps a Pod with the tolerations from being scheduled: its effect
/// is NoSchedule or NoExecute, and no toleration matches it.
pub fn find_untolerated<'a>(taints: List<'a, Taint<'a>>, tolerations: List<'_, Toleration<'_>>) -> Option<Taint<'a>> {
    let kept = tolerations.kept_terms(Terms::of_toleration);
    let tolerated = |taint: &Terms<'_>| match kept {
        Some(kept) => kept.iter().any(|t| t.match_taint(taint)),
        None => tolerations.iter().any(|t| Terms::of_toleration(t).match_taint(taint)),
    };
    let keeps_off = |taint: &Terms<'_>| (same(taint.effect, b"NoSchedule") || same(taint.effect, b"NoExecute")) && !tolerated(taint);
    match taints.kept_terms(Terms::of_taint) {
        Some(kept) => kept.iter().position(keeps_off).and_then(|i| taints.get(i)),
        None => taints.iter().find(|taint| keeps_off(&Terms::of_taint(*taint))),
    }
}

impl<'a> EphemeralContainer<'a> {
    /// Returns the ephemeral container as one of the others: it has all their fields.
    pub fn container(self) -> Container<'a> {
        Container::from_view(self.ephemeral_container_common().view())
    }
}

impl<'a> PodSpec<'a> {
    /// Returns every container of a Pod: init containers, containers and ephemeral containers, in
    /// this order.
    pub fn all_containers(self) -> impl Iterator<Item = Container<'a>> + 'a {
        let ephemeral = self.ephemeral_containers().iter().map(EphemeralContainer::container);
        self.init_containers().iter().chain(self.containers()).chain(ephemeral)
    }
}

/// Amounts of resources by their names.
pub type ResourceList = BTreeMap<String, Quantity>;

fn add(sum: &mut ResourceList, list: Map<'_, Quantity>) {
    for (name, amount) in list.iter() {
        *sum.entry(name.to_owned()).or_default() += amount;
    }
}

fn raise(sum: &mut ResourceList, to: &ResourceList) {
    for (name, amount) in to {
        let have = sum.entry(name.clone()).or_insert(*amount);
        *have = (*have).max(*amount);
    }
}

fn is_sidecar(c: Container<'_>) -> bool {
    c.restart_policy() == Some("Always")
}

fn requests<'a>(c: Container<'a>) -> Map<'a, Quantity> {
    c.resources().requests()
}

/// Reports whether a resource may be that of a Pod as a whole.
fn is_of_pod(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// The QoS classes, and the indexes of two of them.
const CLASSES: [&str; 3] = ["BestEffort", "Guaranteed", "Burstable"];
const BEST_EFFORT: usize = 0;
const BURSTABLE: usize = 2;

/// Returns the QoS class of a Pod with these requirements alone.
fn class_of(r: ResourceRequirements<'_>) -> usize {
    let class = |name: &str| {
        let request = r.requests().get(name).unwrap_or_default();
        match r.limits().get(name).unwrap_or_default() == request {
            false => BURSTABLE,
            true => !request.is_zero() as usize,
        }
    };
    common_class(class("cpu"), class("memory"))
}

/// Returns the QoS class of two parts of a Pod.
fn common_class(a: usize, b: usize) -> usize {
    if a == b {
        a
    } else {
        BURSTABLE
    }
}

impl<'a> Pod<'a> {
    /// Returns what the Pod asks a node for, as the scheduler reckons for a Pod that it has to
    /// place (`k8s.io/component-helpers/resource.PodRequests`).
    pub fn requests(self) -> ResourceList {
        let spec = self.spec();
        let mut sum = ResourceList::new();
        for c in spec.containers() {
            add(&mut sum, requests(c));
        }
        // Init containers run one after the other, but beside the sidecars before them.
        let (mut sidecars, mut peak) = (ResourceList::new(), ResourceList::new());
        for c in spec.init_containers() {
            let mut together = sidecars.clone();
            add(&mut together, requests(c));
            raise(&mut peak, &together);
            if is_sidecar(c) {
                add(&mut sum, requests(c));
                sidecars = together;
            }
        }
        raise(&mut sum, &peak);
        if let Some(resources) = spec.resources() {
            for (name, amount) in resources.requests().iter().filter(|(name, _)| is_of_pod(name)) {
                sum.insert(name.to_owned(), amount);
            }
        }
        add(&mut sum, spec.overhead());
        sum
    }

    /// Returns the QoS class of the Pod: that of its status, which the API server sets, or else the
    /// one that Kubernetes computes of its resources: Guaranteed, Burstable or BestEffort.
    pub fn qos_class(self) -> &'a str {
        let class = self.status().qos_class();
        if !class.is_empty() {
            return class;
        }
        let spec = self.spec();
        if let Some(r) = spec.resources().filter(|r| r.requests().iter().chain(r.limits().iter()).any(|(name, _)| is_of_pod(name))) {
            return CLASSES[class_of(r)];
        }
        let containers = spec.init_containers().iter().chain(spec.containers());
        CLASSES[containers.map(|c| class_of(c.resources())).reduce(common_class).unwrap_or(BEST_EFFORT)]
    }

    /// Returns the ports that the Pod takes on its node: those with a host port of sidecars and
    /// containers, in this order.
    pub fn host_ports(self) -> impl Iterator<Item = ContainerPort<'a>> + 'a {
        let spec = self.spec();
        let sidecars = spec.init_containers().iter().filter(|c| is_sidecar(*c));
        sidecars.chain(spec.containers()).flat_map(|c| c.ports()).filter(|p| p.host_port() > 0)
    }
}
