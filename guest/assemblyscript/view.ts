// Views read messages where they lie, in protobuf or JSON, field by field. The classes of
// kubewasm/api and those that kubewasm gen writes are built on the functions of this file,
// which authors of plugins need not call. They meet Message, StringMap and MessageMap.
//
// A view keeps the bytes that it reads, so it stays as it is when the next version of its
// object comes. Messages, lists and maps are made once for each view: do not change a list.
// Short strings are made once for all views that have them, see decode in text.ts.

import * as wire from "./internal/wire";
import * as json from "./internal/json";
import * as text from "./internal/text";
import * as host from "./internal/host";
import { Writer } from "./internal/writer";

// @ts-ignore: decorator
@external("k8s.io/api", "object")
declare function importObject(ref: u64, buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("k8s.io/api", "object_part")
declare function importPart(ref: u64, part: u32, fields: u64, buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("k8s.io/api", "object_entry")
declare function importEntry(ref: u64, field: u32, ptr: usize, len: u32, buf: usize, limit: u32): u32;

/** Cached is what a field of a message was read into. A message has a chain of them, in the order in which they were first read. */
class Cached {
  next_: Cached | null = null;
  /** The number of the field. */
  key_: u32 = 0;
}

/** Message is what every view is. */
export class Message extends Cached {
  /** The bytes that the message lies in, and where. */
  bytes_: ArrayBuffer | null = null;
  at_: usize = 0;
  end_: usize = 0;
  /** In JSON, the members: where the key and the value of each begin and end. */
  members_: StaticArray<usize> | null = null;
  index_: json.Index | null = null;
  /** What the fields were read into. */
  made_: Cached | null = null;
  /** The object that the bytes are fetched of when they are read, if the host knows it by ref. */
  source_: Source | null = null;
  /** What a function such as findUntolerated remembers of the message. */
  memo_: u32 = 0;
  /** The part of the object that the message is, 0 for the object. */
  part_: u8 = 0;
  json_: bool = false;
}

/** Made is the value of a field that is no message and no map. */
@final
class Made extends Cached {
  value: Object | null = null;
}

/** Source is an object that the host knows by ref. Its parts have it too. */
@final
class Source {
  constructor(public ref: u64, public kind: i32, public wanted: Wanted) {}
  /** The fields that were fetched: of the whole, all or none, and of each part those of wanted. */
  whole: u64 = 0;
  metadata: u64 = 0;
  spec: u64 = 0;
  status: u64 = 0;
  identity: Identity | null = null;
  /** How many labels and annotations were fetched one by one. */
  looked: i32 = 0;

  /** have returns the fields that were fetched of a part. */
  // @ts-ignore: decorator
  @inline
  have(part: u32): u64 {
    return load<u64>(changetype<usize>(this) + (<usize>part << 3), offsetof<Source>("whole"));
  }

  setHave(part: u32, fields: u64): void {
    store<u64>(changetype<usize>(this) + (<usize>part << 3), fields, offsetof<Source>("whole"));
  }
}

/** Identity is those fields of the identity of an object that were fetched. */
@final
class Identity {
  fields: u64 = 0;
  bytes: ArrayBuffer | null = null;
  at: usize = 0;
  end: usize = 0;
}

/** Wanted is the fields that were ever read of the parts of objects of a type. */
@final
class Wanted {
  metadata: u64 = 0;
  spec: u64 = 0;
  status: u64 = 0;
  constructor(public type: u32, public next: Wanted | null) {}

  /** and adds fields to those of a part, and returns all of them. */
  and(part: u32, fields: u64): u64 {
    const at = changetype<usize>(this) + (<usize>part - METADATA << 3);
    fields |= load<u64>(at, offsetof<Wanted>("metadata"));
    store<u64>(at, fields, offsetof<Wanted>("metadata"));
    return fields;
  }
}

let wanted: Wanted | null = null;

function wantedOf(type: u32): Wanted {
  let w = wanted;
  while (w !== null) {
    if (w.type == type) return w;
    w = w.next;
  }
  const first = new Wanted(type, wanted);
  wanted = first;
  return first;
}

/**
 * How an object is read that the host knows by ref: PARTS for one of metadata, spec and status,
 * of which the fields that are read are fetched, WHOLE for any other of the Kubernetes API, JSON
 * for a custom resource.
 */
export const PARTS: i32 = 0;
export const WHOLE: i32 = 1;
export const JSON: i32 = 2;

const METADATA: u32 = 1;
const STATUS: u32 = 3;
const NO_ENTRY: u32 = 0xffffffff;
/** name, uid and resourceVersion, by which objects differ: they are fetched for none but the objects of which they are read. */
const IDENTITY: u64 = 1 << 1 | 1 << 5 | 1 << 6;
/** How many labels and annotations are fetched one by one before all of them are. */
const LOOKED: i32 = 4;

/** fromRef returns a view of what the host knows by ref, an empty one for 0. */
export function fromRef<T extends Message>(ref: u64, kind: i32): T {
  const m = instantiate<T>();
  if (ref != 0) m.source_ = new Source(ref, kind, wantedOf(idof<T>()));
  return m;
}

/** refOf returns the ref by which the host knows the object of a view, 0 if it has none. */
export function refOf(m: Message): u64 {
  const s = m.source_;
  return s !== null && m.part_ == 0 ? s.ref : 0;
}

let slots: StaticArray<Message | null> = new StaticArray<Message | null>(0);
let types: StaticArray<u32> = new StaticArray<u32>(0);

/** byRef is fromRef for an object of which the view is kept as long as its version is the current one. */
export function byRef<T extends Message>(ref: u64, kind: i32): T {
  if (ref == 0) return instantiate<T>();
  const slot = <i32>(<u32>ref);
  if (<u32>slot >= <u32>slots.length) {
    slots = grown<Message | null>(slots, slot);
    types = grown<u32>(types, slot);
  }
  const old = unchecked(slots[slot]);
  if (old !== null && unchecked(types[slot]) == idof<T>() && refOf(old) == ref) return changetype<T>(old);
  const m = fromRef<T>(ref, kind);
  unchecked((slots[slot] = m));
  unchecked((types[slot] = idof<T>()));
  return m;
}

/** grown returns a table with a place for a slot. */
export function grown<T>(table: StaticArray<T>, slot: i32): StaticArray<T> {
  if (<u32>slot >= 1 << 20) throw new Error("the host used a slot beyond the largest");
  const larger = new StaticArray<T>(max(slot + 1, table.length * 2));
  for (let i = 0; i < table.length; i++) unchecked((larger[i] = table[i]));
  return larger;
}

/** fromProto returns a view of a message in protobuf, which must not be changed any more. */
export function fromProto<T extends Message>(raw: ArrayBuffer): T {
  const at = changetype<usize>(raw);
  return part<T>(raw, at, at + raw.byteLength, false);
}

/** fromJSON returns a view of a message in JSON, which must not be changed any more. */
export function fromJSON<T extends Message>(raw: ArrayBuffer): T {
  const at = changetype<usize>(raw);
  return part<T>(raw, at, at + raw.byteLength, true);
}

/** part returns a view of the message in [at, end) of some bytes. */
export function part<T extends Message>(bytes: ArrayBuffer | null, at: usize, end: usize, isJSON: bool, index: json.Index | null = null): T {
  const m = instantiate<T>();
  m.index_ = index;
  m.bytes_ = bytes;
  m.at_ = isJSON ? json.space(at, end) : at;
  m.end_ = end;
  m.json_ = isJSON;
  return m;
}

/** hold makes a copy of the host's answer of n bytes the bytes of m. */
function hold(m: Message, n: u32): void {
  const b = host.taken(n);
  m.bytes_ = b;
  m.at_ = changetype<usize>(b);
  m.end_ = m.at_ + n;
}

/** whole fetches an object. */
function whole(m: Message, s: Source): void {
  if (s.whole) return;
  s.whole = ~0;
  host.begin();
  let n: u32;
  do n = importObject(s.ref, host.buffer, host.limit); while (host.more(n));
  hold(m, n);
  m.json_ = s.kind == JSON;
}

/** objectBytes returns the bytes of an object of the host. */
export function objectBytes(ref: u64): ArrayBuffer {
  host.begin();
  let n: u32;
  do n = importObject(ref, host.buffer, host.limit); while (host.more(n));
  return host.taken(n);
}

/** identityOf fetches the fields of an identity that are in a mask, and returns those that are here. */
function identityOf(s: Source, fields: u64): Identity {
  let id = s.identity;
  if (id === null) {
    id = new Identity();
    s.identity = id;
  }
  if ((id.fields & fields) == 0) {
    id.fields |= fields;
    const size = askPart(s.ref, METADATA, id.fields);
    const b = host.taken(size);
    id.bytes = b;
    id.at = changetype<usize>(b);
    id.end = id.at + size;
  }
  return id;
}

// @ts-ignore: decorator
@inline
function maskOf(n: u32): u64 {
  return n < 64 ? 1 << <u64>n : ~0;
}

/** fetch gets the bytes of field n, which is none of the identity, unless they are here. */
function fetch(m: Message, s: Source, n: u32): void {
  const part = <u32>m.part_;
  if (part == 0) {
    whole(m, s);
    return;
  }
  const bit = maskOf(n);
  if ((s.have(part) & bit) == bit) return;
  const fields = s.wanted.and(part, bit);
  s.setHave(part, fields);
  hold(m, askPart(s.ref, part, fields));
}

function askPart(ref: u64, part: u32, fields: u64): u32 {
  host.begin();
  let n: u32;
  do n = importPart(ref, part, fields, host.buffer, host.limit); while (host.more(n));
  return n;
}

/**
 * find finds field n of a message, by its name in JSON. Of protobuf it leaves the value in wire,
 * of JSON in json.valueAt and valueEnd. A field that is null in JSON is not there.
 */
function find(m: Message, n: u32, name: string): bool {
  const s = m.source_;
  if (s !== null) {
    if (m.part_ == METADATA && (maskOf(n) & IDENTITY) == maskOf(n)) {
      const id = identityOf(s, maskOf(n));
      return wire.find(id.at, id.end, n, true);
    }
    fetch(m, s, n);
    if (!m.json_) return wire.find(m.at_, m.end_, n, true);
  }
  return m.json_ ? findJSON(m, name) : wire.find(m.at_, m.end_, n, false);
}

function findJSON(m: Message, name: string): bool {
  let members = m.members_;
  if (members === null) {
    members = membersOf(m);
    m.members_ = members;
  }
  for (let i = members.length - 4; i >= 0; i -= 4) {
    const end = unchecked(members[i + 1]);
    if (json.keyIs(unchecked(members[i]), end & ~ESCAPED, (end & ESCAPED) != 0, name)) {
      json.valueAt = unchecked(members[i + 2]);
      json.valueEnd = unchecked(members[i + 3]);
      return !json.isNull(json.valueAt, json.valueEnd);
    }
  }
  return false;
}

/** The size from which a document has an index. */
const INDEXED: usize = 256;

/** Marks the end of a key with escapes in the members: a guest has less than 2 GiB. */
const ESCAPED: usize = 1 << 31;

let members: StaticArray<usize> = new StaticArray<usize>(64);

/** membersOf returns where the members of an object in JSON lie. */
function membersOf(m: Message): StaticArray<usize> {
  const end = m.end_;
  if (m.index_ === null && end - m.at_ >= INDEXED) m.index_ = json.indexOf(m.at_, end);
  const index = m.index_;
  let n = 0;
  let at = json.first(m.at_, end, 0x7b);
  while (at != 0) {
    at = json.member(at, end, index);
    if (json.wrong) break;
    if (n == members.length) {
      const larger = new StaticArray<usize>(2 * n);
      memory.copy(changetype<usize>(larger), changetype<usize>(members), <usize>n * sizeof<usize>());
      members = larger;
    }
    unchecked((members[n] = json.keyAt));
    unchecked((members[n + 1] = json.keyEscaped ? json.keyEnd | ESCAPED : json.keyEnd));
    unchecked((members[n + 2] = json.valueAt));
    unchecked((members[n + 3] = json.valueEnd));
    n += 4;
  }
  return members.slice<StaticArray<usize>>(0, n);
}

/** made returns what field n was read into, null if it was not read. */
// @ts-ignore: decorator
@inline
function made(m: Message, n: u32): Cached | null {
  let c = m.made_;
  while (c !== null) {
    if (c.key_ == n) return c;
    c = c.next_;
  }
  return null;
}

/** keep makes c what field n was read into. */
function keep(m: Message, n: u32, c: Cached): void {
  c.key_ = n;
  let last = m.made_;
  if (last === null) {
    m.made_ = c;
    return;
  }
  let next = last.next_;
  while (next !== null) {
    last = next;
    next = next.next_;
  }
  last.next_ = c;
}

/** keepValue is keep for what is no message and no map. */
function keepValue(m: Message, n: u32, value: Object): void {
  const c = new Made();
  c.value = value;
  keep(m, n, c);
}

// @ts-ignore: decorator
@inline
function valueOf<T>(c: Cached): T {
  return changetype<T>(changetype<Made>(c).value);
}

/** has reports whether a message has a field. */
export function has(m: Message, n: u32, name: string): bool {
  return find(m, n, name);
}

/** text_ returns a string. */
export function text_(m: Message, n: u32, name: string): string {
  if (!find(m, n, name)) return "";
  if (m.json_) return json.str(json.valueAt, json.valueEnd);
  return wire.type == wire.BYTES ? text.decode(wire.from, wire.to - wire.from) : "";
}

/** is reports whether a string is the one given, without a copy of it. */
export function is(m: Message, n: u32, name: string, want: string): bool {
  if (!find(m, n, name)) return want.length == 0;
  if (m.json_) return json.isString(json.valueAt, json.valueEnd) && json.same(json.valueAt + 1, json.valueEnd - 1, want);
  return wire.type == wire.BYTES && text.equal(wire.from, wire.to - wire.from, want);
}

/** bytes returns a field of type bytes, in JSON base64. */
export function bytes(m: Message, n: u32, name: string): Uint8Array {
  if (!find(m, n, name)) return new Uint8Array(0);
  return m.json_ ? base64(json.valueAt, json.valueEnd) : bytesOf(wire.from, wire.type == wire.BYTES ? wire.to : wire.from);
}

function bytesOf(at: usize, end: usize): Uint8Array {
  const b = new Uint8Array(<i32>(end - at));
  memory.copy(b.dataStart, at, end - at);
  return b;
}

/** base64 decodes a JSON string in the standard or the URL alphabet of RFC 4648, up to the first wrong character. */
function base64(at: usize, end: usize): Uint8Array {
  const b = new Uint8Array(<i32>((end - at) / 4 * 3 + 3));
  if (!json.isString(at, end)) return b.subarray(0, 0);
  let bits: u32 = 0, n = 0, out = 0;
  for (at++; at < end - 1; at++) {
    const c = <u32>load<u8>(at);
    let d: u32 = 0;
    if (c - 0x41 < 26) d = c - 0x41;
    else if (c - 0x61 < 26) d = c - 0x61 + 26;
    else if (c - 0x30 < 10) d = c - 0x30 + 52;
    else if (c == 0x2b || c == 0x2d) d = 62;
    else if (c == 0x2f || c == 0x5f) d = 63;
    else if (c == 0x5c && at + 2 < end && load<u8>(at + 1) == 0x2f) { at++; d = 63; }
    else break;
    bits = bits << 6 | d;
    if ((n += 6) >= 8) {
      n -= 8;
      b[out++] = <u8>(bits >> n);
    }
  }
  return b.subarray(0, out);
}

/** int returns a whole number: of type int32, int64 or an unsigned one, or of an enumeration. */
export function int(m: Message, n: u32, name: string): i64 {
  if (!find(m, n, name)) return 0;
  if (m.json_) return json.int(json.valueAt, json.valueEnd);
  return wire.type == wire.VARINT ? <i64>wire.number : 0;
}

/** sint returns a number of type sint32 or sint64. */
export function sint(m: Message, n: u32, name: string): i64 {
  const u = int(m, n, name);
  return m.json_ ? u : wire.zigzag(<u64>u);
}

/** fixed returns a whole number of a fixed length. */
export function fixed(m: Message, n: u32, name: string): i64 {
  if (!find(m, n, name)) return 0;
  if (m.json_) return json.int(json.valueAt, json.valueEnd);
  return wire.type == wire.FIXED64 || wire.type == wire.FIXED32 ? <i64>wire.number : 0;
}

/** float returns a number of type float or double. */
export function float(m: Message, n: u32, name: string): f64 {
  if (!find(m, n, name)) return 0;
  if (m.json_) return json.float(json.valueAt, json.valueEnd);
  if (wire.type == wire.FIXED64) return reinterpret<f64>(wire.number);
  return wire.type == wire.FIXED32 ? <f64>reinterpret<f32>(<u32>wire.number) : 0;
}

/** bool_ returns a truth value. */
export function bool_(m: Message, n: u32, name: string): bool {
  if (!find(m, n, name)) return false;
  if (m.json_) return json.truth(json.valueAt, json.valueEnd);
  return wire.type == wire.VARINT && wire.number != 0;
}

/** enum_ returns the number of a value of an enumeration, whose names in JSON are names, each before its number. */
export function enum_(m: Message, n: u32, name: string, names: StaticArray<string>, numbers: StaticArray<i32>): i32 {
  if (!find(m, n, name)) return 0;
  if (!m.json_) return wire.type == wire.VARINT ? <i32>wire.number : 0;
  return enumIn(names, numbers);
}

function enumIn(names: StaticArray<string>, numbers: StaticArray<i32>): i32 {
  if (json.isString(json.valueAt, json.valueEnd)) {
    for (let i = 0; i < names.length; i++) {
      if (json.same(json.valueAt + 1, json.valueEnd - 1, names[i])) return numbers[i];
    }
  }
  return <i32>json.int(json.valueAt, json.valueEnd);
}

/** message returns the message in a field, an empty one if there is none. */
export function message<T extends Message>(m: Message, n: u32, name: string): T {
  const old = made(m, n);
  if (old !== null) return changetype<T>(old);
  const s = m.source_;
  if (s !== null && n <= STATUS && m.part_ == 0 && s.kind == PARTS) return partOf<T>(m, s, n);
  const v = one<T>(m, n, name);
  keep(m, n, v);
  return v;
}

function one<T extends Message>(m: Message, n: u32, name: string): T {
  if (!find(m, n, name)) return instantiate<T>();
  if (m.json_) return part<T>(m.bytes_, json.valueAt, json.valueEnd, true, m.index_);
  return wire.type == wire.BYTES ? part<T>(m.bytes_, wire.from, wire.to, false) : instantiate<T>();
}

/** inlined returns a message whose fields in JSON are among those of m. */
export function inlined<T extends Message>(m: Message, n: u32): T {
  if (!m.json_) return message<T>(m, n, "");
  return part<T>(m.bytes_, m.at_, m.end_, true, m.index_);
}

/** partOf returns a part of an object that is read by parts. */
function partOf<T extends Message>(m: Message, s: Source, n: u32): T {
  const v = instantiate<T>();
  v.source_ = s;
  v.part_ = <u8>n;
  keep(m, n, v);
  return v;
}

/** begin and step go through the elements of a repeated field: protobuf from wire.from to wire.to, JSON from json.valueAt. */
@unmanaged
class Walk {
  at: usize = 0;
  end: usize = 0;
  n: u32 = 0;
  json: bool = false;
  sorted: bool = false;
  /** The message, whose index is used. Something else refers to it as long as the walk lasts. */
  m: usize = 0;

  start(m: Message, n: u32, name: string): void {
    this.n = n;
    this.json = m.json_;
    this.m = changetype<usize>(m);
    this.sorted = m.source_ !== null && !m.json_;
    this.at = m.at_;
    this.end = m.end_;
    if (m.json_) {
      this.at = findJSON(m, name) ? json.first(json.valueAt, json.valueEnd, 0x5b) : 0;
      this.end = json.valueEnd;
    }
  }

  /** next reads an element: of JSON in json.valueAt and valueEnd, of protobuf in wire. */
  next(): bool {
    if (this.json) {
      if (this.at == 0) return false;
      this.at = json.element(this.at, this.end, changetype<Message>(this.m).index_);
      return !json.wrong;
    }
    while (this.at < this.end) {
      const at = wire.next(this.at, this.end);
      if (at == 0 || (this.sorted && wire.field > this.n)) {
        this.at = this.end;
        return false;
      }
      this.at = at;
      if (wire.field == this.n) return true;
    }
    return false;
  }
}

const walk: Walk = changetype<Walk>(memory.data(offsetof<Walk>()));

/** start makes walk go through a field. */
function start(m: Message, n: u32, name: string): void {
  const s = m.source_;
  if (s !== null) fetch(m, s, n);
  walk.start(m, n, name);
}

/** messages returns the elements of a repeated message, in their order. */
export function messages<T extends Message>(m: Message, n: u32, name: string): T[] {
  const old = made(m, n);
  if (old !== null) return valueOf<T[]>(old);
  const list = new Array<T>();
  start(m, n, name);
  while (walk.next()) {
    if (walk.json) list.push(part<T>(m.bytes_, json.valueAt, json.valueEnd, true, m.index_));
    else if (wire.type == wire.BYTES) list.push(part<T>(m.bytes_, wire.from, wire.to, false));
  }
  keepValue(m, n, list);
  return list;
}

/** texts returns the elements of a repeated string, in their order. */
export function texts(m: Message, n: u32, name: string): string[] {
  const old = made(m, n);
  if (old !== null) return valueOf<string[]>(old);
  const list = new Array<string>();
  start(m, n, name);
  while (walk.next()) {
    if (walk.json) list.push(json.str(json.valueAt, json.valueEnd));
    else if (wire.type == wire.BYTES) list.push(text.decode(wire.from, wire.to - wire.from));
  }
  keepValue(m, n, list);
  return list;
}

/** bytesList returns the elements of a repeated field of type bytes, in their order. */
export function bytesList(m: Message, n: u32, name: string): Uint8Array[] {
  const list: Uint8Array[] = [];
  start(m, n, name);
  while (walk.next()) {
    if (walk.json) list.push(base64(json.valueAt, json.valueEnd));
    else if (wire.type == wire.BYTES) list.push(bytesOf(wire.from, wire.to));
  }
  return list;
}

/** The encodings of numbers. */
export const VARINT: i32 = 0;
export const ZIGZAG: i32 = 1;
export const FIXED32: i32 = 2;
export const FIXED64: i32 = 3;

/** numbers returns the elements of a repeated number, packed or not. */
export function numbers<T>(m: Message, n: u32, name: string, kind: i32): T[] {
  const list: T[] = [];
  start(m, n, name);
  const one = kind == FIXED32 ? wire.FIXED32 : kind == FIXED64 ? wire.FIXED64 : wire.VARINT;
  while (walk.next()) {
    if (walk.json) {
      if (isFloat<T>()) list.push(<T>json.float(json.valueAt, json.valueEnd));
      else if (isBoolean<T>()) list.push(<T>json.truth(json.valueAt, json.valueEnd));
      else list.push(<T>json.int(json.valueAt, json.valueEnd));
    } else if (wire.type == one) {
      list.push(numberOf<T>(wire.number, kind));
    } else if (wire.type == wire.BYTES) { // Packed.
      let at = wire.from;
      const end = wire.to;
      while (at < end) {
        if (one == wire.VARINT) {
          at = wire.varint(at, end);
          if (at == 0) break;
          list.push(numberOf<T>(wire.value, kind));
        } else {
          const size: usize = one == wire.FIXED64 ? 8 : 4;
          if (end - at < size) break;
          list.push(numberOf<T>(size == 8 ? load<u64>(at) : load<u32>(at), kind));
          at += size;
        }
      }
    }
  }
  return list;
}

// @ts-ignore: decorator
@inline
function numberOf<T>(n: u64, kind: i32): T {
  if (isFloat<T>()) return sizeof<T>() == 8 ? <T>reinterpret<f64>(n) : <T>reinterpret<f32>(<u32>n);
  if (isBoolean<T>()) return <T>(n != 0);
  return kind == ZIGZAG ? <T>wire.zigzag(n) : <T>n;
}

/** enums returns the elements of a repeated enumeration. */
export function enums<T>(m: Message, n: u32, name: string, names: StaticArray<string>, values: StaticArray<i32>): T[] {
  if (!m.json_) return numbers<T>(m, n, name, VARINT);
  const list: T[] = [];
  start(m, n, name);
  while (walk.next()) list.push(<T>enumIn(names, values));
  return list;
}

/** objects returns the objects of a repeated field of a service, in their order. */
export function objects<T extends Message>(m: Message, n: u32, name: string, kind: i32): T[] {
  const refs = numbers<u64>(m, n, name, FIXED64);
  const list: T[] = [];
  for (let i = 0; i < refs.length; i++) list.push(byRef<T>(refs[i], kind));
  return list;
}

/** entryKeyAt and so on are what entry read: the key and the value. */
let entryKeyAt: usize = 0;
let entryKeyEnd: usize = 0;
let entryKeyEscaped: bool = false;
let entryValueAt: usize = 0;
let entryValueEnd: usize = 0;
let entryNumber: u64 = 0;

/** entry reads an entry of a map in protobuf, what wire has. */
function entry(): bool {
  if (wire.type != wire.BYTES) return false;
  let at = wire.from;
  const end = wire.to;
  entryKeyAt = entryKeyEnd = entryValueAt = entryValueEnd = at;
  entryNumber = 0;
  while (at < end) {
    at = wire.next(at, end);
    if (at == 0) break;
    if (wire.field == 1 && wire.type == wire.BYTES) {
      entryKeyAt = wire.from;
      entryKeyEnd = wire.to;
    } else if (wire.field == 2) {
      if (wire.type == wire.BYTES) {
        entryValueAt = wire.from;
        entryValueEnd = wire.to;
      } else {
        entryNumber = wire.number;
      }
    }
  }
  return true;
}

/** Entries walks through the entries of a map. */
class Entries extends Cached {
  constructor(protected m: Message, n: u32, protected name: string) {
    super();
    this.key_ = n;
  }

  /** begin is before the first entry. */
  protected begin(): void {
    const m = this.m;
    const s = m.source_;
    if (s !== null) fetch(m, s, this.key_);
    walk.start(m, this.key_, "");
    if (m.json_) {
      walk.at = findJSON(m, this.name) ? json.first(json.valueAt, json.valueEnd, 0x7b) : 0;
      walk.end = json.valueEnd;
    }
  }

  /** next reads an entry into entryKeyAt and so on. */
  protected next(): bool {
    if (walk.json) {
      if (walk.at == 0) return false;
      walk.at = json.member(walk.at, walk.end, this.m.index_);
      if (json.wrong) return false;
      entryKeyAt = json.keyAt;
      entryKeyEnd = json.keyEnd;
      entryKeyEscaped = json.keyEscaped;
      entryValueAt = json.valueAt;
      entryValueEnd = json.valueEnd;
      return true;
    }
    while (walk.next()) if (entry()) return true;
    return false;
  }

  /** seek reads the last entry with the key. */
  protected seek(key: string): bool {
    let found = false;
    let at: usize = 0, end: usize = 0;
    let number: u64 = 0;
    this.begin();
    while (this.next()) {
      if (walk.json ? json.keyIs(entryKeyAt, entryKeyEnd, entryKeyEscaped, key) : text.equal(entryKeyAt, entryKeyEnd - entryKeyAt, key)) {
        found = true;
        at = entryValueAt;
        end = entryValueEnd;
        number = entryNumber;
      }
    }
    entryValueAt = at;
    entryValueEnd = end;
    entryNumber = number;
    return found;
  }

  /** The number of entries. */
  get length(): i32 {
    let n = 0;
    this.begin();
    while (this.next()) n++;
    return n;
  }

  /** keys returns the keys, in the order in which the object has them. */
  keys(): string[] {
    const list: string[] = [];
    this.begin();
    while (this.next()) {
      list.push(walk.json ? json.unescaped(entryKeyAt, entryKeyEnd) : text.decode(entryKeyAt, entryKeyEnd - entryKeyAt));
    }
    return list;
  }
}

/** Answer is the value of a key that was looked up. */
@final
class Answer {
  constructor(public key: string, public value: string | null, public next: Answer | null) {}
}

/** How many answers a map keeps beside the first. */
const ANSWERS: i32 = 7;

/** StringMap is a map of strings, such as labels. Of several entries with the same key the last counts. */
@final
export class StringMap extends Entries {
  /** The key that was looked up first and its value, null if it is not there; and the next ones. */
  private first: string | null = null;
  private value: string | null = null;
  private more: Answer | null = null;

  /** has reports whether the map has the key. */
  has(key: string): bool {
    return this.lookup(key) !== null;
  }

  /** get returns the value of a key, or otherwise. */
  get(key: string, otherwise: string = ""): string {
    const value = this.lookup(key);
    return value === null ? otherwise : value;
  }

  /** lookup returns the value of a key, null if there is none. */
  lookup(key: string): string | null {
    // A plugin looks up the same few literals in every object.
    if (changetype<usize>(this.first) == changetype<usize>(key)) return this.value;
    let answers = 0;
    let a = this.more;
    while (a !== null) {
      if (changetype<usize>(a.key) == changetype<usize>(key)) return a.value;
      answers++;
      a = a.next;
    }
    const value = this.find(key);
    if (this.first === null) {
      this.first = key;
      this.value = value;
    } else if (answers < ANSWERS) {
      this.more = new Answer(key, value, this.more);
    }
    return value;
  }

  private find(key: string): string | null {
    const m = this.m;
    const s = m.source_;
    if (s !== null && m.part_ == METADATA && s.looked < LOOKED && (s.metadata >> this.key_ & 1) == 0) {
      s.looked++;
      host.put(key);
      host.begin();
      let n: u32;
      do {
        n = importEntry(s.ref, this.key_, host.address, host.length, host.buffer, host.limit);
      } while (n != NO_ENTRY && host.more(n));
      return n == NO_ENTRY ? null : text.decode(host.buffer, n);
    }
    if (!this.seek(key)) return null;
    return this.text();
  }

  private text(): string {
    return walk.json ? json.str(entryValueAt, entryValueEnd) : text.decode(entryValueAt, entryValueEnd - entryValueAt);
  }

  /** values returns the values, in the order of keys. */
  values(): string[] {
    const list: string[] = [];
    this.begin();
    while (this.next()) list.push(this.text());
    return list;
  }
}

/** strings returns a field of type map<string, string>. */
export function strings(m: Message, n: u32, name: string): StringMap {
  const old = made(m, n);
  if (old !== null) return changetype<StringMap>(old);
  const map = new StringMap(m, n, name);
  keep(m, n, map);
  return map;
}

/** MessageMap is a map of strings to messages. Of several entries with the same key the last counts. */
@final
export class MessageMap<T extends Message> extends Entries {
  /** has reports whether the map has the key. */
  has(key: string): bool {
    return this.seek(key);
  }

  /** get returns the message of a key, an empty one if there is none. */
  get(key: string): T {
    if (!this.seek(key)) return instantiate<T>();
    return part<T>(this.m.bytes_, entryValueAt, entryValueEnd, this.m.json_, this.m.index_);
  }

  /** values returns the messages, in the order of keys. */
  values(): T[] {
    const list: T[] = [];
    this.begin();
    while (this.next()) list.push(part<T>(this.m.bytes_, entryValueAt, entryValueEnd, this.m.json_, this.m.index_));
    return list;
  }
}

/** map returns a field of type map<string, …> with messages. */
export function map<T extends Message>(m: Message, n: u32, name: string): MessageMap<T> {
  return new MessageMap<T>(m, n, name);
}

/** NumberMap is a map of strings to numbers or truth values. Of several entries with the same key the last counts. */
@final
export class NumberMap<T> extends Entries {
  kind_: i32 = 0;

  /** has reports whether the map has the key. */
  has(key: string): bool {
    return this.seek(key);
  }

  /** get returns the number of a key, 0 if there is none. */
  get(key: string): T {
    return this.seek(key) ? this.read() : <T>0;
  }

  private read(): T {
    if (this.m.json_) {
      if (isFloat<T>()) return <T>json.float(entryValueAt, entryValueEnd);
      if (isBoolean<T>()) return <T>json.truth(entryValueAt, entryValueEnd);
      return <T>json.int(entryValueAt, entryValueEnd);
    }
    return numberOf<T>(entryNumber, this.kind_);
  }

  /** values returns the numbers, in the order of keys. */
  values(): T[] {
    const list: T[] = [];
    this.begin();
    while (this.next()) list.push(this.read());
    return list;
  }
}

/** numberMap returns a field of type map<string, …> with numbers. */
export function numberMap<T>(m: Message, n: u32, name: string, kind: i32): NumberMap<T> {
  const map = new NumberMap<T>(m, n, name);
  map.kind_ = kind;
  return map;
}

/** BytesMap is a map of strings to bytes, such as the data of a Secret. Of several entries with the same key the last counts. */
@final
export class BytesMap extends Entries {
  /** has reports whether the map has the key. */
  has(key: string): bool {
    return this.seek(key);
  }

  /** get returns the bytes of a key, none if there are none. */
  get(key: string): Uint8Array {
    return this.seek(key) ? this.read() : new Uint8Array(0);
  }

  private read(): Uint8Array {
    return this.m.json_ ? base64(entryValueAt, entryValueEnd) : bytesOf(entryValueAt, entryValueEnd);
  }

  /** values returns the values, in the order of keys. */
  values(): Uint8Array[] {
    const list: Uint8Array[] = [];
    this.begin();
    while (this.next()) list.push(this.read());
    return list;
  }
}

/** bytesMap returns a field of type map<string, bytes>. */
export function bytesMap(m: Message, n: u32, name: string): BytesMap {
  return new BytesMap(m, n, name);
}

/** make_ returns a view of the message in w, whose memory is given back. */
export function make_<T extends Message>(w: Writer): T {
  const b = new ArrayBuffer(w.length);
  memory.copy(changetype<usize>(b), w.address, w.length);
  w.free();
  return fromProto<T>(b);
}
