// What Kubernetes means by taints and tolerations, node selectors and label selectors, requests
// and host ports. The rules are those of k8s.io/api, k8s.io/apimachinery/pkg/labels and
// k8s.io/component-helpers.

import { LabelSelector } from "./api/meta";
import { Container, ContainerPort, Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm, ResourceRequirements, Taint, Toleration, TopologySpreadConstraint } from "./api/core";
import { MessageMap, StringMap } from "./view";
import { Quantity } from "./values";
import * as view from "./view";
import { StateData } from "./scheduler";
import * as reader from "./internal/json";

/** taintText returns a taint as kubectl writes it: key=value:effect. */
export function taintText(t: Taint): string {
  const value = t.value;
  const effect = t.effect;
  return t.key + (value.length != 0 ? "=" + value : "") + (effect.length != 0 ? ":" + effect : "");
}

/** tolerates reports whether a toleration matches a taint, with comparison operators enabled. */
export function tolerates(toleration: Toleration, taint: Taint): bool {
  return new Terms(toleration).match(taint, taint.effect);
}

/** Terms are the strings of a toleration. The operator is empty for Equal. */
@final
class Terms {
  key: string;
  operator: string;
  value: string;
  effect: string;

  constructor(t: Toleration) {
    this.key = t.key;
    const operator = t.operator;
    this.operator = operator == "Equal" ? "" : operator;
    this.value = t.value;
    this.effect = t.effect;
  }

  equal(t: Terms): bool {
    return this.key == t.key && this.operator == t.operator && this.value == t.value && this.effect == t.effect;
  }

  match(taint: Taint, effect: string): bool {
    if (this.effect.length != 0 && this.effect != effect) return false;
    if (this.key.length != 0 && !view.is(taint, 1, "key", this.key)) return false;
    const operator = this.operator;
    if (operator.length == 0) return view.is(taint, 2, "value", this.value);
    if (operator == "Exists") return true;
    if (operator != "Lt" && operator != "Gt") return false;
    const have = taint.value;
    if (!isDecimal(have) || !isDecimal(this.value)) return false;
    const h = <i64>I64.parseInt(have);
    const w = <i64>I64.parseInt(this.value);
    return operator == "Lt" ? h < w : h > w;
  }
}

/** isDecimal reports whether text is a whole number of 64 bits as it is written without zeros and signs in front. */
function isDecimal(s: string): bool {
  return wholeNumber(s) && I64.parseInt(s).toString() == s;
}

/** wholeNumber reports whether text is a whole number of 64 bits. */
function wholeNumber(s: string): bool {
  let i = 0;
  if (s.length > 0 && (s.charCodeAt(0) == 0x2d || s.charCodeAt(0) == 0x2b)) i++;
  if (i == s.length) return false;
  const negative = s.charCodeAt(0) == 0x2d;
  let n: u64 = 0;
  for (; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c < 0x30 || c > 0x39 || n > 922337203685477580) return false;
    n = n * 10 + (c - 0x30);
    if (n > (negative ? 9223372036854775808 : 9223372036854775807)) return false;
  }
  return true;
}

/**
 * findUntolerated returns the first taint that keeps a Pod with the tolerations from being
 * scheduled, null if there is none: its effect is NoSchedule or NoExecute, and no toleration
 * matches it.
 */
export function findUntolerated(taints: Taint[], tolerations: Toleration[]): Taint | null {
  if (taints.length == 0) return null;
  if (!areLast(tolerations)) setLast(tolerations);
  for (let i = 0; i < taints.length; i++) {
    const taint = taints[i];
    if (taint.memo_ >> 1 != lists || lists == LISTS) taint.memo_ = lists << 1 | <u32>keepsOut(taint);
    if (taint.memo_ & 1) return taint;
  }
  return null;
}

// The scheduler asks about the same Nodes for one Pod after the other, most of which have the
// same tolerations. So a taint remembers whether it keeps Pods with the last tolerations out.

let last: Toleration[] = [];
let lastTerms: Terms[] = [];
/** How many lists of tolerations came so far, without those that say the same as the one before, and the most that a taint can tell apart. */
let lists: u32 = 0;
const LISTS: u32 = 0x7fffffff;

function areLast(tolerations: Toleration[]): bool {
  if (lists == 0 || tolerations.length != last.length) return false;
  for (let i = 0; i < last.length; i++) if (unchecked(last[i]) != unchecked(tolerations[i])) return false;
  return true;
}

