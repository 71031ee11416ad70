// Plugins of the scheduler. The class of a plugin has the decorator @scheduler and one or more
// of these methods:
//
//     configure(): Error | null
//     preEnqueue(pod: Pod): Status | null
//     less(a: QueuedPod, b: QueuedPod): bool
//     eventsToRegister(): ClusterEvent[]
//     preFilter(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null
//     addPod(state: CycleState, pod: Pod, added: Pod, node: NodeInfo): Status | null
//     removePod(state: CycleState, pod: Pod, removed: Pod, node: NodeInfo): Status | null
//     filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null
//     postFilter(state: CycleState, pod: Pod, statuses: NodeStatus[]): Status | null
//     potentialVictims(state: CycleState, pod: Pod, node: NodeInfo, victims: Pod[]): Status | null
//     preScore(state: CycleState, pod: Pod, nodes: NodeInfos): Status | null
//     score(state: CycleState, pod: Pod, node: NodeInfo): i64
//     normalizeScore(state: CycleState, pod: Pod, scores: Scores): Status | null
//     reserve(state: CycleState, pod: Pod, nodeName: string): Status | null
//     unreserve(state: CycleState, pod: Pod, nodeName: string): void
//     permit(state: CycleState, pod: Pod, nodeName: string): Status | null
//     preBindPreFlight(state: CycleState, pod: Pod, nodeName: string): Status | null
//     preBind(state: CycleState, pod: Pod, nodeName: string): Status | null
//     bind(state: CycleState, pod: Pod, nodeName: string): Status | null
//     postBind(state: CycleState, pod: Pod, nodeName: string): void
//     signPod(pod: Pod, fragments: SignFragment[]): Status | null
//     podGroupPostFilter(state: CycleState, group: PodGroup, nominations: Assignment[]): Status | null
//     generatePlacements(state: CycleState, group: PodGroup, parent: string[], placements: Placement[]): Status | null
//     scorePlacement(state: CycleState, group: PodGroup, placement: Placement): i64
//     normalizePlacementScore(state: CycleState, group: PodGroup, scores: Scores): Status | null
//
// null is a success. What a function gives to the scheduler beside that is in the Status, as in
// Status.wait, or in the list that is its last argument. score and scorePlacement return
// fail(status) if there is no score.

import * as wire from "./internal/wire";
import * as text from "./internal/text";
import * as host from "./internal/host";
import * as view from "./view";
import { Writer } from "./internal/writer";
import { leave } from "./internal/plugin";
import { Pod, Node } from "./api/core";
import { getObject, listObjects } from "./internal/lookup";
import { Selector } from "./scheduling";

export { Pod, Node } from "./api/core";

// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_names") declare function importNodeNames(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_refs") declare function importNodeRefs(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_scores") declare function importNodeScores(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_by_name") declare function importNodeByName(ptr: usize, len: u32): u64;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_info_version") declare function importNodeInfoVersion(ref: u64): u64;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_info") declare function importNodeInfo(ref: u64, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_images") declare function importNodeImages(ref: u64, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "nominated_pods") declare function importNominatedPods(ref: u64, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_victims") declare function importResultVictims(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "count_pods") declare function importCountPods(terminating: u32, nodes: usize, bytes: u32, ptr: usize, len: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_pods") declare function importNodePods(ref: u64, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "list_pods") declare function importListPods(terminating: u32, ptr: usize, len: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_name") declare function importNodeName(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "node_statuses") declare function importNodeStatuses(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "pod_group") declare function importPodGroup(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "pod_group_pod") declare function importPodGroupPod(index: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "try_pod_group") declare function importTryPodGroup(ptr: usize, len: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "placement") declare function importPlacement(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_node_names") declare function importResultNodeNames(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_scores") declare function importResultScores(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_score") declare function importResultScore(score: i64): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_cluster_events") declare function importResultClusterEvents(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_pods") declare function importResultPods(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_nominated_node_name") declare function importResultNominatedNodeName(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_sign_fragments") declare function importResultSignFragments(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_nominations") declare function importResultNominations(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "result_placements") declare function importResultPlacements(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "event") declare function importEvent(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "waiting_pods") declare function importWaitingPods(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "waiting_pod") declare function importWaitingPod(ptr: usize, len: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "allow_waiting_pod") declare function importAllowWaitingPod(ptr: usize, len: u32): i32;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "activate") declare function importActivate(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "apply_annotations") declare function importApplyAnnotations(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "apply_status") declare function importApplyStatus(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "await_object") declare function importAwaitObject(ptr: usize, len: u32, milliseconds: u32): void;
// @ts-ignore: decorator
@external("k8s.io/scheduler", "reject_waiting_pod") declare function importRejectWaitingPod(ptr: usize, len: u32): i32;

/** Code is the code of a status. */
export enum Code {
  Success = 0,
  Error = 1,
  Unschedulable = 2,
  UnschedulableAndUnresolvable = 3,
  Wait = 4,
  Skip = 5,
  Pending = 6,
}

/** Status is the result of a plugin: a code and, unless it is Success, the reason for it. null is a success. */
@final
export class Status {
  /** What a function gives to the scheduler beside the code. */
  nodeNames_: string[] | null = null;
  nominated_: string | null = null;
  more_: u32 = 0;

  constructor(public code: Code, public reason: string = "") {}

  /** unschedulable is the status of a Pod that does not fit, but might after others were preempted. Users find the reason in the conditions of the Pod. */
  static unschedulable(reason: string = ""): Status {
    return new Status(Code.Unschedulable, reason);
  }

  /** unresolvable is the status of a Pod that does not fit, also after any preemption. */
  static unresolvable(reason: string = ""): Status {
    return new Status(Code.UnschedulableAndUnresolvable, reason);
  }

  /** error is the status of a function that failed. */
  static error(reason: string): Status {
    return new Status(Code.Error, reason);
  }

  /** skip is the status with the code Skip. If preFilter returns it, filter is not called in this cycle. */
  static skip(): Status {
    return new Status(Code.Skip);
  }

