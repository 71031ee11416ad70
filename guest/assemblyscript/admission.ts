// Admission plugins. The class of a plugin has the decorator @admission and one or more of
// these methods:
//
//     configure(): Error | null
//     validate(req: Request): Response | null
//     mutate(req: Request, patch: Patch): Response | null
//     convert(c: Conversion, patch: Patch): Error | null
//
// null admits the request. Each may be called more than once for the same request.

import * as host from "./internal/host";
import * as reader from "./internal/json";
import * as view from "./view";
import * as wire from "./internal/wire";
import { Writer } from "./internal/writer";
import { leave } from "./internal/plugin";
import { Json, Kind } from "./json";
import { ObjectMeta } from "./api/meta";
import { Container, Pod, PodSpec, PodTemplate, PodTemplateSpec, ReplicationController } from "./api/core";
import { DaemonSet, Deployment, ReplicaSet, StatefulSet } from "./api/apps";
import { CronJob, Job } from "./api/batch";

export { Json } from "./json";
export { get, getJSON, list } from "./internal/lookup";

// @ts-ignore: decorator
@external("k8s.io/admission", "request") declare function importRequest(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/admission", "object") declare function importObject(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/admission", "old_object") declare function importOldObject(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/admission", "options") declare function importOptions(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/admission", "object_proto") declare function importObjectProto(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/admission", "old_object_proto") declare function importOldObjectProto(buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("k8s.io/admission", "result") declare function importResult(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/admission", "patch") declare function importPatch(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/admission", "mutated_object") declare function importMutatedObject(ptr: usize, len: u32): void;
// @ts-ignore: decorator
@external("k8s.io/admission", "desired_api_version") declare function importDesiredAPIVersion(buf: usize, limit: u32): u32;

/** The operations of admission.k8s.io/v1. */
export namespace Operation {
  export const Create: string = "CREATE";
  export const Update: string = "UPDATE";
  export const Delete: string = "DELETE";
  export const Connect: string = "CONNECT";
}

/** GroupVersionKind names a type of objects. The group of the core API is empty. */
@final
export class GroupVersionKind extends view.Message {
  get group(): string { return view.text_(this, 1, ""); }
  get version(): string { return view.text_(this, 2, ""); }
  get kind(): string { return view.text_(this, 3, ""); }

  /** is reports whether it is the kind with a name of a group and a version. */
  is(group: string, version: string, kind: string): bool {
    return view.is(this, 3, "", kind) && view.is(this, 2, "", version) && view.is(this, 1, "", group);
  }
}

/** GroupVersionResource names a resource, such as "pods". */
@final
export class GroupVersionResource extends view.Message {
  get group(): string { return view.text_(this, 1, ""); }
  get version(): string { return view.text_(this, 2, ""); }
  get resource(): string { return view.text_(this, 3, ""); }
}

@final
class ExtraValue extends view.Message {
  get items(): string[] { return view.texts(this, 1, ""); }
}

/** UserInfo is the user that makes a request. */
@final
export class UserInfo extends view.Message {
  get username(): string { return view.text_(this, 1, ""); }
  get uid(): string { return view.text_(this, 2, ""); }
  get groups(): string[] { return view.texts(this, 3, ""); }

  /** extra returns the values that the authenticator added under a key. */
  extra(key: string): string[] {
    return view.map<ExtraValue>(this, 4, "").get(key).items;
  }
}

/** Request is a request to decide on. Its parts are fetched from the host when they are first read. */
@final
export class Request extends view.Message {
  private object_: ArrayBuffer | null = null;
  private oldObject_: ArrayBuffer | null = null;

  /** The request itself, not the object. */
  get uid(): string { return view.text_(envelope(this), 1, ""); }
  /** The type of object and oldObject. */
  get kind(): GroupVersionKind { return view.message<GroupVersionKind>(envelope(this), 2, ""); }
  /** The resource, in the version of kind. */
  get resource(): GroupVersionResource { return view.message<GroupVersionResource>(envelope(this), 3, ""); }
  /** The subresource, such as "status"; empty for the object itself. */
  get subResource(): string { return view.text_(envelope(this), 4, ""); }
  /** The object's name; empty for a CREATE if the server is to generate one. */
  get name(): string { return view.text_(envelope(this), 5, ""); }
  /** The object's namespace, empty if it has none. */
  get namespace(): string { return view.text_(envelope(this), 6, ""); }
  /** What happens to the object, one of Operation. */
  get operation(): string { return view.text_(envelope(this), 7, ""); }
  /** The user that makes the request. */
  get userInfo(): UserInfo { return view.message<UserInfo>(envelope(this), 8, ""); }
  /** Whether nothing will be stored, whatever the verdict is. */
  get dryRun(): bool { return view.bool_(envelope(this), 11, ""); }
  /** The type that the client sent, which is not kind if the API server converted the object. */
  get requestKind(): GroupVersionKind { return view.message<GroupVersionKind>(envelope(this), 13, ""); }
  get requestResource(): GroupVersionResource { return view.message<GroupVersionResource>(envelope(this), 14, ""); }
  get requestSubResource(): string { return view.text_(envelope(this), 15, ""); }

  /** object returns the object as the client wants it to be, in JSON, byte for byte; empty for a DELETE. A view reads it: Pod.fromJSON(req.object()). */
  object(): ArrayBuffer {
    let b = this.object_;
    if (b === null) {
      host.begin();
      let n: u32;
      do n = importObject(host.buffer, host.limit); while (host.more(n));
      b = host.taken(n);
      this.object_ = b;
      reader.setPlaces(false, placesOf(this, b, 101));
    }
    return b;
  }

  /** oldObject returns the object as it is stored, in JSON; empty for a CREATE and a CONNECT. */
  oldObject(): ArrayBuffer {
    let b = this.oldObject_;
    if (b === null) {
      host.begin();
      let n: u32;
      do n = importOldObject(host.buffer, host.limit); while (host.more(n));
      b = host.taken(n);
      this.oldObject_ = b;
      reader.setPlaces(true, placesOf(this, b, 102));
    }
    return b;
  }

  /** options returns the options of the operation, in JSON; empty if there are none. */
  options(): ArrayBuffer {
    host.begin();
    let n: u32;
    do n = importOptions(host.buffer, host.limit); while (host.more(n));
    return host.taken(n);
  }

  /** objectProto returns the object in protobuf, without managedFields; empty if its kind is not of the Kubernetes API. It is faster than object if a plugin reads most of it. */
  objectProto(): ArrayBuffer {
    host.begin();
    let n: u32;
    do n = importObjectProto(host.buffer, host.limit); while (host.more(n));
    return host.taken(n);
  }

  /** oldObjectProto is objectProto for the object as it is stored. */
  oldObjectProto(): ArrayBuffer {
    host.begin();
    let n: u32;
    do n = importOldObjectProto(host.buffer, host.limit); while (host.more(n));
    return host.taken(n);
  }
}

/** envelope fetches the request without its objects, once. */
function envelope(r: Request): Request {
  if (r.bytes_ === null) {
    host.begin();
    let n: u32;
    do n = importRequest(host.buffer, host.limit); while (host.more(n));
    const b = host.taken(n);
    r.bytes_ = b;
    r.at_ = changetype<usize>(b);
    r.end_ = r.at_ + n;
  }
  return r;
}

/** placesOf returns the host's places in an object of a request, of field n; null without any. */
function placesOf(r: Request, object: ArrayBuffer, n: u32): reader.Places | null {
  if (object.byteLength == 0) return null;
  envelope(r);
  if (!wire.find(r.at_, r.end_, n, false) || wire.type != wire.BYTES || wire.to - wire.from < 8) return null;
  return new reader.Places(object, r.bytes_!, wire.from, <i32>((wire.to - wire.from) >> 3));
}

/** Path is the path of a field in an object: new Path("spec").child("containers").index(0). */
@final
export class Path {
  private parent: Path | null = null;
  private form: i32 = 0;

  /** name is the first step; an empty one is the root, the object itself. */
  constructor(public step: string = "") {}

  private then(step: string, form: i32): Path {
    const p = new Path(step);
    p.form = form;
    p.parent = this;
    return p;
  }

  /** child returns the path of a field. */
  child(name: string): Path {
    return this.then(name, 0);
  }

  /** index returns the path of an element of a list. */
  index(i: i32): Path {
    return this.then(i.toString(), 1);
  }

  /** key returns the path of an entry of a map. */
  key(key: string): Path {
    return this.then(key, 2);
  }

  /** toString returns the path as in messages: spec.containers[0].image. */
  toString(): string {
    const parent = this.parent;
    const before = parent === null ? "" : parent.toString();
    if (this.form != 0) return before + "[" + this.step + "]";
    return before.length == 0 ? this.step : before + "." + this.step;
  }

  steps_(into: string[]): void {
    const parent = this.parent;
    if (parent !== null) parent.steps_(into);
    else if (this.step.length == 0) return;
    into.push(this.step);
  }
}

/** FieldError is a mistake in one field. */
@final
export class FieldError {
  constructor(public type: string, public field: string, public badValue: string, public detail: string) {}

  /** invalid reports that a value is malformed or out of bounds. */
  static invalid(path: Path, value: Json, detail: string): FieldError {
    return new FieldError("FieldValueInvalid", path.toString(), value.toString(), detail);
  }

  /** required reports that a value is missing or empty. */
  static required(path: Path, detail: string): FieldError {
    return new FieldError("FieldValueRequired", path.toString(), "", detail);
  }

  /** forbidden reports that a value would be right under other circumstances, such as for another user. */
  static forbidden(path: Path, detail: string): FieldError {
    return new FieldError("FieldValueForbidden", path.toString(), "", detail);
  }

  /** notFound reports that a value names a thing that does not exist. */
  static notFound(path: Path, value: Json): FieldError {
    return new FieldError("FieldValueNotFound", path.toString(), value.toString(), "");
  }

  /** duplicate reports that a value must be unique and is not. */
  static duplicate(path: Path, value: Json): FieldError {
    return new FieldError("FieldValueDuplicate", path.toString(), value.toString(), "");
  }

  /** notSupported reports that a value is none of the valid ones. */
  static notSupported(path: Path, value: Json, valid: string[]): FieldError {
    const list: string[] = [];
    for (let i = 0; i < valid.length; i++) list.push(reader.quote(valid[i]));
    return new FieldError("FieldValueNotSupported", path.toString(), value.toString(), list.length == 0 ? "" : "supported values: " + list.join(", "));
  }

  /** tooMany reports that a list has more items than it may. */
  static tooMany(path: Path, actual: i32, most: i32): FieldError {
    return new FieldError("FieldValueTooMany", path.toString(), actual.toString(), `must have at most ${most} items`);
  }
}

/** Response is the verdict of a plugin. null allows the request. */
@final
export class Response {
  private code: u32 = 0;
  private reason: string = "";
  private errors: FieldError[] = [];
  private warnings: string[] = [];
  private annotations: string[] = [];

  private constructor(private verdict: u32, private message: string) {}

  /** allow admits the request, for warnings and audit annotations. */
  static allow(): Response {
    return new Response(0, "");
  }

  /** deny refuses the request, with 403 Forbidden unless withCode says otherwise. The user reads the message. */
  static deny(message: string = ""): Response {
    return new Response(2, message);
  }

  /** errored is that of a plugin that could not decide: its failure policy does. */
  static errored(message: string): Response {
    return new Response(1, message);
  }

  /** withCode sets the HTTP status code of a denial, from 400 to 599. */
  withCode(code: u32): Response {
    this.code = code;
    return this;
  }

  /** withReason sets the machine-readable reason of a denial, such as "Forbidden". */
  withReason(reason: string): Response {
    this.reason = reason;
    return this;
  }

  /** withFieldError adds a mistake in a field. A response that allowed the request denies it. */
  withFieldError(err: FieldError): Response {
    if (this.verdict == 0) this.verdict = 2;
    this.errors.push(err);
    return this;
  }

  /** withWarning adds a warning, which the client shows to its user. */
  withWarning(warning: string): Response {
    this.warnings.push(warning);
    return this;
  }

  /** withAuditAnnotation adds an annotation to the audit event of the request. */
  withAuditAnnotation(key: string, value: string): Response {
    this.annotations.push(key);
    this.annotations.push(value);
    return this;
  }

  /** allowed reports whether the request is admitted. */
  get allowed(): bool {
    return this.verdict == 0;
  }

  /** answer_ tells the host what there is beside the verdict, and returns that. */
  answer_(): u64 {
    const w = out.reset();
    if (this.reason.length != 0) w.string(1, this.reason);
    for (let i = 0; i < this.errors.length; i++) {
      const e = this.errors[i];
      const at = w.begin(2);
      if (e.field.length != 0) w.string(1, e.field);
      if (e.type.length != 0) w.string(2, e.type);
      if (e.detail.length != 0) w.string(3, e.detail);
      if (e.badValue.length != 0) w.string(4, e.badValue);
      w.end(at);
    }
    for (let i = 0; i < this.warnings.length; i++) w.string(3, this.warnings[i]);
    for (let i = 0; i < this.annotations.length; i += 2) {
      const at = w.begin(4);
      w.string(1, this.annotations[i]);
      w.string(2, this.annotations[i + 1]);
      w.end(at);
    }
    if (w.length != 0) importResult(w.address, w.length);
    if (this.verdict != 0 && this.message.length != 0) host.reason(this.message);
    return <u64>(this.verdict == 2 ? this.code : 0) << 32 | this.verdict;
  }
}

const out: Writer = new Writer();

/**
 * Patch is the changes of a mutator to an object. It has only differences: to set a field to its
 * present value is no change. Later changes see the earlier ones. A change that is impossible,
 * such as to set a field of a string, is an error of the whole patch.
 */
@final
export class Patch {
  private document: Json | null = null;
  private operations: string[] = [];
  private object: Json | null = null;
  private wrong: string = "";

  constructor(private from: ArrayBuffer | null) {}

  private doc(): Json {
    let d = this.document;
    if (d === null) {
      const raw = this.from;
      d = raw === null ? null : Json.read(raw);
      if (d === null || d.kind != Kind.Object) {
        this.fail("the request has no object");
        d = Json.object();
      }
      this.document = d;
    }
    return d;
  }

  private fail(what: string): void {
    if (this.wrong.length == 0) this.wrong = "patch: " + what;
  }

  /** at returns the value at some steps, none if there is none. */
  private at(steps: string[], count: i32): Json {
    let v = this.doc();
    for (let i = 0; i < count; i++) {
      if (v.kind == Kind.Array) {
        const n = indexOf(steps[i]);
        v = n >= 0 && n < v.length ? v.at(n) : Json.none();
      } else {
        v = v.get(steps[i]);
      }
    }
    return v;
  }

  private put(parent: Json, step: string, value: Json): void {
    if (parent.kind == Kind.Array) parent.setAt(indexOf(step), value);
    else parent.set(step, value);
  }

  private operation(name: string, steps: string[], count: i32, last: string, value: Json | null): void {
    let pointer = "";
    for (let i = 0; i < count; i++) pointer += "/" + escaped(steps[i]);
    if (last.length != 0) pointer += "/" + last;
    this.operations.push(`{"op":"${name}","path":${reader.quote(pointer)}` + (value === null ? "}" : `,"value":${value.toString()}}`));
  }

  /** has reports whether there is a value at a path. */
  has(path: Path): bool {
    const steps: string[] = [];
    path.steps_(steps);
    return this.at(steps, steps.length).kind != Kind.None;
  }

  /** set gives the field at a path a value. Objects on the way that are missing, or null, are made; elements of lists are not. */
  set(path: Path, value: Json): void {
    const steps: string[] = [];
    path.steps_(steps);
    let n = steps.length;
    if (n == 0) {
      this.fail("the whole object is set by setObject");
      return;
    }
    const old = this.at(steps, n);
    if (old.kind != Kind.None) {
      if (old.equals(value)) return;
      this.operation("replace", steps, n, "", value);
      this.put(this.at(steps, n - 1), steps[n - 1], value);
      return;
    }
    // All missing objects are added by one operation, with the value in it.
    for (; n > 0; n--) {
      const parent = this.at(steps, n - 1);
      if (parent.kind == Kind.Object) {
        this.operation("add", steps, n, "", value);
        parent.set(steps[n - 1], value);
        return;
      }
      const object = Json.object().set(steps[n - 1], value);
      if (parent.kind == Kind.Null && n > 1) {
        this.operation("replace", steps, n - 1, "", object);
        this.put(this.at(steps, n - 2), steps[n - 2], object);
        return;
      }
      if (parent.kind != Kind.None) break;
      value = object;
    }
    this.fail(path.toString() + ": its parent is no object");
  }

  /** default gives the field at a path a value unless it has one other than null. It reports whether it did. */
  setDefault(path: Path, value: Json): bool {
    const steps: string[] = [];
    path.steps_(steps);
    const kind = this.at(steps, steps.length).kind;
    if (kind != Kind.None && kind != Kind.Null) return false;
    this.set(path, value);
    return true;
  }

  /** append adds an element to the list at a path, which is made if it is missing. */
  append(path: Path, value: Json): void {
    const steps: string[] = [];
    path.steps_(steps);
    const list = this.at(steps, steps.length);
    if (list.kind == Kind.None || list.kind == Kind.Null) {
      this.set(path, Json.array().push(value));
    } else if (list.kind == Kind.Array) {
      this.operation("add", steps, steps.length, "-", value);
      list.push(value);
    } else {
      this.fail(path.toString() + ": it is no list");
    }
  }

  /** remove removes the field or the element at a path, if there is one. */
  remove(path: Path): void {
    const steps: string[] = [];
    path.steps_(steps);
    const n = steps.length;
    if (n == 0 || this.at(steps, n).kind == Kind.None) return;
    this.operation("remove", steps, n, "", null);
    const parent = this.at(steps, n - 1);
    if (parent.kind == Kind.Array) parent.removeAt(indexOf(steps[n - 1]));
    else parent.delete(steps[n - 1]);
  }

  /** setObject replaces the whole object, and every change before and after it. The host computes the difference. */
  setObject(object: Json): void {
    this.object = object;
  }

  /** finish_ hands the changes to the host, and returns what is wrong with them. */
  finish_(apiVersion: string): string {
    let object = this.object;
    if (apiVersion.length != 0) {
      if (object !== null) object.set("apiVersion", Json.of(apiVersion));
      else this.set(new Path("apiVersion"), Json.of(apiVersion));
    }
    if (this.wrong.length != 0) return this.wrong;
    if (object !== null) {
      host.put(object.toString());
      importMutatedObject(host.address, host.length);
    } else if (this.operations.length != 0) {
      host.put("[" + this.operations.join(",") + "]");
      importPatch(host.address, host.length);
    }
    return "";
  }
}

function indexOf(step: string): i32 {
  if (step.length == 0 || step.length > 9) return -1;
  for (let i = 0; i < step.length; i++) {
    const c = step.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return -1;
  }
  return <i32>parseInt(step);
}

function escaped(step: string): string {
  return step.includes("~") || step.includes("/") ? step.replaceAll("~", "~0").replaceAll("/", "~1") : step;
}

/** Conversion is an object that is to be converted. */
@final
export class Conversion {
  private read: bool = false;
  private desired: string = "";
  private kind_: string = "";
  private apiVersion: string = "";

  constructor(/** The object, in JSON. */ public object: ArrayBuffer) {}

  private fetch(): void {
    if (this.read) return;
    this.read = true;
    host.begin();
    let n: u32;
    do n = importDesiredAPIVersion(host.buffer, host.limit); while (host.more(n));
    this.desired = String.UTF8.decodeUnsafe(host.buffer, n);
    const about = view.fromJSON<view.Message>(this.object);
    this.kind_ = view.text_(about, 2, "kind");
    this.apiVersion = view.text_(about, 1, "apiVersion");
  }

  /** The kind of the object. */
  get kind(): string {
    this.fetch();
    return this.kind_;
  }

  /** The group of the object, the same before and after the conversion. */
  get group(): string {
    this.fetch();
    return this.desired.includes("/") ? this.desired.substring(0, this.desired.indexOf("/")) : "";
  }

  /** The version that the object has, such as "v1beta1". */
  get from(): string {
    this.fetch();
    return this.apiVersion.substring(this.apiVersion.indexOf("/") + 1);
  }

  /** The version that the object is to have, such as "v1". */
  get to(): string {
    this.fetch();
    return this.desired.substring(this.desired.indexOf("/") + 1);
  }

  /** unsupported is the error for a kind or a version that the plugin does not know. */
  unsupported(): Error {
    return new Error(`the plugin does not convert ${this.kind} of ${this.group} from ${this.from} to ${this.to}`);
  }

  desired_(): string {
    this.fetch();
    return this.desired;
  }
}

/** PodOf is a Pod, or the Pod template of a workload. */
@final
export class PodOf {
  constructor(public metadata: ObjectMeta, public spec: PodSpec, /** The path of the Pod in the object. */ public path: Path) {}

  /** allContainers returns every container: init containers, containers and ephemeral containers, in this order. */
  allContainers(): ContainerOf[] {
    const list: ContainerOf[] = [];
    const spec = this.path.child("spec");
    const init = this.spec.initContainers;
    for (let i = 0; i < init.length; i++) list.push(new ContainerOf(init[i], spec, "initContainers", i));
    const containers = this.spec.containers;
    for (let i = 0; i < containers.length; i++) list.push(new ContainerOf(containers[i], spec, "containers", i));
    const ephemeral = this.spec.ephemeralContainers;
    for (let i = 0; i < ephemeral.length; i++) list.push(new ContainerOf(view.inlined<Container>(ephemeral[i], 1), spec, "ephemeralContainers", i));
    return list;
  }
}

/** ContainerOf is a container of a Pod. An ephemeral container has all fields of the others. */
@final
export class ContainerOf {
  constructor(public container: Container, private spec: Path, /** The list of the Pod that has the container. */ public list: string, public index: i32) {}

  /** The path of the container in the object: spec.containers[0]. */
  get path(): Path {
    return this.spec.child(this.list).index(this.index);
  }
}

function template(t: PodTemplateSpec, path: Path): PodOf {
  return new PodOf(t.metadata, t.spec, path.child("template"));
}

/**
 * podOf returns the Pod of a request: its object, or the template of a Deployment, ReplicaSet,
 * StatefulSet, DaemonSet, Job, CronJob, ReplicationController or PodTemplate; null for all other
 * objects, and if there is no object.
 */
export function podOf(req: Request): PodOf | null {
  return podIn(req.kind, req.object());
}

/** oldPodOf is podOf for the old object. */
export function oldPodOf(req: Request): PodOf | null {
  return podIn(req.kind, req.oldObject());
}

function podIn(kind: GroupVersionKind, object: ArrayBuffer): PodOf | null {
  if (object.byteLength == 0) return null;
  const spec = new Path("spec");
  if (kind.is("", "v1", "Pod")) {
    const pod = Pod.fromJSON(object);
    return new PodOf(pod.metadata, pod.spec, new Path());
  }
  if (kind.is("apps", "v1", "Deployment")) return template(Deployment.fromJSON(object).spec.template, spec);
  if (kind.is("apps", "v1", "ReplicaSet")) return template(ReplicaSet.fromJSON(object).spec.template, spec);
  if (kind.is("apps", "v1", "StatefulSet")) return template(StatefulSet.fromJSON(object).spec.template, spec);
  if (kind.is("apps", "v1", "DaemonSet")) return template(DaemonSet.fromJSON(object).spec.template, spec);
  if (kind.is("batch", "v1", "Job")) return template(Job.fromJSON(object).spec.template, spec);
  if (kind.is("batch", "v1", "CronJob")) return template(CronJob.fromJSON(object).spec.jobTemplate.spec.template, spec.child("jobTemplate").child("spec"));
  if (kind.is("", "v1", "ReplicationController")) return template(ReplicationController.fromJSON(object).spec.template, spec);
  if (kind.is("", "v1", "PodTemplate")) return template(PodTemplate.fromJSON(object).template, new Path());
  return null;
}

// What the exported functions call. The transform writes those that the plugin has methods for.

function finish(response: Response | null): u64 {
  const verdict = response === null ? 0 : response.answer_();
  reader.setPlaces(false, null); // They would keep the objects.
  reader.setPlaces(true, null);
  leave();
  return verdict;
}

export function validate<P>(p: P): u64 {
  return finish(p.validate(new Request()));
}

export function mutate<P>(p: P): u64 {
  const req = new Request();
  const patch = new Patch(req.object());
  let response = p.mutate(req, patch);
  if (response === null || response.allowed) {
    const wrong = patch.finish_("");
    if (wrong.length != 0) response = Response.errored(wrong);
  }
  return finish(response);
}

export function convert<P>(p: P): u64 {
  host.begin();
  let n: u32;
  do n = importObject(host.buffer, host.limit); while (host.more(n));
  const c = new Conversion(host.taken(n));
  const patch = new Patch(c.object);
  let err = p.convert(c, patch);
  if (err === null) {
    const wrong = patch.finish_(c.desired_());
    if (wrong.length != 0) err = new Error(wrong);
  }
  return finish(err === null ? null : Response.errored(err.message));
}