function setLast(tolerations: Toleration[]): void {
  let same = lists != 0 && tolerations.length == last.length;
  const terms = new Array<Terms>();
  for (let i = 0; i < tolerations.length; i++) {
    const t = new Terms(tolerations[i]);
    terms.push(t);
    same = same && t.equal(lastTerms[i]);
  }
  last = tolerations.slice(); // The list may be the plugin's own.
  lastTerms = terms;
  if (!same && lists != LISTS) lists++;
}

/** keepsOut reports whether a taint keeps Pods with the last tolerations out. */
function keepsOut(taint: Taint): bool {
  const effect = taint.effect;
  if (effect != "NoSchedule" && effect != "NoExecute") return false;
  for (let i = 0; i < lastTerms.length; i++) if (lastTerms[i].match(taint, effect)) return false;
  return true;
}

/** Requirement is what a selector says of one label: In, NotIn, Exists, DoesNotExist, or Gt and Lt, which compare whole numbers. */
@final
export class Requirement {
  constructor(public key: string, public operator: string, public values: string[]) {}

  /** problem returns what is wrong with the requirement, empty if nothing is. */
  problem(): string {
    const op = this.operator;
    let what = "";
    if (op == "In" || op == "NotIn") {
      if (this.values.length == 0) what = "want values";
    } else if (op == "Exists" || op == "DoesNotExist") {
      if (this.values.length != 0) what = "want no values";
    } else if (op == "Gt" || op == "Lt") {
      if (this.values.length != 1) what = "want one value";
      else if (!wholeNumber(this.values[0])) what = "want a whole number";
    } else {
      what = "there is no such operator";
    }
    if (what.length == 0 && !isLabelKey(this.key)) what = "no label has this key";
    for (let i = 0; i < this.values.length && what.length == 0; i++) {
      const value = this.values[i];
      if (value.length != 0 && !isLabelName(value)) what = "no label has the value " + reader.quote(value);
    }
    return what.length == 0 ? "" : this.text(what);
  }

  /** text returns a problem with the key and the operator. */
  text(what: string): string {
    return `selector: key ${reader.quote(this.key)}, operator ${reader.quote(this.operator)}: ${what}`;
  }

  /** toString returns the requirement in the syntax of k8s.io/apimachinery/pkg/labels: "app=web", "app in (shop,web)", "!app". */
  toString(): string {
    const op = this.operator;
    const values = this.values.join(",");
    if (op == "Exists") return this.key;
    if (op == "DoesNotExist") return "!" + this.key;
    if (op == "In") return this.values.length == 1 ? `${this.key}=${values}` : `${this.key} in (${values})`;
    if (op == "NotIn") return `${this.key} notin (${values})`;
    if (op == "Gt") return `${this.key}>${values}`;
    if (op == "Lt") return `${this.key}<${values}`;
    return `${this.key} ${op} (${values})`;
  }

  /** matches reports whether labels meet the requirement, which has no problem. */
  matches(labels: StringMap): bool {
    const value = labels.lookup(this.key);
    const op = this.operator;
    if (op == "In") return value !== null && this.values.includes(value);
    if (op == "NotIn") return value === null || !this.values.includes(value);
    if (op == "Exists") return value !== null;
    if (op == "DoesNotExist") return value === null;
    if ((op != "Gt" && op != "Lt") || value === null || this.values.length != 1 || !wholeNumber(value) || !wholeNumber(this.values[0])) return false;
    const have = <i64>I64.parseInt(value);
    const want = <i64>I64.parseInt(this.values[0]);
    return op == "Gt" ? have > want : have < want;
  }
}

function isLabelKey(key: string): bool {
  const slash = key.indexOf("/");
  if (slash < 0) return isLabelName(key);
  if (slash > 253) return false;
  const parts = key.substring(0, slash).split(".");
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i];
    if (part.length == 0 || part.startsWith("-") || part.endsWith("-")) return false;
    for (let j = 0; j < part.length; j++) {
      const c = part.charCodeAt(j);
      if (c != 0x2d && (c < 0x30 || c > 0x39) && (c < 0x61 || c > 0x7a)) return false;
    }
  }
  return isLabelName(key.substring(slash + 1));
}

