// The plugin's configuration, for the code that the transform writes: a field of a plugin with
// the decorator @config is filled from the member of its name.
//
//     @config zone: string = "";
//     @config("max-pods") maxPods: i32 = 110;

import * as host from "./internal/host";
import * as json from "./internal/json";
import * as text from "./internal/text";

let bytes: ArrayBuffer | null = null;
let wrong: string[] = [];

/** none reports whether there is no configuration. */
export function none(): bool {
  const b = host.config();
  const at = json.space(changetype<usize>(b), changetype<usize>(b) + b.byteLength);
  return json.isNull(at, changetype<usize>(b) + b.byteLength);
}

/** parse returns the configuration, null if there is none. */
export function parse(): Value | null {
  const b = host.config();
  bytes = b; // The values lie in it.
  let at = changetype<usize>(b);
  const end = at + b.byteLength;
  at = json.space(at, end);
  if (at == end) return null;
  if (!json.valid(at, end)) {
    wrong.push("the configuration is not valid JSON");
    return null;
  }
  if (json.isNull(at, end)) return null;
  return new Value("", "", at, json.after(at, end));
}

/** mistakes returns what is wrong with the configuration, with "; " between the mistakes. */
export function mistakes(): string {
  const text = wrong.join("; ");
  wrong = [];
  bytes = null;
  return text;
}

/** Value is a value of the configuration. */
@final
export class Value {
  constructor(public key: string, private path: string, private at: usize, private end: usize) {}

  get isNull(): bool {
    return json.isNull(this.at, this.end);
  }

  private mistake(what: string): void {
    wrong.push(this.path.length == 0 ? "the configuration: " + what : this.path + ": " + what);
  }

  private want(what: string): void {
    const c = load<u8>(this.at);
    const got = c == 0x22 ? "string" : c == 0x7b ? "object" : c == 0x5b ? "array" : c == 0x74 || c == 0x66 ? "bool" : c == 0x6e ? "null" : "number";
    this.mistake(`want ${what}, got ${got}`);
  }

  string(old: string): string {
    if (json.isString(this.at, this.end)) return json.str(this.at, this.end);
    this.want("string");
    return old;
  }

  bool(old: bool): bool {
    const c = load<u8>(this.at);
    if (c == 0x74 || c == 0x66) return c == 0x74;
    this.want("bool");
    return old;
  }

  private get isNumber(): bool {
    const c = load<u8>(this.at);
    return c == 0x2d || (c >= 0x30 && c <= 0x39);
  }

  int<T>(old: T): T {
    if (!this.isNumber) {
      this.want("number");
      return old;
    }
    const n = json.int(this.at, this.end);
    if (json.whole == json.Whole.No) {
      this.mistake("want a whole number");
      return old;
    }
    // All of 64 bits are the same as an i64.
    const fits = json.whole == json.Whole.Unsigned ? sizeof<T>() == 8 && !isSigned<T>() : <i64>(<T>n) == n && (isSigned<T>() || n >= 0);
    if (!fits) {
      this.mistake(`${text.decode(this.at, this.end - this.at)} is out of range`);
      return old;
    }
    return <T>n;
  }

  float<T>(old: T): T {
    if (this.isNumber) return <T>json.float(this.at, this.end);
    this.want("number");
    return old;
  }

  /** elements returns those of an array. */
  elements(): Value[] {
    const list: Value[] = [];
    if (load<u8>(this.at) != 0x5b) {
      this.want("array");
      return list;
    }
    let at = json.first(this.at, this.end, 0x5b);
    while (at != 0) {
      at = json.element(at, this.end);
      if (json.wrong) break;
      list.push(new Value("", `${this.path}[${list.length}]`, json.valueAt, json.valueEnd));
    }
    return list;
  }

  /** members returns those of an object. */
  members(): Value[] {
    const list: Value[] = [];
    if (load<u8>(this.at) != 0x7b) {
      this.want("object");
      return list;
    }
    const seen = new Set<string>();
    let at = json.first(this.at, this.end, 0x7b);
    while (at != 0) {
      at = json.member(at, this.end);
      if (json.wrong) break;
      const key = json.unescaped(json.keyAt, json.keyEnd);
      const v = new Value(key, this.path.length == 0 ? key : this.path + "." + key, json.valueAt, json.valueEnd);
      if (seen.has(key)) v.mistake("is there twice");
      else list.push(v);
      seen.add(key);
    }
    return list;
  }

  /** unknown reports that a class has no such field, but those in names. */
  unknown(names: string): void {
    const list = names.split(" ");
    let best = "";
    let least = this.key.length / 3 + 1;
    for (let i = 0; i < list.length; i++) {
      const d = distance(this.key, list[i]);
      if (d >= least) continue;
      best = list[i];
      least = d;
    }
    this.mistake("unknown field, " + (best.length != 0 ? `did you mean "${best}"?` : "there are " + list.join(", ")));
  }
}

/** distance returns the number of edits that turn a into b: a letter added, left out, or replaced. */
function distance(a: string, b: string): i32 {
  let above = new StaticArray<i32>(b.length + 1);
  let row = new StaticArray<i32>(b.length + 1);
  for (let j = 0; j <= b.length; j++) above[j] = j;
  for (let i = 0; i < a.length; i++) {
    row[0] = i + 1;
    for (let j = 0; j < b.length; j++) {
      const cost = above[j] + ((a.charCodeAt(i) | 0x20) == (b.charCodeAt(j) | 0x20) ? 0 : 1);
      row[j + 1] = min(cost, min(above[j + 1], row[j]) + 1);
    }
    const swap = above;
    above = row;
    row = swap;
  }
  return above[b.length];
}