  /** pending is the status of preBind that waits for something. */
  static pending(reason: string): Status {
    return new Status(Code.Pending, reason);
  }

  /** wait makes the Pod wait in permit, for so many milliseconds at most. */
  static wait(milliseconds: u32): Status {
    const s = new Status(Code.Wait);
    s.more_ = milliseconds;
    return s;
  }

  /** only is a success of preFilter that narrows the nodes down; an empty list makes the Pod unschedulable. */
  static only(nodeNames: string[]): Status {
    const s = new Status(Code.Success);
    s.nodeNames_ = nodeNames;
    return s;
  }

  /** nominate is a success of postFilter: the node that the Pod will fit on. An empty name takes a nomination away. */
  static nominate(nodeName: string): Status {
    const s = new Status(Code.Success);
    s.nominated_ = nodeName;
    return s;
  }

  /** parallel is a success of preBindPreFlight: preBind may run at the same time as that of other plugins. */
  static parallel(): Status {
    const s = new Status(Code.Success);
    s.more_ = 1;
    return s;
  }

  /** and adds another reason. In a Pod's condition, the scheduler counts the nodes with each reason. */
  and(reason: string): Status {
    this.reason += "\0" + reason;
    return this;
  }

  /** isSuccess reports whether the code is Success. */
  get isSuccess(): bool {
    return this.code == Code.Success;
  }
}

let failed: Status | null = null;

/** fail makes a status the result of score or scorePlacement, which return what it returns. */
export function fail(status: Status): i64 {
  failed = status;
  return 0;
}

/** StateData is what a CycleState has. */
export abstract class StateData {
  /**
   * clone returns a copy. A change that addPod, removePod, preScore or reserve makes to one must
   * not be seen in the other. The scheduler simulates added and removed Pods on copies.
   */
  abstract clone(): StateData;
}

/** StateText is a string as a value of a CycleState. */
@final
export class StateText extends StateData {
  constructor(public text: string) {
    super();
  }

  clone(): StateData {
    return this;
  }
}

/**
 * CycleState is the state of a plugin during the scheduling of one Pod: filter and score read
 * what preFilter wrote in the same cycle. It is empty when preFilter begins.
 *
 * An instance that has not seen a cycle repeats preFilter, addPod, removePod, preScore and reserve:
 * look-ups, waiting Pods and nodes are as they were the first time, and events and rejections happen
 * once. permit, preBind, bind, postBind and unreserve run on an instance that has the state. If the
 * guest has trapped meanwhile, and preFilter or preScore asked about nodes, the call fails without
 * reaching the guest, and the Pod is tried again. score comes without preScore in a profile that has
 * the plugin at score only.
 */
@final
export class CycleState {
  private keys: string[] = [];
  private values: StateData[] = [];

  /** read returns the value under a key, null if there is none. It traps if that is no T. */
  read<T extends StateData>(key: string): T | null {
    const keys = this.keys;
    for (let i = 0; i < keys.length; i++) {
      if (unchecked(keys[i]) == key) return <T>unchecked(this.values[i]);
    }
    return null;
  }

  /** write stores a value under a key. */
  write(key: string, value: StateData): void {
    const i = this.keys.indexOf(key);
    if (i >= 0) {
      this.values[i] = value;
      return;
    }
    this.keys.push(key);
    this.values.push(value);
  }

  /** delete removes the value under a key. */
  delete(key: string): void {
    const i = this.keys.indexOf(key);
    if (i < 0) return;
    this.keys.splice(i, 1);
    this.values.splice(i, 1);
  }

  reset_(): void {
    this.keys.length = 0;
    this.values.length = 0;
  }

  copy_(from: CycleState): void {
    this.reset_();
    for (let i = 0; i < from.keys.length; i++) {
      this.keys.push(from.keys[i]);
      this.values.push(from.values[i].clone());
    }
  }
}

/** Resource is a set of amounts of resources. */
@final
export class Resource extends view.Message {
  get milliCPU(): i64 { return view.int(this, 1, ""); }
  /** Bytes. */
  get memory(): i64 { return view.int(this, 2, ""); }
  /** Bytes. */
  get ephemeralStorage(): i64 { return view.int(this, 3, ""); }
  get allowedPodNumber(): i64 { return view.int(this, 4, ""); }
  /** All others, by name. */
  get scalarResources(): view.NumberMap<i64> { return view.numberMap<i64>(this, 5, "", view.VARINT); }
}

/** HostPort is a port of a node that a Pod uses. */
@final
export class HostPort extends view.Message {
  get ip(): string { return view.text_(this, 1, ""); }
  get protocol(): string { return view.text_(this, 2, ""); }
  get port(): i32 { return <i32>view.int(this, 3, ""); }
}

/** NodeUsage is the resources that the Pods of a node use. */
@final
export class NodeUsage extends view.Message {
  /** The sum of the requests of the Pods. */
  get requested(): Resource { return view.message<Resource>(this, 1, ""); }
  /** The same with a minimum for each container that requests nothing. */
  get nonZeroRequested(): Resource { return view.message<Resource>(this, 2, ""); }
  get allocatable(): Resource { return view.message<Resource>(this, 3, ""); }
  get usedPorts(): HostPort[] { return view.messages<HostPort>(this, 4, ""); }
  /** The number of Pods by the namespace/name of each claim that they use. */
  get pvcRefCounts(): view.NumberMap<i32> { return view.numberMap<i32>(this, 5, "", view.VARINT); }
  /** The number of Pods. */
  get pods(): i32 { return <i32>view.int(this, 6, ""); }
}

/** ImageState is an image that a node has. */
@final
export class ImageState extends view.Message {
  get name(): string { return view.text_(this, 1, ""); }
  /** Bytes. */
  get size(): i64 { return view.int(this, 2, ""); }
  /** The number of nodes that have it. */
  get numNodes(): i32 { return <i32>view.int(this, 3, ""); }
}

