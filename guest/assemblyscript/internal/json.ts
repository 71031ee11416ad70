// JSON, read where it lies. Positions are addresses in memory; 0 is the position after what
// is malformed. Nothing at or beyond an end is read, and nothing recurs.

import * as decimal from "./decimal";
import * as text from "./text";

/** space returns the position of the first byte that is no space. */
// @ts-ignore: decorator
@inline
export function space(at: usize, end: usize): usize {
  while (at < end && isSpace(load<u8>(at))) at++;
  return at;
}

// @ts-ignore: decorator
@inline
function isSpace(c: u8): bool {
  return c <= 0x20 && (c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09);
}

/** afterString returns the position after the string that begins at at, with its quotes. */
export function afterString(at: usize, end: usize): usize {
  at++;
  for (;;) {
    while (at + 8 <= end) { // Eight bytes without a quote and a backslash.
      const b = load<u64>(at);
      const q = b ^ 0x2222222222222222;
      const s = b ^ 0x5c5c5c5c5c5c5c5c;
      const hit = ((q - 0x0101010101010101) & ~q | (s - 0x0101010101010101) & ~s) & 0x8080808080808080;
      if (hit) {
        at += <usize>(ctz(hit) >> 3);
        break;
      }
      at += 8;
    }
    if (at >= end) return 0;
    const c = load<u8>(at++);
    if (c == 0x22) return at;
    if (c == 0x5c) {
      at++;
      escapes = true;
    }
  }
  return 0;
}

/** escapes is set by afterString if there is an escape in a string. */
let escapes: bool = false;

/**
 * Places are those of long objects and arrays of a document, as the host gives them with a request:
 * numbers of eight bytes, end << 32 | start, ascending by start. They may lack any, and are not trusted.
 */
@final
export class Places {
  /** The numbers begin at from in some bytes, which both stay as long as the places do. */
  constructor(private document: ArrayBuffer, private bytes: ArrayBuffer, private from: usize, private count: i32) {}

  /** has reports whether an address is one of the document. */
  has(at: usize): bool {
    return at - changetype<usize>(this.document) < <usize>this.document.byteLength;
  }

  /** after returns where the object or array that begins at at ends, 0 if that is not known. */
  after(at: usize, end: usize): usize {
    const start = at - changetype<usize>(this.document);
    const from = this.from;
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (<usize>load<u32>(from + (middle << 3)) < start) low = middle + 1;
      else high = middle;
    }
    if (low == this.count || <usize>load<u32>(from + (low << 3)) != start) return 0;
    const last = <usize>load<u32>(from + (low << 3), 4) - start - 1;
    return last != 0 && last < end - at && load<u8>(at + last) == load<u8>(at) + 2 ? at + last + 1 : 0;
  }
}

/** The places in the object and the old object of the request. */
let object: Places | null = null;
let oldObject: Places | null = null;

/** setPlaces sets the places in the object or in the old object, null for none. */
export function setPlaces(old: bool, places: Places | null): void {
  if (old) oldObject = places;
  else object = places;
}

/** placesAt returns the places of the document at an address, null without any. */
function placesAt(at: usize): Places | null {
  let p = object;
  if (p !== null && p.has(at)) return p;
  p = oldObject;
  return p !== null && p.has(at) ? p : null;
}

/**
 * Index has where each object and array of a document begins and ends, so that its fields are
 * found in one pass over it and not in one for each level. It is for documents that do not
 * move and do not change. Of an object of a request it has the places that the host gives.
 */
@final
export class Index {
  /**
   * places are those of the host, without which spans has where each begins and where it ends, 0
   * for one that is cut off, in the order of the beginnings.
   */
  constructor(private spans: StaticArray<usize>, public places: Places | null) {}

  /** after returns where the object or array that begins at at ends, 0 if it is cut off. */
  after(at: usize): usize {
    const spans = this.spans;
    let low = 0;
    let high = spans.length >> 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (unchecked(spans[middle << 1]) < at) low = middle + 1;
      else high = middle;
    }
    low <<= 1;
    return low < spans.length && unchecked(spans[low]) == at ? unchecked(spans[low + 1]) : 0;
  }
}

/** indexOf returns the index of the document in [at, end). */
export function indexOf(at: usize, end: usize): Index {
  const places = placesAt(at);
  return places === null ? new Index(spansOf(at, end), null) : new Index(nothing, places);
}

