// Objects that are looked up: SPEC.md, section 6.

import * as wire from "./wire";
import * as text from "./text";
import * as host from "./host";
import * as view from "../view";

// @ts-ignore: decorator
@external("k8s.io/api", "get_object")
declare function importGetObject(ptr: usize, len: u32, buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("k8s.io/api", "list_objects")
declare function importListObjects(ptr: usize, len: u32, buf: usize, limit: u32): u32;

function question(resource: string, namespace: string): void {
  host.put(resource);
  host.addByte(0);
  host.add(namespace);
  host.addByte(0);
}

/** getObject returns an object as the host has it, null if there is none. */
export function getObject(resource: string, namespace: string, name: string): ArrayBuffer | null {
  question(resource, namespace);
  host.add(name);
  host.begin();
  let n: u32;
  do n = importGetObject(host.address, host.length, host.buffer, host.limit); while (host.more(n));
  return n == 0 ? null : host.taken(n);
}

/** listObjects returns the objects of a resource that a label selector chooses, sorted by namespace and name. They come page by page. */
export function listObjects<T extends view.Message>(resource: string, namespace: string, selector: string, isJSON: bool): T[] {
  const list: T[] = [];
  let after: string | null = "";
  while (after !== null) {
    question(resource, namespace);
    host.add(selector);
    host.addByte(0);
    host.add(after);
    host.begin();
    let n: u32;
    do n = importListObjects(host.address, host.length, host.buffer, host.limit); while (host.more(n));
    const page = host.taken(n);
    after = null;
    let at = changetype<usize>(page);
    const end = at + n;
    while (at < end) {
      at = wire.next(at, end);
      if (at == 0) break;
      if (wire.type != wire.BYTES) continue;
      if (wire.field == 1) list.push(view.part<T>(page, wire.from, wire.to, isJSON));
      else if (wire.field == 2) after = text.decode(wire.from, wire.to - wire.from);
    }
  }
  return list;
}

// The look-ups of admission and of services, whose objects come in JSON.

/**
 * get returns an object of the cluster, null if there is none. The resource is named as in the
 * plugin's configuration, which must name it; namespace is empty for objects that have none. It
 * needs the grant "objects".
 */
export function get<T extends view.Message>(resource: string, namespace: string, name: string): T | null {
  const raw = getObject(resource, namespace, name);
  return raw === null ? null : view.fromJSON<T>(raw);
}

/** getJSON is get for the JSON of an object, byte for byte. */
export function getJSON(resource: string, namespace: string, name: string): ArrayBuffer | null {
  return getObject(resource, namespace, name);
}

/** list returns the objects of a resource in a namespace, or in all if it is empty, that a selector such as "app=web,tier in (a, b)" chooses. It needs the grant "objects". */
export function list<T extends view.Message>(resource: string, namespace: string = "", selector: string = ""): T[] {
  return listObjects<T>(resource, namespace, selector, true);
}