@final
class NodeImages extends view.Message {
  get images(): ImageState[] { return view.messages<ImageState>(this, 1, ""); }
}

/** The number of the call that runs: within one call nothing changes. */
let calls: u32 = 0;

/** NodeInfo is the scheduler's state of a node. It is valid during the call that it was passed to. */
@final
export class NodeInfo {
  /** The call in which version was last compared with the host's. */
  private checked: u32 = 0;
  private version: u64 = 0;
  private known: NodeUsage | null = null;
  private images: NodeImages | null = null;

  constructor(public ref_: u64, /** The Node object. */ public node: Node) {}

  private check(): void {
    if (this.checked == calls) return;
    this.checked = calls;
    const version = importNodeInfoVersion(this.ref_);
    if (version == this.version) return;
    this.version = version;
    this.known = null;
    this.images = null;
  }

  /** usage returns the resources that the Pods of the node use. */
  usage(): NodeUsage {
    this.check();
    let known = this.known;
    if (known === null) {
      host.begin();
      let n: u32;
      do n = importNodeInfo(this.ref_, host.buffer, host.limit); while (host.more(n));
      known = view.fromProto<NodeUsage>(host.taken(n));
      this.known = known;
    }
    return known;
  }

  /** imageStates returns the images that the node has, sorted by name. */
  imageStates(): ImageState[] {
    this.check();
    let images = this.images;
    if (images === null) {
      host.begin();
      let n: u32;
      do n = importNodeImages(this.ref_, host.buffer, host.limit); while (host.more(n));
      images = view.fromProto<NodeImages>(host.taken(n));
      this.images = images;
    }
    return images.images;
  }

  /** pods returns the Pods of the node, for the rest of the call. Only fields that are read are fetched. */
  pods(): Pod[] {
    host.begin();
    let n: u32;
    do n = importNodePods(this.ref_, host.buffer, host.limit); while (host.more(n));
    const list = new Array<Pod>(<i32>(n >> 3));
    for (let i = 0; i < list.length; i++) unchecked((list[i] = view.byRef<Pod>(load<u64>(host.buffer + (<usize>i << 3)), view.PARTS)));
    return list;
  }

  /** nominatedPods returns the Pods that are nominated for the node, sorted by namespace and name, for the rest of the call. */
  nominatedPods(): Pod[] {
    host.begin();
    let n: u32;
    do n = importNominatedPods(this.ref_, host.buffer, host.limit); while (host.more(n));
    const list = new Array<Pod>(<i32>(n >> 3));
    for (let i = 0; i < list.length; i++) unchecked((list[i] = view.byRef<Pod>(load<u64>(host.buffer + (<usize>i << 3)), view.PARTS)));
    return list;
  }
}

/**
 * listPods returns the Pods of the cluster that are in a namespace, or in any if it is empty, and
 * chosen by a label selector such as "app=web", sorted by namespace and name; with those that have a
 * deletionTimestamp only if terminating is set. It needs the grant "objects", and a configuration that
 * names v1/pods.
 */
export function listPods(namespace: string, selector: string, terminating: bool): Pod[] {
  host.put(namespace);
  host.addByte(0);
  host.add(selector);
  host.begin();
  let n: u32;
  do n = importListPods(terminating ? 1 : 0, host.address, host.length, host.buffer, host.limit); while (host.more(n));
  const list = new Array<Pod>(<i32>(n >> 3));
  for (let i = 0; i < list.length; i++) unchecked((list[i] = view.byRef<Pod>(load<u64>(host.buffer + (<usize>i << 3)), view.PARTS)));
  return list;
}

/**
 * countPods returns how many Pods of each node are in a namespace, or in any if it is empty, and
 * chosen by a selector; with those that have a deletionTimestamp only if terminating is set. The
 * host counts them, of many nodes side by side: ask about all nodes at once.
 */
export function countPods(infos: NodeInfo[], namespace: string, selector: Selector, terminating: bool): StaticArray<u32> {
  const counts = new StaticArray<u32>(infos.length);
  const text = selector.text();
  if (text === null || infos.length == 0) return counts;
  const refs = new StaticArray<u64>(infos.length);
  for (let i = 0; i < infos.length; i++) refs[i] = infos[i].ref_;
  host.put(namespace);
  host.addByte(0);
  host.add(text);
  host.begin();
  let n: u32;
  do {
    n = importCountPods(terminating ? 1 : 0, changetype<usize>(refs), <u32>refs.length << 3, host.address, host.length, host.buffer, host.limit);
  } while (host.more(n));
  memory.copy(changetype<usize>(counts), host.buffer, n);
  return counts;
}

let nodes: StaticArray<NodeInfo | null> = new StaticArray<NodeInfo | null>(0);

function nodeOf(ref: u64): NodeInfo {
  const slot = <i32>(<u32>ref);
  if (<u32>slot < <u32>nodes.length) {
    const known = unchecked(nodes[slot]);
    if (known !== null && known.ref_ == ref) return known;
  } else {
    nodes = view.grown<NodeInfo | null>(nodes, slot);
  }
  const info = new NodeInfo(ref, view.fromRef<Node>(ref, view.PARTS));
  unchecked((nodes[slot] = info));
  return info;
}

let lastPod: u64 = 0;
let pod_: Pod = new Pod();

function podOf(ref: u64): Pod {
  if (ref != lastPod) {
    pod_ = view.byRef<Pod>(ref, view.PARTS);
    lastPod = ref;
  }
  return pod_;
}

let cycles: StaticArray<CycleState | null> = new StaticArray<CycleState | null>(0);
let cycleRefs: StaticArray<u64> = new StaticArray<u64>(0);