function isLabelName(s: string): bool {
  if (s.length == 0 || s.length > 63) return false;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if ((c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || (c >= 0x61 && c <= 0x7a)) continue;
    if (i == 0 || i == s.length - 1 || (c != 0x2d && c != 0x5f && c != 0x2e)) return false;
  }
  return true;
}

/** Selector is a LabelSelector that was read and checked, for a plugin that compares one with many objects. */
@final
export class Selector {
  private requirements: Requirement[] = [];
  private selects: bool = false;
  /** What is wrong with the selector, which then selects nothing; empty if nothing is. */
  problem: string = "";

  /** An empty selector selects everything. exists is false for one that is not there, which selects nothing. */
  constructor(l: LabelSelector, exists: bool = true) {
    if (exists) this.read(l);
  }

  private read(l: LabelSelector): void {
    this.selects = true;
    const labels = l.matchLabels;
    const keys = labels.keys();
    for (let i = 0; i < keys.length; i++) this.requirements.push(new Requirement(keys[i], "In", [labels.get(keys[i])]));
    const expressions = l.matchExpressions;
    for (let i = 0; i < expressions.length; i++) {
      const e = expressions[i];
      const r = new Requirement(e.key, e.operator, e.values);
      if (r.operator == "Gt" || r.operator == "Lt") this.problem = r.text("there is no such operator");
      this.requirements.push(r);
    }
    for (let i = 0; i < this.requirements.length && this.problem.length == 0; i++) this.problem = this.requirements[i].problem();
    if (this.problem.length != 0) this.selects = false;
  }

  /** add narrows a selector that selects something down to objects that also meet a requirement. */
  add(r: Requirement): void {
    if (!this.selects) return;
    this.requirements.push(r);
    this.problem = r.problem();
    if (this.problem.length != 0) this.selects = false;
  }

  /** text returns the requirements with commas between them, as the host reads a selector: null for one that selects nothing, "" for one that selects everything. */
  text(): string | null {
    if (!this.selects) return null;
    let s = "";
    for (let i = 0; i < this.requirements.length; i++) s += (i == 0 ? "" : ",") + this.requirements[i].toString();
    return s;
  }

  /** matches reports whether the selector selects an object with the labels. */
  matches(labels: StringMap): bool {
    for (let i = 0; this.selects && i < this.requirements.length; i++) {
      if (!this.requirements[i].matches(labels)) return false;
    }
    return this.selects;
  }
}

/** NodeTerm is a term of a node selector that was read and checked. */
@final
export class NodeTerm {
  private expressions: Requirement[] = [];
  private fields: Requirement[] = [];
  /** What is wrong with the term, empty if nothing is. */
  problem: string = "";

  constructor(t: NodeSelectorTerm) {
    const expressions = t.matchExpressions;
    for (let i = 0; i < expressions.length; i++) {
      const r = required(expressions[i]);
      this.expressions.push(r);
      if (this.problem.length == 0) this.problem = r.problem();
    }
    const fields = t.matchFields;
    for (let i = 0; i < fields.length; i++) {
      const r = required(fields[i]);
      this.fields.push(r);
      let what = "";
      if (r.operator != "In" && r.operator != "NotIn") what = "there is no such operator for fields";
      else if (r.values.length != 1) what = "want one value";
      if (what.length != 0 && this.problem.length == 0) this.problem = r.text(what);
    }
  }

  /** isEmpty reports whether the term has no requirement. It matches no node then. */
  get isEmpty(): bool {
    return this.expressions.length + this.fields.length == 0;
  }

  /** matches reports whether a node meets all requirements of the term, which has no problem. */
  matches(node: Node): bool {
    if (this.expressions.length != 0) {
      const labels = node.metadata.labels;
      for (let i = 0; i < this.expressions.length; i++) if (!this.expressions[i].matches(labels)) return false;
    }
    if (this.fields.length == 0) return true;
    const name = node.metadata.name;
    if (name.length == 0) return true; // A node without a name has no fields.
    for (let i = 0; i < this.fields.length; i++) {
      const f = this.fields[i];
      const have = f.key == "metadata.name" ? name : "";
      if ((have == f.values[0]) != (f.operator == "In")) return false;
    }
    return true;
  }
}

function required(r: NodeSelectorRequirement): Requirement {
  return new Requirement(r.key, r.operator, r.values);
}

/**
 * RequiredNodeAffinity is what a Pod's nodeSelector and its required node affinity say about
 * nodes, read once. It may be a value of a CycleState.
 */
