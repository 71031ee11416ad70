// Values of the Kubernetes API: quantities, times, and others that are read into something else
// than their fields.

import * as wire from "./internal/wire";
import * as json from "./internal/json";
import * as text from "./internal/text";
import { Writer } from "./internal/writer";
import { Message, make_ } from "./view";

/** Value is a message that is read into something else than its fields. */
class Value extends Message {
  /** field_ reads the text in a field of protobuf, or the value itself in JSON, a string or not. */
  protected field_(n: u32): string {
    if (this.json_) {
      if (json.isNull(this.at_, this.end_)) return "";
      if (json.isString(this.at_, this.end_)) return json.str(this.at_, this.end_);
      return text.decode(this.at_, this.end_ - this.at_);
    }
    return wire.find(this.at_, this.end_, n, false) && wire.type == wire.BYTES ? text.decode(wire.from, wire.to - wire.from) : "";
  }

  protected number_(n: u32): i64 {
    return wire.find(this.at_, this.end_, n, false) && wire.type == wire.VARINT ? <i64>wire.number : 0;
  }

  /** exists reports whether there is a value, and not null. */
  get exists(): bool {
    return this.end_ > this.at_ && !(this.json_ && json.isNull(this.at_, this.end_));
  }

  /** write_ writes the message as it was read from protobuf. */
  write_(w: Writer): void {
    if (this.json_) throw new Error("a value that was read from JSON cannot be written to protobuf");
    for (let at = this.at_; at < this.end_; at++) w.byte(load<u8>(at));
  }
}

/**
 * Quantity is an amount of something, such as "100m" or "2Gi", with up to 18 digits; those after
 * them are rounded away from 0. What makes no sense is 0.
 */
@final
export class Quantity extends Value {
  private read: bool = false;
  private valid: bool = false;
  private mantissa: i64 = 0;
  private scale: i32 = 0;

  /** of returns the quantity that a string is. */
  static of(s: string): Quantity {
    const w = new Writer();
    w.string(1, s);
    return make_<Quantity>(w);
  }

  /** The quantity as it is written. */
  get text(): string {
    return this.field_(1);
  }

  /** isValid reports whether it is a quantity. */
  get isValid(): bool {
    this.parse();
    return this.valid;
  }

  private parse(): void {
    if (this.read) return;
    this.read = true;
    const s = this.field_(1).trim();
    let i = 0;
    let negative = false;
    if (i < s.length && (s.charCodeAt(i) == 0x2d || s.charCodeAt(i) == 0x2b)) negative = s.charCodeAt(i++) == 0x2d;
    let m: i64 = 0;
    let scale = 0;
    let digits = 0;
    let any = false;
    let point = false;
    let rest = false;
    for (; i < s.length; i++) {
      const c = s.charCodeAt(i);
      if (c == 0x2e && !point) {
        point = true;
        continue;
      }
      if (c < 0x30 || c > 0x39) break;
      any = true;
      if (digits < 18) {
        m = m * 10 + (c - 0x30);
        if (m != 0) digits++;
        if (point) scale--;
      } else {
        if (c != 0x30) rest = true;
        if (!point) scale++;
      }
    }
    if (!any) return;
    const suffix = s.substring(i);
    if (suffix.length == 2 && suffix.charCodeAt(1) == 0x69) {
      const power = "KMGTPE".indexOf(suffix.charAt(0));
      if (power < 0) return;
      this.binary(m, scale, (power + 1) * 10, rest);
    } else if (suffix.length == 1 && "num kMGTPE".includes(suffix) && suffix != " ") {
      this.set(m, scale + "num kMGTPE".indexOf(suffix) * 3 - 9, rest);
    } else if (suffix.length > 1 && (suffix.charCodeAt(0) | 0x20) == 0x65) {
      const exponent = parseInt(suffix.substring(1));
      if (isNaN(exponent) || Math.abs(exponent) > 10000) return;
      this.set(m, scale + <i32>exponent, rest);
    } else if (suffix.length == 0) {
      this.set(m, scale, rest);
    }
    if (negative) this.mantissa = -this.mantissa;
  }