function stateOf(ref: u64): CycleState {
  const slot = <i32>(<u32>ref);
  if (<u32>slot < <u32>cycles.length) {
    const state = unchecked(cycles[slot]);
    if (state !== null) {
      if (unchecked(cycleRefs[slot]) != ref) {
        state.reset_();
        unchecked((cycleRefs[slot] = ref));
      }
      return state;
    }
  } else {
    cycles = view.grown<CycleState | null>(cycles, slot);
    cycleRefs = view.grown<u64>(cycleRefs, slot);
  }
  const state = new CycleState();
  unchecked((cycles[slot] = state));
  unchecked((cycleRefs[slot] = ref));
  return state;
}

/** names returns the names in what the host wrote: n bytes, a NUL after each. */
function names(n: u32): string[] {
  const list: string[] = [];
  let start = host.buffer;
  const end = start + n;
  for (let at = start; at < end; at++) {
    if (load<u8>(at) != 0) continue;
    list.push(text.decode(start, at - start));
    start = at + 1;
  }
  return list;
}

/**
 * snapshotNodeNames returns the names of the nodes of the call: in preFilter, postFilter, reserve and
 * permit all that the scheduler knows. Only functions up to permit that are not about one node may call
 * it.
 */
export function snapshotNodeNames(): string[] {
  host.begin();
  let n: u32;
  do n = importNodeNames(host.buffer, host.limit); while (host.more(n));
  return names(n);
}

/** snapshotNode returns a node by its name, for the rest of the call; null if there is none. */
export function snapshotNode(name: string): NodeInfo | null {
  host.put(name);
  const ref = importNodeByName(host.address, host.length);
  return ref == 0 ? null : nodeOf(ref);
}

/** NodeInfos are nodes that were passed to a function, all fetched at once when the first is read. */
@final
export class NodeInfos {
  [key: number]: NodeInfo;
  private names: string[] | null = null;
  private refs: StaticArray<u64> | null = null;
  constructor(private call: u32) {}

  private check(): void {
    if (this.call != calls) throw new Error("nodes were read after the call that they were passed to");
  }

  private all(): string[] {
    let list = this.names;
    if (list === null) {
      this.check();
      list = snapshotNodeNames();
      this.names = list;
    }
    return list;
  }

  private fetched(): StaticArray<u64> {
    let refs = this.refs;
    if (refs === null) {
      this.check();
      host.begin();
      let n: u32;
      do n = importNodeRefs(host.buffer, host.limit); while (host.more(n));
      refs = new StaticArray<u64>(<i32>(n >> 3));
      memory.copy(changetype<usize>(refs), host.buffer, n);
      this.refs = refs;
    }
    return refs;
  }

  /** The number of nodes. */
  get length(): i32 {
    return this.refs === null ? this.all().length : this.refs!.length;
  }

  /** name returns the name of a node. */
  name(i: i32): string {
    return this.all()[i];
  }

  @operator("[]")
  private at_(i: i32): NodeInfo {
    return nodeOf(this.fetched()[i]);
  }
}

/** QueuedPod is a Pod in the queue; of a group of Pods, the first. */
@final
export class QueuedPod {
  /**
   * timestamp is when the Pod was last queued, and initialAttemptTimestamp when it was first queued to
   * be tried, in nanoseconds since 1970: that stays the same however often the Pod is refused, and is 0
   * if it was not yet. attempts is how many times it was tried. For a group they are those of the group.
   */
  constructor(public pod: Pod, public timestamp: i64, public initialAttemptTimestamp: i64, public attempts: i64) {}
}

/** EventResource is what an event is about. */
export enum EventResource {
  Pod = 0,
  AssignedPod = 1,
  UnscheduledPod = 2,
  TargetPod = 3,
  Node = 4,
  PersistentVolume = 5,
  PersistentVolumeClaim = 6,
  CSINode = 7,
  CSIDriver = 8,
  VolumeAttachment = 9,
  CSIStorageCapacity = 10,
  StorageClass = 11,
  ResourceClaim = 12,
  ResourceSlice = 13,
  DeviceClass = 14,
  PodGroup = 15,
  CompositePodGroup = 16,
  Any = 17,
  /** A resource that the plugin's configuration names, see ClusterEvent.of. */
  Named = 255,
}

/** Action is a set of changes, a bit for each. */
export enum Action {
  Add = 1 << 0,
  Delete = 1 << 1,
  UpdateNodeAllocatable = 1 << 2,
  UpdateNodeLabel = 1 << 3,
  UpdateNodeTaint = 1 << 4,
  UpdateNodeCondition = 1 << 5,
  UpdateNodeAnnotation = 1 << 6,
  UpdateNodeDeclaredFeature = 1 << 7,
  UpdateNodePreemptionPolicy = 1 << 8,
  UpdatePodLabel = 1 << 9,
  UpdatePodScaleDown = 1 << 10,
  UpdatePodScaleUp = 1 << 11,
  UpdatePodToleration = 1 << 12,
  UpdatePodSchedulingGatesEliminated = 1 << 13,
  UpdatePodGeneratedResourceClaim = 1 << 14,
  /** Any update. */
  Update = 0x7ffc,
}

const ASK_ABOUT_ALL: u32 = 1 << 30;
const ASK: u32 = 1 << 31;

/** EventObject is the object of an event, before or after it. */
@final
export class EventObject {
  constructor(private ref: u64) {}

  /** present reports whether there is an object. */
  get present(): bool {
    return this.ref != 0;
  }

  /** The object of an event about Pods. */
  get pod(): Pod {
    return view.byRef<Pod>(this.ref, view.PARTS);
  }

  /** The object of an event about Nodes. */
  get node(): Node {
    return view.byRef<Node>(this.ref, view.PARTS);
  }

  /** bytes returns an object of another kind as getObject does: protobuf, or JSON of a custom resource; null if there is none. */
  bytes(): ArrayBuffer | null {
    return this.ref == 0 ? null : view.objectBytes(this.ref);
  }
}

/** Hint is the answer of a queueing hint. */
@final
export class Hint {
  constructor(public queues: bool, public error: string) {}

  /** queue tries the Pod again. */
  static queue(): Hint {
    return new Hint(true, "");
  }