/** spansOf returns where the objects and arrays of a document begin and end. */
function spansOf(at: usize, end: usize): StaticArray<usize> {
  let n = 0;
  let depth = 0;
  while (at < end) {
    const c = load<u8>(at);
    if (c == 0x22) {
      at = afterString(at, end);
      if (at == 0) break;
      continue;
    }
    if ((c | 0x20) == 0x7b) {
      if (n + 2 > found.length) found = twice(found);
      if (depth == open.length) open = twice(open);
      unchecked((found[n] = at));
      unchecked((found[n + 1] = 0));
      unchecked((open[depth] = n));
      depth++;
      n += 2;
    } else if ((c | 0x20) == 0x7d) {
      if (depth == 0) break;
      depth--;
      unchecked((found[<i32>unchecked(open[depth]) + 1] = at + 1));
    }
    at++;
  }
  const spans = new StaticArray<usize>(n);
  memory.copy(changetype<usize>(spans), changetype<usize>(found), <usize>n * sizeof<usize>());
  return spans;
}

const nothing: StaticArray<usize> = new StaticArray<usize>(0);
let found: StaticArray<usize> = new StaticArray<usize>(512);
let open: StaticArray<usize> = new StaticArray<usize>(32);

function twice(list: StaticArray<usize>): StaticArray<usize> {
  const larger = new StaticArray<usize>(2 * list.length);
  memory.copy(changetype<usize>(larger), changetype<usize>(list), <usize>list.length * sizeof<usize>());
  return larger;
}

/** after returns the position after the value that begins at at, by the index of the document if there is one. */
export function after(at: usize, end: usize, index: Index | null = null): usize {
  if (at >= end) return 0;
  if (index !== null && (load<u8>(at) | 0x20) == 0x7b) {
    const places = index.places;
    if (places === null) return index.after(at);
    const known = places.after(at, end);
    if (known != 0) return known;
  }
  let depth = 0;
  for (;;) {
    const c = load<u8>(at);
    if (c == 0x22) {
      at = afterString(at, end);
      if (at == 0 || at > end) return 0;
      if (depth == 0) return at;
    } else if (c == 0x7b || c == 0x5b) {
      depth++;
      at++;
    } else if (c == 0x7d || c == 0x5d) {
      if (depth == 0) return 0;
      at++;
      if (--depth == 0) return at;
    } else if (depth == 0) {
      const start = at;
      while (at < end && plain(load<u8>(at))) at++;
      return at == start ? 0 : at;
    } else {
      at++;
    }
    if (at >= end) return 0;
  }
  return 0;
}

/** plain reports whether a byte is one of a number, true, false or null. */
// @ts-ignore: decorator
@inline
function plain(c: u8): bool {
  return c > 0x20 && c != 0x2c && c != 0x5d && c != 0x7d && c != 0x3a && c != 0x22 && c != 0x5b && c != 0x7b;
}

/** What nextMember and nextElement read last: the key between its quotes, and the value. */
export let keyAt: usize = 0;
export let keyEnd: usize = 0;
export let keyEscaped: bool = false;
export let valueAt: usize = 0;
export let valueEnd: usize = 0;

/**
 * first returns the position of the first member or element of the object or array in
 * [at, end), 0 if it is none or is empty. opening is 0x7b or 0x5b.
 */
export function first(at: usize, end: usize, opening: u8): usize {
  at = space(at, end);
  if (at >= end || load<u8>(at) != opening) return 0;
  at = space(at + 1, end);
  return at >= end || load<u8>(at) == opening + 2 ? 0 : at;
}

/**
 * member reads the member of an object at at, and returns the position of the next one; 0 after
 * the last one. wrong is set if what is there is no member.
 */
export function member(at: usize, end: usize, index: Index | null = null): usize {
  wrong = true;
  if (at >= end || load<u8>(at) != 0x22) return 0;
  keyAt = at + 1;
  escapes = false;
  at = afterString(at, end);
  if (at == 0 || at > end) return 0;
  keyEnd = at - 1;
  keyEscaped = escapes;
  at = space(at, end);
  if (at >= end || load<u8>(at) != 0x3a) return 0;
  return element(space(at + 1, end), end, index);
}

/** element reads an element of an array as member does a member. */
export function element(at: usize, end: usize, index: Index | null = null): usize {
  wrong = true;
  valueAt = at;
  at = after(at, end, index);
  if (at == 0) return 0;
  valueEnd = at;
  wrong = false;
  at = space(at, end);
  if (at >= end || load<u8>(at) != 0x2c) return 0;
  return space(at + 1, end);
}

export let wrong: bool = false;

/** isNull reports whether a value is null or nothing. */
export function isNull(at: usize, end: usize): bool {
  return at >= end || load<u8>(at) == 0x6e;
}

/** isString reports whether a value is a string: two quotes at least. */
// @ts-ignore: decorator
@inline
export function isString(at: usize, end: usize): bool {
  return at + 1 < end && load<u8>(at) == 0x22;
}

/** str returns the text of a string, an empty one for anything else. */
export function str(at: usize, end: usize): string {
  return isString(at, end) ? unescaped(at + 1, end - 1) : "";
}