  private set(m: i64, scale: i32, rest: bool): void {
    this.valid = true;
    this.mantissa = rest ? m + 1 : m;
    this.scale = scale;
    if (scale < -9) { // Nothing is smaller than a nano.
      this.mantissa = down(this.mantissa, -9 - scale);
      this.scale = -9;
    }
  }

  /** binary is set for m * 10^scale * 2^bits, at most the largest i64. */
  private binary(m: i64, scale: i32, bits: i32, rest: bool): void {
    for (; scale < 0 && m % 10 == 0; scale++) m /= 10;
    while (bits > 0 && scale < 0 && m < i64.MAX_VALUE / 2) {
      m <<= 1;
      bits--;
      for (; scale < 0 && m % 10 == 0; scale++) m /= 10;
    }
    if (bits > 0) { // Digits that do not count any more.
      if (scale < 0) m = down(m, -scale);
      scale = scale < 0 ? 0 : scale;
      if (bits + (64 - <i32>clz(m)) > 63) {
        this.valid = true;
        this.mantissa = i64.MAX_VALUE;
        return;
      }
      m <<= bits;
    }
    this.set(m, scale, rest);
    if (this.scale > 0) {
      this.mantissa = up(this.mantissa, this.scale);
      this.scale = 0;
    }
  }

  /** value returns the amount as a whole number, rounded away from 0, at most the largest i64. */
  value(): i64 {
    return this.scaled(0);
  }

  /** milliValue returns a thousand times the amount, as value does. */
  milliValue(): i64 {
    return this.scaled(-3);
  }

  private scaled(scale: i32): i64 {
    this.parse();
    const by = this.scale - scale;
    return by >= 0 ? up(this.mantissa, by) : down(this.mantissa, -by);
  }

  /** plus returns the sum, rounded away from 0 if it has more digits than an i64. */
  plus(other: Quantity): Quantity {
    this.parse();
    other.parse();
    let a = this.mantissa;
    let b = other.mantissa;
    if (a == 0) return other;
    if (b == 0) return this;
    let scale = this.scale;
    let otherScale = other.scale;
    if (scale < otherScale) { // a is the one with the larger scale.
      const c = a;
      a = b;
      b = c;
      otherScale = scale;
      scale = this.scale + other.scale - otherScale;
    }
    for (; scale > otherScale && larger(a); scale--) a *= 10;
    b = down(b, scale - otherScale);
    let sum = a + b;
    if (a > 0 && b > 0 && sum < 0) sum = i64.MAX_VALUE;
    if (a < 0 && b < 0 && sum >= 0) sum = i64.MIN_VALUE;
    const q = Quantity.of(decimal(sum, scale));
    q.read = true;
    q.valid = true;
    q.mantissa = sum;
    q.scale = scale;
    return q;
  }

  /** compareTo returns a number below 0, 0 or above 0, as the amount is less than other, the same or more. */
  compareTo(other: Quantity): i32 {
    this.parse();
    other.parse();
    let a = this.mantissa;
    let b = other.mantissa;
    if (a == 0 || b == 0 || (a < 0) != (b < 0)) return a < b ? -1 : a > b ? 1 : 0;
    let by = this.scale - other.scale;
    // The larger scale has more digits after the same point.
    for (; by > 0; by--) {
      if (!larger(a)) return a > 0 ? 1 : -1;
      a *= 10;
    }
    for (; by < 0; by++) {
      if (!larger(b)) return b > 0 ? -1 : 1;
      b *= 10;
    }
    return a < b ? -1 : a > b ? 1 : 0;
  }
}

/** larger reports whether ten times a number is one of 64 bits. */
function larger(n: i64): bool {
  return n <= i64.MAX_VALUE / 10 && n >= i64.MIN_VALUE / 10;
}