  /** skip leaves the Pod where it is. */
  static skip(): Hint {
    return new Hint(false, "");
  }

  /** failed is the answer of a hint that failed, and tries the Pod again. */
  static failed(reason: string): Hint {
    return new Hint(true, reason);
  }
}

/** PodHint is the answer of a hint for all Pods: those to which an event may matter. */
@final
export class PodHint {
  all_: bool = false;
  error_: string = "";
  names_: string[] = [];

  /** allPods says that the event may matter to every Pod. */
  static allPods(): PodHint {
    const h = new PodHint();
    h.all_ = true;
    return h;
  }

  /** failed is the answer of a hint that failed. The event may matter to every Pod. */
  static failed(reason: string): PodHint {
    const h = PodHint.allPods();
    h.error_ = reason;
    return h;
  }

  /** add adds a Pod. */
  add(namespace: string, name: string): PodHint {
    this.names_.push(namespace);
    this.names_.push(name);
    return this;
  }
}

/** ClusterEvent is an event that may make a Pod schedulable. */
@final
export class ClusterEvent {
  /** hint decides for each Pod that the plugin has refused; null queues all of them. oldObject is absent if the object was added, newObject if it was deleted. */
  hint: ((pod: Pod, oldObject: EventObject, newObject: EventObject) => Hint) | null = null;
  /** podHint, if not null, is asked once for the event, so that hint need not be asked about each Pod. Kubernetes calls it from 1.37 on. */
  podHint: ((oldObject: EventObject, newObject: EventObject) => PodHint) | null = null;

  /** object is the name of a resource of the plugin's configuration, see of. */
  object: string = "";

  constructor(public resource: EventResource, public actions: u32) {}

  /**
   * of returns an event about any resource that the objects of the plugin's configuration name, in
   * the same words: "scheduling.x-k8s.io/v1alpha1/podgroups". Its actions are Action.Add,
   * Action.Update and Action.Delete.
   */
  static of(object: string, actions: u32): ClusterEvent {
    const e = new ClusterEvent(EventResource.Named, actions);
    e.object = object;
    return e;
  }

  /** withHint sets hint. */
  withHint(hint: (pod: Pod, oldObject: EventObject, newObject: EventObject) => Hint): ClusterEvent {
    this.hint = hint;
    return this;
  }

  /** withPodHint sets podHint. */
  withPodHint(hint: (oldObject: EventObject, newObject: EventObject) => PodHint): ClusterEvent {
    this.podHint = hint;
    return this;
  }
}

/** NodeStatus is why a Pod does not fit on a node. Nodes without one were not examined: preemption cannot help there. */
@final
export class NodeStatus extends view.Message {
  get nodeName(): string { return view.text_(this, 1, ""); }
  get code(): Code { return <Code>view.int(this, 2, ""); }
  get reason(): string { return view.text_(this, 3, ""); }
}

@final
class NodeStatuses extends view.Message {
  get statuses(): NodeStatus[] { return view.messages<NodeStatus>(this, 1, ""); }
}

/** Scores are the scores of nodes or placements, which may be changed: scores[i] = 100 - scores[i]. */
@final
export class Scores {
  [key: number]: i64;
  private names: string[] | null = null;
  constructor(private list: StaticArray<i64>) {}

  /** The number of scores. */
  get length(): i32 {
    return this.list.length;
  }

  @operator("[]")
  private get_(i: i32): i64 {
    return this.list[i];
  }

  @operator("[]=")
  private set_(i: i32, score: i64): void {
    this.list[i] = score;
  }

  /** name returns the name of the node or placement with a score. */
  name(i: i32): string {
    let names = this.names;
    if (names === null) {
      names = snapshotNodeNames();
      this.names = names;
    }
    return names[i];
  }
}

/** SignFragment is a part of a Pod's signature. */
@final
export class SignFragment {
  /** key names the field of the value, as in "v1.Pod.Spec.NodeName"; value is JSON. */
  constructor(public key: string, public value: string) {}
}

/** Assignment is a Pod with the node that is meant for it. */
@final
export class Assignment {
  constructor(public namespace: string, public name: string, public nodeName: string) {}
}

@final
class AssignmentView extends view.Message {
  get assignment(): Assignment {
    return new Assignment(view.text_(this, 1, ""), view.text_(this, 2, ""), view.text_(this, 3, ""));
  }
}

function assignments(list: AssignmentView[]): Assignment[] {
  const out: Assignment[] = [];
  for (let i = 0; i < list.length; i++) out.push(list[i].assignment);
  return out;
}

/** PodGroup is a group of Pods that are scheduled together. */
@final
export class PodGroup extends view.Message {
  private list: Pod[] | null = null;
  /** "podgroup" or "compositepodgroup". */
  get type(): string { return view.text_(this, 1, ""); }
  get namespace(): string { return view.text_(this, 2, ""); }
  get name(): string { return view.text_(this, 3, ""); }
  /** The number of Pods that are to be scheduled. */
  get numUnscheduledPods(): i32 { return <i32>view.int(this, 4, ""); }

  /** unscheduledPods returns the Pods of the group that are to be scheduled. */
  unscheduledPods(): Pod[] {
    let list = this.list;
    if (list === null) {
      list = [];
      const count = this.numUnscheduledPods;
      for (let i = 0; i < count; i++) {
        host.begin();
        let n: u32;
        do n = importPodGroupPod(i, host.buffer, host.limit); while (host.more(n));
        list.push(view.fromProto<Pod>(host.taken(n)));
      }
      this.list = list;
    }
    return list;
  }
}

/** Placement is a set of nodes to place a group on. */
@final
export class Placement {
  /** The nodes that the Pods of the group would run on. They are set for scorePlacement. */
  assignments: Assignment[] = [];
  constructor(public name: string, public nodeNames: string[]) {}
}

@final
class PlacementView extends view.Message {
  get placement(): Placement {
    const p = new Placement(view.text_(this, 1, ""), view.texts(this, 2, ""));
    p.assignments = assignments(view.messages<AssignmentView>(this, 3, ""));
    return p;
  }
}

