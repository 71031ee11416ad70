// Runtime hooks. The class of a plugin has the decorator @hook and the method
//
//     decide(req: Request, d: Decision): Error | null
//
// and, if it likes, configure(): Error | null.

import * as host from "./internal/host";
import * as view from "./view";
import { Writer } from "./internal/writer";
import { leave } from "./internal/plugin";
import { getObject } from "./internal/lookup";

// @ts-ignore: decorator
@external("k8s.io/hooks", "request")
declare function importRequest(buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("k8s.io/hooks", "decision")
declare function importDecision(ptr: usize, len: u32): void;

/** Stage is the moment at which the host asks. */
export enum Stage {
  PreRunPodSandbox = 1,
  PreCreateContainer = 2,
  PreStartContainer = 3,
  PostStartContainer = 4,
  PreUpdateContainerResources = 5,
  PostStopContainer = 6,
  PostStopPodSandbox = 7,
  PreRemoveRunPodSandbox = 8,
  Reconcile = 9,
}

/** Level is what the request is about: a QoS class, a pod or a container. */
export enum Level {
  QOS = 1,
  Pod = 2,
  Container = 3,
}

/** QOSClass is the QoS class that Kubernetes gives a pod. */
export enum QOSClass {
  Guaranteed = 1,
  Burstable = 2,
  BestEffort = 3,
}

/** UNLIMITED is no limit, of a quota and of memory. */
export const UNLIMITED: i64 = -1;

/** PodMeta names a pod. */
@final
export class PodMeta extends view.Message {
  get namespace(): string { return view.text_(this, 1, ""); }
  get name(): string { return view.text_(this, 2, ""); }
  get uid(): string { return view.text_(this, 3, ""); }
}

/** ContainerMeta names a container of a pod. */
@final
export class ContainerMeta extends view.Message {
  get name(): string { return view.text_(this, 1, ""); }
  /** The identifier that the runtime gave it. Empty before it is created. */
  get id(): string { return view.text_(this, 2, ""); }
}

/** Resources are the limits and weights of one cgroup. A field that is not there is not known: hasCpuShares. */
@final
export class Resources extends view.Message {
  get cpuShares(): i64 { return view.int(this, 1, ""); }
  get hasCpuShares(): bool { return view.has(this, 1, ""); }
  /** Microseconds in each period, or UNLIMITED. */
  get cfsQuota(): i64 { return view.int(this, 2, ""); }
  get hasCfsQuota(): bool { return view.has(this, 2, ""); }
  get cfsPeriod(): i64 { return view.int(this, 3, ""); }
  get hasCfsPeriod(): bool { return view.has(this, 3, ""); }
  get cpuset(): string { return view.text_(this, 4, ""); }
  get hasCpuset(): bool { return view.has(this, 4, ""); }
  get cpusetMems(): string { return view.text_(this, 5, ""); }
  get hasCpusetMems(): bool { return view.has(this, 5, ""); }
  get cpuBvt(): i64 { return view.int(this, 6, ""); }
  get hasCpuBvt(): bool { return view.has(this, 6, ""); }
  get cpuIdle(): i64 { return view.int(this, 7, ""); }
  get hasCpuIdle(): bool { return view.has(this, 7, ""); }
  get cpuBurst(): i64 { return view.int(this, 8, ""); }
  get hasCpuBurst(): bool { return view.has(this, 8, ""); }
  /** Bytes, or UNLIMITED. */
  get memoryLimit(): i64 { return view.int(this, 9, ""); }
  get hasMemoryLimit(): bool { return view.has(this, 9, ""); }
  get memoryMin(): i64 { return view.int(this, 10, ""); }
  get hasMemoryMin(): bool { return view.has(this, 10, ""); }
  get memoryLow(): i64 { return view.int(this, 11, ""); }
  get hasMemoryLow(): bool { return view.has(this, 11, ""); }
  get memoryHigh(): i64 { return view.int(this, 12, ""); }
  get hasMemoryHigh(): bool { return view.has(this, 12, ""); }
  get oomScoreAdj(): i64 { return view.int(this, 13, ""); }
  get hasOomScoreAdj(): bool { return view.has(this, 13, ""); }
  /** Other files of the cgroup, by name. */
  get unified(): view.StringMap { return view.strings(this, 14, ""); }
  get netClsClassid(): i64 { return view.int(this, 15, ""); }
  get hasNetClsClassid(): bool { return view.has(this, 15, ""); }
  get coreSchedGroup(): string { return view.text_(this, 16, ""); }
  get hasCoreSchedGroup(): bool { return view.has(this, 16, ""); }
  get resctrlGroup(): string { return view.text_(this, 17, ""); }
  get hasResctrlGroup(): bool { return view.has(this, 17, ""); }
  get resctrlSchemata(): string { return view.text_(this, 18, ""); }
  get hasResctrlSchemata(): bool { return view.has(this, 18, ""); }
}

/** NUMANode is a memory node with its CPUs, a list as the kernel writes it: "0-3,8". */
@final
export class NUMANode extends view.Message {
  get id(): i64 { return view.int(this, 1, ""); }
  get cpus(): string { return view.text_(this, 2, ""); }
  get memoryBytes(): i64 { return view.int(this, 3, ""); }
}

/** CPUGroup is the CPUs of a socket or a core. */
@final
export class CPUGroup extends view.Message {
  get id(): i64 { return view.int(this, 1, ""); }
  get cpus(): string { return view.text_(this, 2, ""); }
}

/** CPUCache is a cache and the CPUs that share it. */
@final
export class CPUCache extends view.Message {
  get level(): i64 { return view.int(this, 1, ""); }
  /** Data, Instruction or Unified. */
  get type(): string { return view.text_(this, 2, ""); }
  get sizeBytes(): i64 { return view.int(this, 3, ""); }
  get cpus(): string { return view.text_(this, 4, ""); }
}

/** NodeTopology is where the processors of the node are. CPUs that are offline are in no list. */
@final
export class NodeTopology extends view.Message {
  get onlineCpus(): string { return view.text_(this, 1, ""); }
  get numaNodes(): NUMANode[] { return view.messages<NUMANode>(this, 2, ""); }
  get sockets(): CPUGroup[] { return view.messages<CPUGroup>(this, 3, ""); }
  /** In the order of their first CPUs. The CPUs of one are its hardware threads. */
  get cores(): CPUGroup[] { return view.messages<CPUGroup>(this, 4, ""); }
  get caches(): CPUCache[] { return view.messages<CPUCache>(this, 5, ""); }
}

/** Request is what the host asks the plugin to decide on. */
@final
export class Request extends view.Message {
  get stage(): Stage { return <Stage>view.int(this, 1, ""); }
  get level(): Level { return <Level>view.int(this, 2, ""); }
  /** The pod. Empty at the level QOS. */
  get pod(): PodMeta { return view.message<PodMeta>(this, 3, ""); }
  /** The container. Empty at the levels QOS and Pod. */
  get container(): ContainerMeta { return view.message<ContainerMeta>(this, 4, ""); }
  get podLabels(): view.StringMap { return view.strings(this, 5, ""); }
  get podAnnotations(): view.StringMap { return view.strings(this, 6, ""); }
  /** The annotations that the runtime keeps of the container. */
  get containerAnnotations(): view.StringMap { return view.strings(this, 7, ""); }
  /** The cgroup of the pod, or that of the class at the level QOS. */
  get cgroupParent(): string { return view.text_(this, 8, ""); }
  get qosClass(): QOSClass { return <QOSClass>view.int(this, 9, ""); }
  /** The resources that the kubelet asks for, before any plugin changed them. */
  get resources(): Resources { return view.message<Resources>(this, 10, ""); }
  /** The environment of the container. Of a name that is there twice the last value counts. */
  get containerEnvs(): view.StringMap { return view.strings(this, 11, ""); }
  /** The name of the node. Empty if the host follows none: declare what is read of it. */
  get nodeName(): string { return view.text_(this, 12, ""); }
  get nodeLabels(): view.StringMap { return view.strings(this, 13, ""); }
  get nodeAnnotations(): view.StringMap { return view.strings(this, 14, ""); }
  /** Quantities by resource. */
  get nodeCapacity(): view.StringMap { return view.strings(this, 15, ""); }
  get nodeAllocatable(): view.StringMap { return view.strings(this, 16, ""); }
  get nodeTopology(): NodeTopology { return view.message<NodeTopology>(this, 17, ""); }
}

/** Mount is a mount of a container. */
@final
export class Mount {
  constructor(public destination: string, public source: string, public type: string, public options: string[]) {}
}

/** Device is a device file of a container: type "c", "b" or "p". */
@final
export class Device {
  /** fileMode, uid and gid are the runtime's defaults if they are less than 0. */
  fileMode: i64 = -1;
  uid: i64 = -1;
  gid: i64 = -1;
  constructor(public path: string, public type: string, public major: i64 = 0, public minor: i64 = 0) {}
}

/** Decision is the changes of a plugin. What it does not set stays the same. All but the resources needs a grant. */
@final
export class Decision {
  private resources: Writer = new Writer();
  private more: Writer = new Writer();

  private number(field: u32, n: i64): void {
    this.resources.varint(field, n);
  }

  private entry(w: Writer, field: u32, key: string, value: string): void {
    const at = w.begin(field);
    w.string(1, key);
    w.string(2, value);
    w.end(at);
  }

  /** setCpuShares sets the share of the CPU in contention, in the unit of cgroup v1: 2 to 262144. */
  setCpuShares(shares: i64): void { this.number(1, shares); }
  /** setCfsQuota sets the CPU time in each period in microseconds: at least 1000, or UNLIMITED. */
  setCfsQuota(us: i64): void { this.number(2, us); }
  setCfsPeriod(us: i64): void { this.number(3, us); }
  /** setCpuset sets the CPUs that may be used, in the kernel's list format: "0-3,8". */
  setCpuset(cpus: string): void { this.resources.string(4, cpus); }
  setCpusetMems(mems: string): void { this.resources.string(5, mems); }
  setCpuBvt(bvt: i64): void { this.number(6, bvt); }
  setCpuIdle(idle: i64): void { this.number(7, idle); }
  setCpuBurst(us: i64): void { this.number(8, us); }
  /** setMemoryLimit sets the memory that may be used, in bytes, or UNLIMITED. */
  setMemoryLimit(bytes: i64): void { this.number(9, bytes); }
  setMemoryMin(bytes: i64): void { this.number(10, bytes); }
  setMemoryLow(bytes: i64): void { this.number(11, bytes); }
  setMemoryHigh(bytes: i64): void { this.number(12, bytes); }
  setOomScoreAdj(score: i64): void { this.number(13, score); }
  /** setUnified sets another file of the cgroup: ("io.weight", "default 50") on v2. */
  setUnified(file: string, value: string): void { this.entry(this.resources, 14, file, value); }
  setNetClsClassid(classid: i64): void { this.number(15, classid); }
  setCoreSchedGroup(group: string): void { this.resources.string(16, group); }
  setResctrlGroup(group: string): void { this.resources.string(17, group); }
  setResctrlSchemata(schemata: string): void { this.resources.string(18, schemata); }

  /** setContainerAnnotation adds an annotation to the container, or replaces it. */
  setContainerAnnotation(key: string, value: string): void { this.entry(this.more, 2, key, value); }
  /** setContainerEnv adds a variable to the container's environment, or replaces it, before it is created. */
  setContainerEnv(name: string, value: string): void { this.entry(this.more, 3, name, value); }

  /** addContainerMount adds a mount to the container, before it is created. */
  addContainerMount(m: Mount): void {
    const w = this.more;
    const at = w.begin(4);
    w.string(1, m.destination);
    w.string(2, m.source);
    w.string(3, m.type);
    for (let i = 0; i < m.options.length; i++) w.string(4, m.options[i]);
    w.end(at);
  }

  /** addContainerDevice adds a device to the container, before it is created. */
  addContainerDevice(d: Device): void {
    const w = this.more;
    const at = w.begin(5);
    w.string(1, d.path);
    w.string(2, d.type);
    w.varint(3, d.major);
    w.varint(4, d.minor);
    if (d.fileMode >= 0) w.varint(5, d.fileMode);
    if (d.uid >= 0) w.varint(6, d.uid);
    if (d.gid >= 0) w.varint(7, d.gid);
    w.end(at);
  }

  reset_(): Decision {
    this.resources.reset();
    this.more.reset();
    return this;
  }

  write_(w: Writer): void {
    if (this.resources.length != 0) w.message(1, this.resources);
    w.append(this.more);
  }
}

/**
 * get returns the object of a resource that has the name of the node, null if there is none:
 *
 *     const node = get<Node>("v1/nodes", req.nodeName);
 *
 * The plugin's configuration must name the resource, and the host must know the object: otherwise
 * the plugin fails. The host asks it anew when the object has changed.
 */
export function get<T extends view.Message>(resource: string, name: string): T | null {
  const raw = getObject(resource, "", name);
  return raw === null ? null : view.fromJSON<T>(raw);
}

/** getJSON is get for the JSON of an object, byte for byte. */
export function getJSON(resource: string, name: string): ArrayBuffer | null {
  return getObject(resource, "", name);
}

const decision: Decision = new Decision();
const out: Writer = new Writer();

export function hook<P>(p: P): i32 {
  host.begin();
  let n: u32;
  do n = importRequest(host.buffer, host.limit); while (host.more(n));
  const err = p.decide(view.fromProto<Request>(host.taken(n)), decision.reset_());
  let code = 0;
  if (err !== null) {
    host.reason(err.message);
    code = 1;
  } else {
    decision.write_(out.reset());
    if (out.length != 0) importDecision(out.address, out.length);
  }
  leave();
  return code;
}