/** decimal returns n * 10^scale as a quantity is written. */
function decimal(n: i64, scale: i32): string {
  for (; n % 10 == 0 && n != 0 && scale < 0; scale++) n /= 10;
  for (; scale % 3 != 0 && larger(n); scale--) n *= 10;
  if (scale % 3 != 0 || scale > 18 || scale < -9) return n.toString() + "e" + scale.toString();
  const suffix = "num kMGTPE".charAt(scale / 3 + 3);
  return suffix == " " ? n.toString() : n.toString() + suffix;
}

function up(n: i64, by: i32): i64 {
  if (n == 0) return 0;
  for (; by > 0; by--) {
    if (n > i64.MAX_VALUE / 10) return i64.MAX_VALUE;
    if (n < i64.MIN_VALUE / 10) return i64.MIN_VALUE;
    n *= 10;
  }
  return n;
}

/** down returns n / 10^by, rounded away from 0. */
function down(n: i64, by: i32): i64 {
  const away: i64 = n < 0 ? -1 : 1;
  let rest = false;
  for (; by > 0 && n != 0; by--) {
    if (n % 10 != 0) rest = true;
    n /= 10;
  }
  return rest ? n + away : n;
}

/** IntOrString is a number or a string, such as the port of a container by its number or its name. */
@final
export class IntOrString extends Value {
  /** isString reports whether it is a string. */
  get isString(): bool {
    return this.json_ ? json.isString(this.at_, this.end_) : this.number_(1) == 1;
  }

  /** The string, empty for a number. */
  get strVal(): string {
    return this.isString ? this.field_(3) : "";
  }

  /** The number, or the one that the string is: 0 if it is none. */
  get intVal(): i32 {
    if (this.json_) return <i32>json.int(this.at_, this.end_);
    if (!this.isString) return <i32>this.number_(2);
    const b = String.UTF8.encode(this.field_(3));
    const at = changetype<usize>(b);
    return <i32>json.int(at, at + b.byteLength);
  }

  /** The string, or the number as one. */
  get text(): string {
    return this.isString ? this.strVal : this.intVal.toString();
  }
}

/** Time is a point in time. */
export class Time extends Value {
  /** Seconds since 1970 in UTC; 0 if there is no time. */
  get seconds(): i64 {
    return this.json_ ? seconds(this.field_(1)) : this.number_(1);
  }

  /** Nanoseconds after the second. */
  get nanos(): i32 {
    if (!this.json_) return <i32>this.number_(2);
    const s = this.field_(1);
    const point = s.indexOf(".");
    let n = 0;
    let digits = 0;
    for (let i = point + 1; point >= 0 && i < s.length && digits < 9; i++, digits++) {
      const c = s.charCodeAt(i);
      if (c < 0x30 || c > 0x39) break;
      n = n * 10 + (c - 0x30);
    }
    for (; point >= 0 && digits < 9; digits++) n *= 10;
    return n;
  }
}

/** MicroTime is a Time with microseconds. */
@final
export class MicroTime extends Time {}

/** Timestamp is google.protobuf.Timestamp. */
@final
export class Timestamp extends Time {
  /** of returns the time so many seconds and nanoseconds after the beginning of 1970 in UTC. */
  static of(seconds: i64, nanos: i32 = 0): Timestamp {
    const w = new Writer();
    w.varint(1, seconds);
    w.varint(2, nanos);
    return make_<Timestamp>(w);
  }
}

function digits(s: string, at: i32, n: i32): i32 {
  let v = 0;
  for (let i = at; i < at + n; i++) {
    const c = i < s.length ? s.charCodeAt(i) - 0x30 : -1;
    if (c < 0 || c > 9) return -1;
    v = v * 10 + c;
  }
  return v;
}