@final
export class RequiredNodeAffinity extends StateData {
  private labels: Requirement[] = [];
  private required: bool = false;
  private terms: NodeTerm[] = [];

  constructor(pod: Pod) {
    super();
    const spec = pod.spec;
    const labels = spec.nodeSelector;
    const keys = labels.keys();
    for (let i = 0; i < keys.length; i++) this.labels.push(new Requirement(keys[i], "In", [labels.get(keys[i])]));
    const affinity = spec.affinity.nodeAffinity;
    this.required = affinity.hasRequiredDuringSchedulingIgnoredDuringExecution;
    const terms = affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms;
    for (let i = 0; i < terms.length; i++) {
      const t = new NodeTerm(terms[i]);
      if (!t.isEmpty) this.terms.push(t);
    }
  }

  /** matches reports whether the Pod may run on a node. Terms that make no sense are passed over. */
  matches(node: Node): bool {
    if (this.labels.length != 0) {
      const labels = node.metadata.labels;
      for (let i = 0; i < this.labels.length; i++) if (!this.labels[i].matches(labels)) return false;
    }
    if (!this.required) return true;
    for (let i = 0; i < this.terms.length; i++) {
      if (this.terms[i].problem.length == 0 && this.terms[i].matches(node)) return true;
    }
    return false;
  }

  clone(): StateData {
    return this;
  }
}

/** PreferredNodeAffinity are the terms of a Pod's preferred node affinity, read once. It may be a value of a CycleState. */
@final
export class PreferredNodeAffinity extends StateData {
  private terms: NodeTerm[] = [];
  private weights: i64[] = [];
  /** What is wrong with one of the terms, empty if nothing is. */
  problem: string = "";

  constructor(terms: PreferredSchedulingTerm[]) {
    super();
    for (let i = 0; i < terms.length; i++) {
      const weight = terms[i].weight;
      if (weight == 0) continue;
      const t = new NodeTerm(terms[i].preference);
      if (t.isEmpty) continue;
      this.terms.push(t);
      this.weights.push(weight);
      if (this.problem.length == 0) this.problem = t.problem;
    }
  }

  /** score returns the sum of the weights of those terms that match the node. */
  score(node: Node): i64 {
    let score: i64 = 0;
    for (let i = 0; i < this.terms.length; i++) if (this.terms[i].matches(node)) score += this.weights[i];
    return score;
  }

  clone(): StateData {
    return this;
  }
}

/**
 * spreadSelector returns the selector of the Pods that a constraint of a Pod counts: those that
 * its labelSelector selects and that have the same values as the Pod under matchLabelKeys. A key
 * that the Pod does not have is left out.
 */
export function spreadSelector(constraint: TopologySpreadConstraint, pod: Pod): Selector {
  const selector = new Selector(constraint.labelSelector, constraint.hasLabelSelector);
  const labels = pod.metadata.labels;
  const keys = constraint.matchLabelKeys;
  for (let i = 0; i < keys.length; i++) {
    const value = labels.lookup(keys[i]);
    if (value !== null) selector.add(new Requirement(keys[i], "In", [value]));
  }
  return selector;
}

/**
 * podRequests returns what a Pod asks a node for, by the names of the resources, as the scheduler
 * reckons for a Pod that it has to place: the containers together or, if that is more, an init
 * container with the sidecars before it; in place of that what the Pod asks for as a whole; and
 * its overhead.
 */
export function podRequests(pod: Pod): Map<string, Quantity> {
  const spec = pod.spec;
  const sum = new Map<string, Quantity>();
  const containers = spec.containers;
  for (let i = 0; i < containers.length; i++) addAll(sum, containers[i].resources.requests);
  // Init containers run one after the other, but beside the sidecars before them.
  const sidecars = new Map<string, Quantity>();
  const peak = new Map<string, Quantity>();
  const inits = spec.initContainers;
  for (let i = 0; i < inits.length; i++) {
    const requests = inits[i].resources.requests;
    if (isSidecar(inits[i])) {
      addAll(sum, requests);
      addAll(sidecars, requests);
      raise(peak, sidecars);
      continue;
    }
    const together = new Map<string, Quantity>();
    addAll(together, requests);
    const names = sidecars.keys();
    for (let j = 0; j < names.length; j++) add(together, names[j], sidecars.get(names[j]));
    raise(peak, together);
  }
  raise(sum, peak);
  const whole = spec.resources.requests;
  const names = whole.keys();
  for (let i = 0; i < names.length; i++) {
    if (isOfPod(names[i])) sum.set(names[i], whole.get(names[i]));
  }
  addAll(sum, spec.overhead);
  return sum;
}