function escapeIn(at: usize, end: usize): bool {
  for (; at < end; at++) if (load<u8>(at) == 0x5c) return true;
  return false;
}

/** unescaped returns the text of what lies between the quotes of a string. */
export function unescaped(at: usize, end: usize): string {
  if (!escapeIn(at, end)) return text.decode(at, end - at);
  // A byte is one unit of UTF-16 at most, and so is an escape.
  const s = __new(end - at << 1, idof<string>());
  let out = s;
  let start = at;
  while (at < end) {
    if (load<u8>(at) != 0x5c) {
      at++;
      continue;
    }
    out = text.decodeTo(start, at, out);
    start = ++at;
    if (at >= end) break;
    let unit = <u32>load<u8>(at++);
    switch (unit) {
      case 0x62: { unit = 0x08; break; }
      case 0x66: { unit = 0x0c; break; }
      case 0x6e: { unit = 0x0a; break; }
      case 0x72: { unit = 0x0d; break; }
      case 0x74: { unit = 0x09; break; }
      case 0x75: {
        unit = 0;
        for (let i = 0; i < 4 && at < end; i++) unit = unit << 4 | hex(load<u8>(at++));
        break;
      }
    }
    store<u16>(out, unit);
    out += 2;
    start = at;
  }
  out = text.decodeTo(start, end, out);
  // Half of a pair by itself is U+FFFD.
  for (let p = s; p < out; p += 2) {
    const unit = load<u16>(p);
    if ((unit & 0xf800) != 0xd800) continue;
    if (unit < 0xdc00 && p + 2 < out && (load<u16>(p + 2) & 0xfc00) == 0xdc00) p += 2;
    else store<u16>(p, 0xfffd);
  }
  return changetype<string>(__renew(s, out - s));
}

function hex(c: u8): u32 {
  if (c >= 0x30 && c <= 0x39) return c - 0x30;
  c |= 0x20;
  return c >= 0x61 && c <= 0x66 ? c - 0x61 + 10 : 0;
}

/** keyIs reports whether a key, which has escapes or not, is the name. */
// @ts-ignore: decorator
@inline
export function keyIs(at: usize, end: usize, escaped: bool, name: string): bool {
  return escaped ? unescaped(at, end) == name : text.equal(at, end - at, name);
}

/** same reports whether what lies between the quotes of a string is the text. */
export function same(at: usize, end: usize, s: string): bool {
  if (text.equal(at, end - at, s)) return true;
  return end - at > <usize>s.length && escapeIn(at, end) && unescaped(at, end) == s;
}

/** What int read last: Whole.No if it is no whole number of 64 bits. */
export let whole: Whole = Whole.No;

export enum Whole {
  No,
  /** It is an i64. */
  Signed,
  /** It is larger than an i64, and a u64. */
  Unsigned,
}

/**
 * int returns a whole number, also one in a string, as a protobuf encoder writes those of 64 bits;
 * one beyond an i64 by the bits of a u64, and 0 for anything else, such as a fraction.
 */
export function int(at: usize, end: usize): i64 {
  if (!isString(at, end)) return digits(at, end);
  if (!escapeIn(at, end)) return digits(at + 1, end - 1);
  const b = String.UTF8.encode(str(at, end));
  return digits(changetype<usize>(b), changetype<usize>(b) + b.byteLength);
}

function digits(at: usize, end: usize): i64 {
  whole = Whole.No;
  const negative = at < end && load<u8>(at) == 0x2d;
  if (negative) at++;
  if (at >= end || (load<u8>(at) == 0x30 && at + 1 < end)) return 0;
  let n: u64 = 0;
  for (; at < end; at++) {
    const d = <u64>load<u8>(at) - 0x30;
    if (d > 9 || n > u64.MAX_VALUE / 10 || n * 10 > u64.MAX_VALUE - d) return 0;
    n = n * 10 + d;
  }
  if (negative) {
    if (n > <u64>1 << 63) return 0;
    whole = Whole.Signed;
    return -<i64>n;
  }
  whole = n >> 63 ? Whole.Unsigned : Whole.Signed;
  return <i64>n;
}

/** float returns a number, also one in a string; 0 for anything else. */
export function float(at: usize, end: usize): f64 {
  if (!isString(at, end)) return afterNumber(at, end) == end ? decimal.parse(at, end) : 0;
  const s = str(at, end);
  if (s == "NaN") return NaN;
  if (s == "Infinity") return Infinity;
  if (s == "-Infinity") return -Infinity;
  const b = String.UTF8.encode(s);
  at = changetype<usize>(b);
  end = at + b.byteLength;
  return at < end && afterNumber(at, end) == end ? decimal.parse(at, end) : 0;
}