/** seconds reads a time of RFC 3339; 0 if it is none. */
function seconds(s: string): i64 {
  const year = digits(s, 0, 4), month = digits(s, 5, 2), day = digits(s, 8, 2);
  const hour = digits(s, 11, 2), minute = digits(s, 14, 2), second = digits(s, 17, 2);
  if (year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || minute < 0 || second < 0) return 0;
  // The days since 0000-03-01, by the months since March.
  const y = month > 2 ? year : year - 1;
  const m = month > 2 ? month - 3 : month + 9;
  const era = (y >= 0 ? y : y - 399) / 400;
  const ofEra = y - era * 400;
  const days: i64 = <i64>era * 146097 + ofEra * 365 + ofEra / 4 - ofEra / 100 + (153 * m + 2) / 5 + day - 1 - 719468;
  let zone = 0;
  let i = 19;
  while (i < s.length && s.charAt(i) != "Z" && s.charAt(i) != "+" && s.charAt(i) != "-") i++;
  if (i < s.length && s.charAt(i) != "Z") {
    const hours = digits(s, i + 1, 2), minutes = digits(s, i + 4, 2);
    if (hours >= 0 && minutes >= 0) zone = (hours * 60 + minutes) * (s.charAt(i) == "-" ? -60 : 60);
  }
  return days * 86400 + hour * 3600 + minute * 60 + second - zone;
}

/** Duration is a length of time: a number of nanoseconds, in JSON text such as "1h30m". */
@final
export class Duration extends Value {
  /** The nanoseconds. */
  get nanos(): i64 {
    if (!this.json_) return this.number_(1);
    const s = this.field_(1);
    let total: f64 = 0;
    let i = s.startsWith("-") ? 1 : 0;
    while (i < s.length) {
      const start = i;
      while (i < s.length && (s.charAt(i) == "." || (s.charCodeAt(i) >= 0x30 && s.charCodeAt(i) <= 0x39))) i++;
      const n = parseFloat(s.substring(start, i));
      const unit = i;
      while (i < s.length && s.charAt(i) != "." && (s.charCodeAt(i) < 0x30 || s.charCodeAt(i) > 0x39)) i++;
      const u = s.substring(unit, i);
      total += n * (u == "h" ? 3.6e12 : u == "m" ? 6e10 : u == "s" ? 1e9 : u == "ms" ? 1e6 : u == "us" || u == "µs" ? 1e3 : 1);
    }
    if (!(total < 9.2e18)) return 0;
    return <i64>(s.startsWith("-") ? -total : total);
  }
}

/** Span is google.protobuf.Duration. */
@final
export class Span extends Value {
  /** of returns a length of time in seconds and nanoseconds. */
  static of(seconds: i64, nanos: i32 = 0): Span {
    const w = new Writer();
    w.varint(1, seconds);
    w.varint(2, nanos);
    return make_<Span>(w);
  }

  /** The whole seconds. */
  get seconds(): i64 {
    return this.number_(1);
  }

  /** The nanoseconds beside them. */
  get nanos(): i32 {
    return <i32>this.number_(2);
  }
}

/** GroupVersion names a version of an API group, the empty group for that of Pods. */
@final
export class GroupVersion extends Value {
  get group(): string {
    if (!this.json_) return this.field_(1);
    const s = this.field_(1);
    return s.includes("/") ? s.substring(0, s.indexOf("/")) : "";
  }

  get version(): string {
    if (!this.json_) return this.field_(2);
    const s = this.field_(1);
    return s.substring(s.indexOf("/") + 1);
  }
}

/** Raw is an object in an encoding that Kubernetes does not look at, JSON for the most part. */
@final
export class Raw extends Value {
  /** The bytes as text. */
  get text(): string {
    return this.json_ ? text.decode(this.at_, this.end_ - this.at_) : this.field_(1);
  }
}

/** Strings is a message that is a list of strings. */
@final
export class Strings extends Value {
  /** all returns the strings. */
  all(): string[] {
    const list: string[] = [];
    let at = this.at_;
    if (this.json_) {
      at = json.first(at, this.end_, 0x5b);
      while (at != 0) {
        at = json.element(at, this.end_);
        if (json.wrong) break;
        list.push(json.str(json.valueAt, json.valueEnd));
      }
      return list;
    }
    while (at < this.end_) {
      at = wire.next(at, this.end_);
      if (at == 0) break;
      if (wire.field == 1 && wire.type == wire.BYTES) list.push(text.decode(wire.from, wire.to - wire.from));
    }
    return list;
  }
}