/** Trial is what would become of a group. */
@final
export class Trial extends view.Message {
  /** The code of the scheduler, Success if the group fits. */
  get code(): Code { return <Code>view.int(this, 1, ""); }
  get reason(): string { return view.text_(this, 2, ""); }
  /** assignments returns the Pods that found a node. */
  assignments(): Assignment[] { return assignments(view.messages<AssignmentView>(this, 3, "")); }
}

/**
 * tryPodGroup simulates the scheduling of the group of the call, as if the running Pods with the
 * UIDs were gone. It runs all plugins of the scheduler, this one on another instance. Only
 * podGroupPostFilter may call it.
 */
export function tryPodGroup(without: string[]): Trial {
  host.put("");
  for (let i = 0; i < without.length; i++) {
    host.add(without[i]);
    host.addByte(0);
  }
  host.begin();
  let n: u32;
  do n = importTryPodGroup(host.address, host.length, host.buffer, host.limit); while (host.more(n));
  return view.fromProto<Trial>(host.taken(n));
}

/** WaitingPod is a Pod that waits in permit. */
@final
export class WaitingPod extends view.Message {
  get uid(): string { return view.text_(this, 1, ""); }
  get namespace(): string { return view.text_(this, 2, ""); }
  get name(): string { return view.text_(this, 3, ""); }
  /** The plugins whose permission it waits for. */
  get pendingPlugins(): string[] { return view.texts(this, 4, ""); }
}

@final
class WaitingPods extends view.Message {
  get pods(): WaitingPod[] { return view.messages<WaitingPod>(this, 1, ""); }
}

/** waitingPods returns the Pods that wait in permit, in no order. It needs the grant "waiting-pods". */
export function waitingPods(): WaitingPod[] {
  host.begin();
  let n: u32;
  do n = importWaitingPods(host.buffer, host.limit); while (host.more(n));
  return view.fromProto<WaitingPods>(host.taken(n)).pods;
}

/** waitingPod returns the Pod that waits in permit under a UID, null if there is none. It needs the grant "waiting-pods". */
export function waitingPod(uid: string): Pod | null {
  host.put(uid);
  host.begin();
  let n: u32;
  do n = importWaitingPod(host.address, host.length, host.buffer, host.limit); while (host.more(n));
  return n == 0 ? null : view.fromProto<Pod>(host.taken(n));
}

/** allowWaitingPod gives the permission of this plugin to a Pod, and reports whether it waits. It needs the grant "waiting-pods". */
export function allowWaitingPod(uid: string): bool {
  host.put(uid);
  return importAllowWaitingPod(host.address, host.length) != 0;
}

/** rejectWaitingPod makes a Pod that waits unschedulable, and reports whether it waited. It needs the grant "waiting-pods". */
export function rejectWaitingPod(uid: string, reason: string = ""): bool {
  host.put(uid);
  host.addByte(0);
  host.add(reason);
  return importRejectWaitingPod(host.address, host.length) != 0;
}

/**
 * activate has the queue try Pods again: their namespaces and names in turn, of at most 1,000 Pods in
 * a call and 8 KiB together. It takes effect after the call, for a Pod at most once a second, in
 * preEnqueue, postFilter, reserve, unreserve, permit, preBind and postBind. It needs the grant
 * "activate".
 */
export function activate(pods: string[]): void {
  const w = new Writer();
  for (let i = 0; i < pods.length; i++) w.text(pods[i]);
  importActivate(w.address, w.length);
  w.free();
}

/**
 * applyAnnotations has the host apply annotations to an object, in postFilter, unreserve, preBind and
 * postBind, after the call: keys and values in turn, which are all that the plugin manages of it. A call
 * applies to at most 100 objects, and a request has 8 KiB. It needs the grant "apply", and a configuration
 * that names the resource with apply: [annotations].
 */
export function applyAnnotations(resource: string, namespace: string, name: string, annotations: string[]): void {
  const w = new Writer();
  w.text(resource);
  w.text(namespace);
  w.text(name);
  for (let i = 0; i < annotations.length; i++) w.text(annotations[i]);
  importApplyAnnotations(w.address, w.length);
  w.free();
}

/** applyStatus is applyAnnotations for the fields of the status that the plugin manages, a JSON object. */
export function applyStatus(resource: string, namespace: string, name: string, status: string): void {
  host.put(resource);
  host.addByte(0);
  host.add(namespace);
  host.addByte(0);
  host.add(name);
  host.addByte(0);
  host.add(status);
  importApplyStatus(host.address, host.length);
}

/**
 * awaitObject has preBind called again after an object has changed, if it returns the code Wait. The Pod
 * is refused after so many milliseconds since preBind was first called. It needs the grant "objects".
 */
export function awaitObject(resource: string, namespace: string, name: string, milliseconds: u32): void {
  host.put(resource);
  host.addByte(0);
  host.add(namespace);
  host.addByte(0);
  host.add(name);
  importAwaitObject(host.address, host.length, milliseconds);
}

/** event reports an event about the Pod that is being scheduled, of the type "Normal" or "Warning". It needs the grant "events". */
export function event(type: string, reason: string, action: string, note: string): void {
  const w = new Writer();
  w.string(1, type);
  w.string(2, reason);
  w.string(3, action);
  w.string(4, note);
  importEvent(w.address, w.length);
  w.free();
}

/**
 * get returns an object of the Kubernetes API, null if there is none. The resource is named as in
 * the plugin's configuration, such as "v1/persistentvolumeclaims"; the namespace is empty for
 * those that have none. It needs the grant "objects".
 */
export function get<T extends view.Message>(resource: string, namespace: string, name: string): T | null {
  const raw = getObject(resource, namespace, name);
  return raw === null ? null : view.fromProto<T>(raw);
}

