// What every kind of guest and host say to one another, and the buffers for it.

import * as text from "./text";

// @ts-ignore: decorator
@external("kubewasm", "config")
declare function importConfig(buf: usize, limit: u32): u32;

// @ts-ignore: decorator
@external("kubewasm", "status_reason")
declare function importStatusReason(ptr: usize, len: u32): void;

// @ts-ignore: decorator
@external("kubewasm", "log")
declare function importLog(level: i32, ptr: usize, len: u32): void;

// @ts-ignore: decorator
@external("wasi_snapshot_preview1", "fd_write")
declare function fdWrite(fd: u32, buffers: usize, count: u32, written: usize): u32;

/** The buffer for answers of the host, of limit bytes. */
export let buffer: usize = 0;
export let limit: u32 = 0;

/**
 * begin makes a buffer before the first answer. A host function is asked once more as long as
 * its answer was larger than the buffer:
 *
 *     begin();
 *     do n = ask(buffer, limit); while (more(n));
 */
// @ts-ignore: decorator
@inline
export function begin(): void {
  if (limit == 0) more(8192);
}

/** more reports whether an answer of n bytes did not fit, and makes the buffer large enough. */
// @ts-ignore: decorator
@inline
export function more(n: u32): bool {
  return n > limit && grow(n);
}

function grow(n: u32): bool {
  if (n > 0x3fffffff) throw new Error("the host's answer is too long");
  if (buffer) heap.free(buffer);
  limit = n + (n >> 1);
  buffer = heap.alloc(limit);
  return true;
}

/** taken returns a copy of the first n bytes of the buffer, which the collector frees. */
export function taken(n: u32): ArrayBuffer {
  const b = changetype<ArrayBuffer>(__new(n, idof<ArrayBuffer>()));
  memory.copy(changetype<usize>(b), buffer, n);
  return b;
}

/** Text in UTF-8 for the host, from put to the next put: at address of length bytes. */
export let address: usize = 0;
export let length: u32 = 0;
let room: u32 = 0;

/** put writes a string for the host. */
export function put(s: string): void {
  length = 0;
  add(s);
}

/** add appends a string to what put wrote. */
export function add(s: string): void {
  const most = <u32>s.length * 3;
  reserve(most);
  length += <u32>text.encode(s, address + length);
}

/** addByte appends a byte to what put wrote. */
export function addByte(b: u8): void {
  reserve(1);
  store<u8>(address + length++, b);
}

function reserve(n: u32): void {
  if (length + n <= room) return;
  room = (length + n) * 2 + 256;
  const larger = heap.alloc(room);
  memory.copy(larger, address, length);
  if (address) heap.free(address);
  address = larger;
}

/** config returns the plugin's configuration. */
export function config(): ArrayBuffer {
  begin();
  let n: u32;
  do n = importConfig(buffer, limit); while (more(n));
  return taken(n);
}

/** reason tells the host why the code of the call is not 0. */
export function reason(s: string): void {
  put(s);
  importStatusReason(address, length);
}

/** log writes a line to the host's log: what put and add wrote. */
export function log(level: i32): void {
  importLog(level, address, length);
}

/**
 * aborted is the function abort of guests: of throw, assert, and mistakes such as an index that
 * is out of range. The host's error has the text.
 */
export function aborted(message: string | null, file: string | null, line: u32, column: u32): void {
  if (aborting) unreachable(); // There is no memory for the text.
  aborting = true;
  put(message === null ? "abort" : message);
  if (file !== null && file.length != 0) {
    add(" (");
    add(file);
    add(":");
    add(line.toString());
    add(":");
    add(column.toString());
    add(")");
  }
  addByte(10);
  reserve(16);
  const vector = (address + length + 3) & ~3;
  store<u32>(vector, <u32>address);
  store<u32>(vector, length, 4);
  fdWrite(2, vector, 1, vector + 8);
  unreachable();
}

let aborting: bool = false;
