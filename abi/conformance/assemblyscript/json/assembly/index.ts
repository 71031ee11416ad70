// A module whose reader of JSON gets any bytes, without a plugin: see ../../../json_test.go.

import { Json, Kind } from "kubewasm/json";

let document: ArrayBuffer = new ArrayBuffer(0);
let description: ArrayBuffer = new ArrayBuffer(0);

/** room returns room for a document. */
export function room(n: i32): usize {
  document = new ArrayBuffer(n);
  return changetype<usize>(document);
}

/** read describes the document: an address, and a length in the lower half. */
export function read(_at: usize, _n: i32): u64 {
  const value = Json.read(document);
  description = String.UTF8.encode(value === null ? "invalid" : describe(value, 0));
  return (<u64>changetype<usize>(description) << 32) | description.byteLength;
}

function hex(bytes: Uint8Array): string {
  let out = "";
  for (let i = 0; i < bytes.length; i++) out += "0123456789abcdef".charAt(bytes[i] >> 4) + "0123456789abcdef".charAt(bytes[i] & 15);
  return out;
}

function number(v: Json): string {
  if (isNaN(v.number)) return v.integer.toString() + " nan";
  const bits = new Uint8Array(8);
  store<u64>(bits.dataStart, bswap(reinterpret<u64>(v.number)));
  return v.integer.toString() + " " + hex(bits);
}

function text(s: string): string {
  return hex(Uint8Array.wrap(String.UTF8.encode(s)));
}

function describe(v: Json, depth: i32): string {
  if (depth == 20) return ".";
  switch (v.kind) {
    case Kind.None: return "nothing";
    case Kind.Null: return "null";
    case Kind.Bool: return v.isTrue ? "true" : "false";
    case Kind.Number: return number(v);
    case Kind.String: return '"' + text(v.text) + '"' + number(v);
  }
  const keys = v.keys();
  let out = "";
  for (let i = 0; i < v.length; i++) {
    if (v.kind == Kind.Object) out += text(keys[i]) + ":" + describe(v.get(keys[i]), depth + 1) + ",";
    else out += describe(v.at(i), depth + 1) + ",";
  }
  return v.kind == Kind.Object ? "{" + out + "}" : "[" + out + "]";
}
