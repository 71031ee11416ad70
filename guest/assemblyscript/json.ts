// Json is a value of JSON as a tree, to be read and changed: annotations that have JSON, the
// values of patches. Objects of Kubernetes are better read by their views.
//
//     const spec = Json.parse(text);
//     if (spec !== null) cpu = spec.get("requests").get("cpu").text;

import * as reader from "./internal/json";
import * as text from "./internal/text";

/** Kind is the kind of a value. None is that of a member that there is not. */
export enum Kind {
  None,
  Null,
  Bool,
  Number,
  String,
  Array,
  Object,
}

/** How deep the values are that are read. What lies deeper is kept as it is written. */
const DEPTH: i32 = 500;

/** Json is a value of JSON. */
@final
export class Json {
  private raw: string = "";
  private names: string[] = [];
  private values: Json[] = [];

  private constructor(public kind: Kind) {}

  /** parse reads a value, null if the text is no JSON. */
  static parse(s: string): Json | null {
    return Json.read(String.UTF8.encode(s));
  }

  /** read is parse for text in UTF-8. */
  static read(raw: ArrayBuffer): Json | null {
    const at = changetype<usize>(raw);
    const end = at + raw.byteLength;
    return reader.valid(at, end) ? Json.from(reader.space(at, end), end, 0) : null;
  }

  /** none is no value: what get returns for a member that there is not. */
  static none(): Json {
    return new Json(Kind.None);
  }

  /** of returns the string s. */
  static of(s: string): Json {
    const j = new Json(Kind.String);
    j.raw = reader.quote(s);
    return j;
  }

  /** int returns a whole number. */
  static int(n: i64): Json {
    const j = new Json(Kind.Number);
    j.raw = n.toString();
    return j;
  }

  /** bool returns a truth value. */
  static bool(b: bool): Json {
    const j = new Json(Kind.Bool);
    j.raw = b ? "true" : "false";
    return j;
  }

  /** object returns an object without members. */
  static object(): Json {
    return new Json(Kind.Object);
  }

  /** array returns an array without elements. */
  static array(): Json {
    return new Json(Kind.Array);
  }

  /** strings returns an array of strings. */
  static strings(list: string[]): Json {
    const j = Json.array();
    for (let i = 0; i < list.length; i++) j.push(Json.of(list[i]));
    return j;
  }

  private static from(at: usize, end: usize, depth: i32): Json {
    const after = reader.after(at, end);
    if (after == 0) return Json.none();
    const c = load<u8>(at);
    const isObject = c == 0x7b;
    if ((isObject || c == 0x5b) && depth < DEPTH) {
      const j = new Json(isObject ? Kind.Object : Kind.Array);
      let next = reader.first(at, after, c);
      while (next != 0) {
        next = isObject ? reader.member(next, after) : reader.element(next, after);
        if (reader.wrong) break;
        if (isObject) j.names.push(reader.unescaped(reader.keyAt, reader.keyEnd));
        j.values.push(Json.from(reader.valueAt, reader.valueEnd, depth + 1));
      }
      return j;
    }
    const kind = c == 0x22 ? Kind.String : isObject ? Kind.Object : c == 0x5b ? Kind.Array : c == 0x6e ? Kind.Null : c == 0x74 || c == 0x66 ? Kind.Bool : Kind.Number;
    const j = new Json(kind);
    j.raw = text.decode(at, after - at);
    return j;
  }

  /** The number of members or elements. */
  get length(): i32 {
    return this.values.length;
  }

  /** keys returns the keys of an object, in their order. */
  keys(): string[] {
    return this.names;
  }

  /** at returns an element, or the value of a member by its place. */
  at(i: i32): Json {
    return this.values[i];
  }

  /** has reports whether an object has a member. */
  has(key: string): bool {
    return this.names.includes(key);
  }

  /** get returns the value of a member, none if there is none; of several the last. */
  get(key: string): Json {
    const i = this.names.lastIndexOf(key);
    return i < 0 ? Json.none() : this.values[i];
  }

  /** set gives an object a member, or replaces it. */
  set(key: string, value: Json): Json {
    const i = this.names.lastIndexOf(key);
    if (i < 0) {
      this.names.push(key);
      this.values.push(value);
    } else {
      this.values[i] = value;
    }
    return this;
  }

  /** delete removes a member of an object. */
  delete(key: string): void {
    const i = this.names.lastIndexOf(key);
    if (i < 0) return;
    this.names.splice(i, 1);
    this.values.splice(i, 1);
  }

  /** push adds an element to an array. */
  push(value: Json): Json {
    this.values.push(value);
    return this;
  }

  /** setAt replaces an element, removeAt removes it. */
  setAt(i: i32, value: Json): void {
    this.values[i] = value;
  }

  removeAt(i: i32): void {
    this.values.splice(i, 1);
  }

  /** The text of a string; of anything else none. */
  get text(): string {
    if (this.kind != Kind.String) return "";
    const b = String.UTF8.encode(this.raw);
    const at = changetype<usize>(b);
    return reader.str(at, at + b.byteLength);
  }

  /** The number that it is, or that the string is; 0 for anything else. */
  get number(): f64 {
    if (this.kind != Kind.Number && this.kind != Kind.String) return 0;
    const b = String.UTF8.encode(this.raw);
    const at = changetype<usize>(b);
    return reader.float(at, at + b.byteLength);
  }

  /** The whole number that it is, or that the string is, up to 2^64-1 by its bits; 0 for anything else. */
  get integer(): i64 {
    if (this.kind != Kind.Number && this.kind != Kind.String) return 0;
    const b = String.UTF8.encode(this.raw);
    const at = changetype<usize>(b);
    return reader.int(at, at + b.byteLength);
  }

  /** Whether it is true. */
  get isTrue(): bool {
    return this.raw == "true";
  }

  /** equals reports whether two values are the same, in whatever order their members are. */
  equals(other: Json): bool {
    if (this.kind != other.kind || this.raw != other.raw || this.length != other.length) return false;
    for (let i = 0; i < this.values.length; i++) {
      if (this.kind == Kind.Object) {
        if (!other.has(this.names[i]) || !this.values[i].equals(other.get(this.names[i]))) return false;
      } else if (!this.values[i].equals(other.values[i])) {
        return false;
      }
    }
    return true;
  }

  /** toString returns the value as JSON. */
  toString(): string {
    if (this.raw.length != 0) return this.raw;
    if (this.kind != Kind.Object && this.kind != Kind.Array) return "null";
    const parts: string[] = [];
    for (let i = 0; i < this.values.length; i++) {
      const value = this.values[i].toString();
      parts.push(this.kind == Kind.Object ? reader.quote(this.names[i]) + ":" + value : value);
    }
    return this.kind == Kind.Object ? "{" + parts.join(",") + "}" : "[" + parts.join(",") + "]";
  }
}

/** quote returns a string as JSON. */
export function quote(s: string): string {
  return reader.quote(s);
}