function add(sum: Map<string, Quantity>, name: string, amount: Quantity): void {
  sum.set(name, sum.has(name) ? sum.get(name).plus(amount) : amount);
}

function addAll(sum: Map<string, Quantity>, amounts: MessageMap<Quantity>): void {
  const names = amounts.keys();
  for (let i = 0; i < names.length; i++) add(sum, names[i], amounts.get(names[i]));
}

/** raise raises each amount to that of others. */
function raise(amounts: Map<string, Quantity>, others: Map<string, Quantity>): void {
  const names = others.keys();
  for (let i = 0; i < names.length; i++) {
    const amount = others.get(names[i]);
    if (!amounts.has(names[i]) || amount.compareTo(amounts.get(names[i])) > 0) amounts.set(names[i], amount);
  }
}

/**
 * qosClass returns the QoS class of a Pod: that of its status, which the API server sets, or else the
 * one that Kubernetes computes of its resources: Guaranteed, Burstable or BestEffort.
 */
export function qosClass(pod: Pod): string {
  let c = pod.status.qosClass;
  if (c.length != 0) return c;
  const spec = pod.spec;
  if (spec.resources.requests.keys().some(name => isOfPod(name)) || spec.resources.limits.keys().some(name => isOfPod(name))) return classOf(spec.resources);
  const containers = spec.initContainers.concat(spec.containers);
  for (let i = 0; i < containers.length; i++) c = commonClass(c, classOf(containers[i].resources));
  return or(c, "BestEffort");
}

/** isOfPod reports whether a resource may be that of a Pod as a whole. */
function isOfPod(name: string): bool {
  return name == "cpu" || name == "memory" || name.startsWith("hugepages-");
}

/** classOf returns the QoS class of a Pod with these requirements alone. */
function classOf(r: ResourceRequirements): string {
  let c = "";
  for (let i = 0; i < 2; i++) {
    const name = i == 0 ? "cpu" : "memory";
    const zero = Quantity.of("0");
    const request = r.requests.has(name) ? r.requests.get(name) : zero;
    const limit = r.limits.has(name) ? r.limits.get(name) : zero;
    c = commonClass(c, request.compareTo(limit) != 0 ? "Burstable" : request.compareTo(zero) == 0 ? "BestEffort" : "Guaranteed");
  }
  return c;
}

/** commonClass returns the QoS class of two parts of a Pod, of which the first may be empty. */
function commonClass(a: string, b: string): string {
  return a.length == 0 || a == b ? b : "Burstable";
}

/** isSidecar reports whether an init container runs as long as the Pod does. */
function isSidecar(c: Container): bool {
  return c.restartPolicy == "Always";
}

/** hostPorts returns the ports that a Pod takes on its node: those with a host port of sidecars and containers, in this order. */
export function hostPorts(pod: Pod): ContainerPort[] {
  const list: ContainerPort[] = [];
  const spec = pod.spec;
  const inits = spec.initContainers;
  for (let i = 0; i < inits.length; i++) if (isSidecar(inits[i])) takePorts(list, inits[i]);
  const containers = spec.containers;
  for (let i = 0; i < containers.length; i++) takePorts(list, containers[i]);
  return list;
}

function takePorts(list: ContainerPort[], c: Container): void {
  const ports = c.ports;
  for (let i = 0; i < ports.length; i++) if (ports[i].hostPort > 0) list.push(ports[i]);
}

/**
 * conflictOnHost reports whether two ports cannot both be taken on one node: the number and the
 * protocol are the same, and so is the address, if not one of them is for all addresses.
 */
export function conflictOnHost(a: ContainerPort, b: ContainerPort): bool {
  if (a.hostPort <= 0 || a.hostPort != b.hostPort || or(a.protocol, "TCP") != or(b.protocol, "TCP")) return false;
  const x = or(a.hostIP, ALL);
  const y = or(b.hostIP, ALL);
  return x == y || x == ALL || y == ALL;
}

const ALL: string = "0.0.0.0";

function or(s: string, otherwise: string): string {
  return s.length != 0 ? s : otherwise;
}