/** list returns the objects of a resource that a label selector chooses, all if it is empty, in a namespace or in all. It needs the grant "objects". */
export function list<T extends view.Message>(resource: string, namespace: string = "", selector: string = ""): T[] {
  return listObjects<T>(resource, namespace, selector, false);
}

/** getJSON is get for custom resources and metrics, which come as JSON. */
export function getJSON<T extends view.Message>(resource: string, namespace: string, name: string): T | null {
  const raw = getObject(resource, namespace, name);
  return raw === null ? null : view.fromJSON<T>(raw);
}

/** listJSON is list for custom resources and metrics, which come as JSON. */
export function listJSON<T extends view.Message>(resource: string, namespace: string = "", selector: string = ""): T[] {
  return listObjects<T>(resource, namespace, selector, true);
}

// What the exported functions call. The transform writes those that the plugin has methods for.

function finish(status: Status | null): i32 {
  let code = 0;
  if (status !== null) {
    code = <i32>status.code;
    if (code != 0 && status.reason.length != 0) host.reason(status.reason);
  }
  leave();
  return code;
}

// @ts-ignore: decorator
@inline
function both(second: u32, code: i32): u64 {
  return <u64>second << 32 | <u64>(<u32>code);
}

function nodeName(): string {
  host.begin();
  let n: u32;
  do n = importNodeName(host.buffer, host.limit); while (host.more(n));
  return text.decode(host.buffer, n);
}

function scored(score: i64): u64 {
  const status = failed;
  failed = null;
  if (score != <i64>(<i32>score)) importResultScore(score);
  return both(<u32>score, finish(status));
}

export function preenqueue<P>(p: P, pod: u64): i32 {
  calls++;
  return finish(p.preEnqueue(podOf(pod)));
}

export function queuesort<P>(p: P, first: u64, second: u64, firstTime: i64, secondTime: i64, firstAttempt: i64, secondAttempt: i64, firstAttempts: i64, secondAttempts: i64): i32 {
  calls++;
  const a = new QueuedPod(view.byRef<Pod>(first, view.PARTS), firstTime, firstAttempt, firstAttempts);
  const b = new QueuedPod(view.byRef<Pod>(second, view.PARTS), secondTime, secondAttempt, secondAttempts);
  const order = p.less(a, b) ? -1 : p.less(b, a) ? 1 : 0;
  leave();
  return order;
}

let events: ClusterEvent[] = [];

export function eventstoregister<P>(p: P): i32 {
  calls++;
  events = p.eventsToRegister();
  const w = new Writer();
  for (let i = 0; i < events.length; i++) {
    const e = events[i];
    w.raw32(<u32>e.resource);
    w.raw32(e.actions | (e.hint === null ? 0 : ASK) | (e.podHint === null ? 0 : ASK_ABOUT_ALL));
    if (e.resource == EventResource.Named) {
      w.raw32(<u32>text.size(e.object));
      w.text(e.object);
      w.length--; // No NUL follows it.
    }
  }
  importResultClusterEvents(w.address, w.length);
  w.free();
  return finish(null);
}

/** registered returns an event. Another instance may have registered the events. */
function registered<P>(p: P, event: i32): ClusterEvent | null {
  if (events.length == 0) events = p.eventsToRegister();
  return <u32>event < <u32>events.length ? events[event] : null;
}

export function queueinghint<P>(p: P, event: i32, pod: u64, oldObject: u64, newObject: u64): u64 {
  calls++;
  const e = registered<P>(p, event);
  let h = Hint.queue();
  if (e !== null) {
    const ask = e.hint;
    if (ask !== null) h = ask(podOf(pod), new EventObject(oldObject), new EventObject(newObject));
  }
  return both(h.queues ? 1 : 0, finish(h.error.length == 0 ? null : Status.error(h.error)));
}

export function prequeueinghint<P>(p: P, event: i32, oldObject: u64, newObject: u64): i32 {
  calls++;
  const e = registered<P>(p, event);
  if (e === null) return finish(null);
  const ask = e.podHint;
  if (ask === null) return finish(null);
  const h = ask(new EventObject(oldObject), new EventObject(newObject));
  if (h.error_.length != 0) return finish(Status.error(h.error_));
  if (!h.all_) {
    const w = new Writer();
    for (let i = 0; i < h.names_.length; i++) w.text(h.names_[i]);
    importResultPods(w.address, w.length);
    w.free();
  }
  return finish(null);
}

export function prefilter<P>(p: P, cycle: u64, pod: u64): i32 {
  calls++;
  const state = stateOf(cycle);
  state.reset_();
  const status = p.preFilter(state, podOf(pod), new NodeInfos(calls));
  if (status !== null && status.nodeNames_ !== null) {
    const w = new Writer();
    const list = status.nodeNames_!;
    for (let i = 0; i < list.length; i++) w.text(list[i]);
    importResultNodeNames(w.address, w.length);
    w.free();
  }
  return finish(status);
}

export function clonecycle<P>(p: P, cycle: u64, from: u64): i32 {
  calls++;
  const original = stateOf(from);
  stateOf(cycle).copy_(original);
  return finish(null);
}

export function addpod<P>(p: P, cycle: u64, pod: u64, added: u64, node: u64): i32 {
  calls++;
  return finish(p.addPod(stateOf(cycle), podOf(pod), view.byRef<Pod>(added, view.PARTS), nodeOf(node)));
}

export function removepod<P>(p: P, cycle: u64, pod: u64, removed: u64, node: u64): i32 {
  calls++;
  return finish(p.removePod(stateOf(cycle), podOf(pod), view.byRef<Pod>(removed, view.PARTS), nodeOf(node)));
}

export function filter<P>(p: P, cycle: u64, pod: u64, node: u64): i32 {
  calls++;
  const status = p.filter(stateOf(cycle), podOf(pod), nodeOf(node));
  if (status === null) {
    leave();
    return 0;
  }
  return finish(status);
}

