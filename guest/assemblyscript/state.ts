// State that all instances of a plugin share: abi/SPEC.md, section 6. It needs the grant "state".
//
// The memory of a module belongs to one instance, and a plugin has several. This state lies in the
// host. A call is a transaction: it sees one moment and its own writes, which count together, or not
// at all if it traps, fails or refuses without keep.

import * as host from "./internal/host";

// @ts-ignore: decorator
@external("kubewasm/state", "get") declare function importGet(ptr: usize, len: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("kubewasm/state", "put") declare function importPut(ptr: usize, len: u32, value: usize, bytes: u32, version: i64): u32;
// @ts-ignore: decorator
@external("kubewasm/state", "delete") declare function importDelete(ptr: usize, len: u32, version: i64): u32;
// @ts-ignore: decorator
@external("kubewasm/state", "add") declare function importAdd(ptr: usize, len: u32, delta: i64, limit: i64): u32;
// @ts-ignore: decorator
@external("kubewasm/state", "list") declare function importList(ptr: usize, len: u32, after: usize, bytes: u32, buf: usize, limit: u32): u32;
// @ts-ignore: decorator
@external("kubewasm/state", "keep") declare function importKeep(): void;

/** Entry is an entry of the state. Its version changes whenever it is written. */
@final
export class Entry {
  constructor(public key: string, public value: ArrayBuffer, public version: u64) {}

  /** number is the number of a counter, 0 if the entry is none. */
  get number(): i64 {
    return this.value.byteLength == 8 ? load<i64>(changetype<usize>(this.value)) : 0;
  }

  /** text is the value as text. */
  get text(): string {
    return String.UTF8.decode(this.value);
  }
}

/** get returns the entry with a key, of 1 to 512 bytes; null if there is none. */
export function get(key: string): Entry | null {
  host.put(key);
  host.begin();
  let n: u32;
  do n = importGet(host.address, host.length, host.buffer, host.limit); while (host.more(n));
  if (n < 8) return null;
  const b = host.taken(n);
  return new Entry(key, b.slice(8), load<u64>(changetype<usize>(b)));
}

/** put writes an entry. It returns false if the state is full. */
export function put(key: string, value: ArrayBuffer): bool {
  return write(key, value, -1);
}

/** putText is put for a text. */
export function putText(key: string, value: string): bool {
  return write(key, String.UTF8.encode(value), -1);
}

/** putIf writes an entry if it has the version, or if there is none and the version is 0. It returns false if it has another, or the state is full. */
export function putIf(key: string, value: ArrayBuffer, version: u64): bool {
  return write(key, value, <i64>version);
}

function write(key: string, value: ArrayBuffer, version: i64): bool {
  host.put(key);
  return importPut(host.address, host.length, changetype<usize>(value), <u32>value.byteLength, version) == 0;
}

/** remove deletes an entry, and reports whether there was one. */
export function remove(key: string): bool {
  host.put(key);
  return importDelete(host.address, host.length, -1) == 0;
}

/** removeIf deletes an entry if it has the version, and reports whether it had. */
export function removeIf(key: string, version: u64): bool {
  host.put(key);
  return importDelete(host.address, host.length, <i64>version) == 0;
}

/** add adds to a counter, which is 0 if it is not there. It returns false, and adds nothing, if the sum would be above limit or, with a delta below 0, below it, or if the state is full. It throws if the entry is no counter. */
export function add(key: string, delta: i64, limit: i64): bool {
  host.put(key);
  const result = importAdd(host.address, host.length, delta, limit);
  if (result == 3) throw new Error("state: " + key + " is no counter");
  return result == 0;
}

/** list returns the entries whose keys begin with prefix, in the order of their keys. */
export function list(prefix: string): Entry[] {
  const entries: Entry[] = [];
  const begin = String.UTF8.encode(prefix);
  let after = new ArrayBuffer(0);
  host.begin();
  while (true) {
    let n: u32;
    do n = importList(changetype<usize>(begin), <u32>begin.byteLength, changetype<usize>(after), <u32>after.byteLength, host.buffer, host.limit); while (host.more(n));
    if (n == 0) return entries;
    const page = host.taken(n);
    for (let at: u32 = 0; at < n; ) {
      const head = changetype<usize>(page) + at;
      const key = load<u32>(head), value = load<u32>(head, 4), version = load<u64>(head, 8);
      const from = at + 16;
      after = page.slice(from, from + key);
      entries.push(new Entry(String.UTF8.decode(after), page.slice(from + key, from + key + value), version));
      at = from + key + value;
    }
  }
}

/** keep has the writes of the call count also if it refuses. */
export function keep(): void {
  importKeep();
}