/** truth reports whether a value is true. */
// @ts-ignore: decorator
@inline
export function truth(at: usize, end: usize): bool {
  return at < end && load<u8>(at) == 0x74;
}

/** valid reports whether [at, end) is one value of JSON by RFC 8259, with nothing after it. */
export function valid(at: usize, end: usize): bool {
  // A stack of bits: the objects and arrays that are open.
  let stack: u8[] = [];
  at = space(at, end);
  let wantKey = false;
  for (;;) {
    if (at >= end) return false;
    let c = load<u8>(at);
    if (wantKey) {
      at = afterValidString(at, end);
      if (at == 0) return false;
      at = space(at, end);
      if (at >= end || load<u8>(at) != 0x3a) return false;
      at = space(at + 1, end);
      wantKey = false;
      continue;
    }
    if (c == 0x7b || c == 0x5b) {
      if (stack.length == 10000) return false;
      at = space(at + 1, end);
      if (at < end && load<u8>(at) == c + 2) {
        at++;
      } else {
        stack.push(c);
        wantKey = c == 0x7b;
        continue;
      }
    } else {
      at = c == 0x22 ? afterValidString(at, end) : afterLiteral(at, end);
      if (at == 0) return false;
    }
    for (;;) { // After a value.
      at = space(at, end);
      if (stack.length == 0) return at == end;
      if (at >= end) return false;
      c = load<u8>(at++);
      const opening = stack[stack.length - 1];
      if (c == 0x2c) {
        at = space(at, end);
        wantKey = opening == 0x7b;
        break;
      }
      if (c != opening + 2) return false;
      stack.pop();
    }
  }
  return false;
}

/** afterValidString returns the position after the string that begins at at, 0 if none does. */
function afterValidString(at: usize, end: usize): usize {
  if (load<u8>(at) != 0x22) return 0;
  for (at++; at < end; at++) {
    let c = load<u8>(at);
    if (c == 0x22) return at + 1;
    if (c < 0x20) return 0;
    if (c != 0x5c) continue;
    if (++at >= end) return 0;
    c = load<u8>(at);
    if (c == 0x75) {
      if (end - at < 5) return 0;
      for (let i = 0; i < 4; i++) if (!isHex(load<u8>(++at))) return 0;
    } else if (c != 0x22 && c != 0x5c && c != 0x2f && c != 0x62 && c != 0x66 && c != 0x6e && c != 0x72 && c != 0x74) {
      return 0;
    }
  }
  return 0;
}

function isHex(c: u8): bool {
  return isDigit(c) || ((c | 0x20) >= 0x61 && (c | 0x20) <= 0x66);
}

// @ts-ignore: decorator
@inline
function isDigit(c: u8): bool {
  return c >= 0x30 && c <= 0x39;
}

/** afterLiteral returns the position after the number, true, false or null that begins at at, 0 if none does. */
function afterLiteral(at: usize, end: usize): usize {
  const c = load<u8>(at);
  const word = c == 0x74 ? "true" : c == 0x66 ? "false" : c == 0x6e ? "null" : "";
  const n = <usize>word.length;
  if (n != 0) return end - at >= n && text.equal(at, n, word) ? at + n : 0;
  return afterNumber(at, end);
}

/** afterDigits returns the position after the digits that begin at at, 0 if none do. */
function afterDigits(at: usize, end: usize): usize {
  const start = at;
  while (at < end && isDigit(load<u8>(at))) at++;
  return at == start ? 0 : at;
}

/** afterNumber returns the position after the number that begins at at, 0 if none does. */
function afterNumber(at: usize, end: usize): usize {
  if (at < end && load<u8>(at) == 0x2d) at++;
  at = at < end && load<u8>(at) == 0x30 ? at + 1 : afterDigits(at, end);
  if (at != 0 && at < end && load<u8>(at) == 0x2e) at = afterDigits(at + 1, end);
  if (at != 0 && at < end && (load<u8>(at) | 0x20) == 0x65) {
    at++;
    if (at < end && (load<u8>(at) == 0x2b || load<u8>(at) == 0x2d)) at++;
    at = afterDigits(at, end);
  }
  return at;
}

/** quote returns a string as JSON. */
export function quote(s: string): string {
  const parts: string[] = [];
  let start = 0;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c >= 0x20 && c != 0x22 && c != 0x5c) continue;
    parts.push(s.substring(start, i));
    if (c == 0x22 || c == 0x5c) {
      parts.push("\\" + String.fromCharCode(c));
    } else {
      parts.push("\\u00" + (c < 16 ? "0" : "1") + "0123456789abcdef".charAt(c & 15));
    }
    start = i + 1;
  }
  return "\"" + (start == 0 ? s : parts.join("") + s.substring(start)) + "\"";
}