export function postfilter<P>(p: P, cycle: u64, pod: u64): u64 {
  calls++;
  host.begin();
  let n: u32;
  do n = importNodeStatuses(host.buffer, host.limit); while (host.more(n));
  const status = p.postFilter(stateOf(cycle), podOf(pod), view.fromProto<NodeStatuses>(host.taken(n)).statuses);
  let mode: u32 = 0;
  if (status !== null && status.nominated_ !== null) {
    mode = 1;
    host.put(status.nominated_!);
    importResultNominatedNodeName(host.address, host.length);
  }
  return both(mode, finish(status));
}

export function potentialvictims<P>(p: P, cycle: u64, pod: u64, node: u64): i32 {
  calls++;
  const victims: Pod[] = [];
  const status = p.potentialVictims(stateOf(cycle), podOf(pod), nodeOf(node), victims);
  const refs = new StaticArray<u64>(victims.length);
  for (let i = 0; i < victims.length; i++) unchecked((refs[i] = view.refOf(victims[i])));
  importResultVictims(changetype<usize>(refs), <u32>refs.length << 3);
  return finish(status);
}

export function prescore<P>(p: P, cycle: u64, pod: u64): i32 {
  calls++;
  return finish(p.preScore(stateOf(cycle), podOf(pod), new NodeInfos(calls)));
}

export function score<P>(p: P, cycle: u64, pod: u64, node: u64): u64 {
  calls++;
  return scored(p.score(stateOf(cycle), podOf(pod), nodeOf(node)));
}

/** given returns the scores of the call. */
function given(): StaticArray<i64> {
  host.begin();
  let n: u32;
  do n = importNodeScores(host.buffer, host.limit); while (host.more(n));
  const list = new StaticArray<i64>(<i32>(n >> 3));
  memory.copy(changetype<usize>(list), host.buffer, n);
  return list;
}

function changed(list: StaticArray<i64>, status: Status | null): i32 {
  if (status === null || status.isSuccess) importResultScores(changetype<usize>(list), <u32>list.length << 3);
  return finish(status);
}

export function normalizescore<P>(p: P, cycle: u64, pod: u64): i32 {
  calls++;
  const list = given();
  return changed(list, p.normalizeScore(stateOf(cycle), podOf(pod), new Scores(list)));
}

export function reserve<P>(p: P, cycle: u64, pod: u64): i32 {
  calls++;
  return finish(p.reserve(stateOf(cycle), podOf(pod), nodeName()));
}

export function unreserve<P>(p: P, cycle: u64, pod: u64): void {
  calls++;
  p.unreserve(stateOf(cycle), podOf(pod), nodeName());
  leave();
}

export function permit<P>(p: P, cycle: u64, pod: u64): u64 {
  calls++;
  const status = p.permit(stateOf(cycle), podOf(pod), nodeName());
  return both(status === null ? 0 : status.more_, finish(status));
}

export function prebindpreflight<P>(p: P, cycle: u64, pod: u64): u64 {
  calls++;
  const status = p.preBindPreFlight(stateOf(cycle), podOf(pod), nodeName());
  return both(status === null ? 0 : status.more_, finish(status));
}

export function prebind<P>(p: P, cycle: u64, pod: u64): i32 {
  calls++;
  return finish(p.preBind(stateOf(cycle), podOf(pod), nodeName()));
}

export function bind<P>(p: P, cycle: u64, pod: u64): i32 {
  calls++;
  return finish(p.bind(stateOf(cycle), podOf(pod), nodeName()));
}

export function postbind<P>(p: P, cycle: u64, pod: u64): void {
  calls++;
  p.postBind(stateOf(cycle), podOf(pod), nodeName());
  leave();
}

export function signpod<P>(p: P, pod: u64): i32 {
  calls++;
  const fragments: SignFragment[] = [];
  const status = p.signPod(podOf(pod), fragments);
  const w = new Writer();
  for (let i = 0; i < fragments.length; i++) {
    w.text(fragments[i].key);
    w.text(fragments[i].value);
  }
  importResultSignFragments(w.address, w.length);
  w.free();
  return finish(status);
}

function group(): PodGroup {
  host.begin();
  let n: u32;
  do n = importPodGroup(host.buffer, host.limit); while (host.more(n));
  return view.fromProto<PodGroup>(host.taken(n));
}

export function podgrouppostfilter<P>(p: P, cycle: u64): i32 {
  calls++;
  const nominations: Assignment[] = [];
  const status = p.podGroupPostFilter(stateOf(cycle), group(), nominations);
  const w = new Writer();
  for (let i = 0; i < nominations.length; i++) {
    const at = w.begin(1);
    w.string(1, nominations[i].namespace);
    w.string(2, nominations[i].name);
    w.string(3, nominations[i].nodeName);
    w.end(at);
  }
  importResultNominations(w.address, w.length);
  w.free();
  return finish(status);
}

export function generateplacements<P>(p: P, cycle: u64): i32 {
  calls++;
  const placements: Placement[] = [];
  const status = p.generatePlacements(stateOf(cycle), group(), snapshotNodeNames(), placements);
  const w = new Writer();
  for (let i = 0; i < placements.length; i++) {
    const at = w.begin(1);
    w.string(1, placements[i].name);
    const names = placements[i].nodeNames;
    for (let j = 0; j < names.length; j++) w.string(2, names[j]);
    w.end(at);
  }
  importResultPlacements(w.address, w.length);
  w.free();
  return finish(status);
}

export function scoreplacement<P>(p: P, cycle: u64): u64 {
  calls++;
  host.begin();
  let n: u32;
  do n = importPlacement(host.buffer, host.limit); while (host.more(n));
  const placement = view.fromProto<PlacementView>(host.taken(n)).placement;
  return scored(p.scorePlacement(stateOf(cycle), group(), placement));
}

export function normalizeplacementscore<P>(p: P, cycle: u64): i32 {
  calls++;
  const list = given();
  return changed(list, p.normalizePlacementScore(stateOf(cycle), group(), new Scores(list)));
}
