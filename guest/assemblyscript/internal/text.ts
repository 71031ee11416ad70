// Text: UTF-8 in the host's bytes, UTF-16 in strings.

/** The length in bytes up to which a string is short, and how many short ones are kept. */
const SHORT: usize = 48;
const KEPT_BITS: u64 = 8;

/** The short strings that were read last, after the first: a plugin reads the same ones in each object. */
let kept: StaticArray<string> | null = null;

/** decode returns a string of the UTF-8 in [at, at+length). What is no UTF-8 becomes U+FFFD. */
export function decode(at: usize, length: usize): string {
  if (length == 0) return "";
  return length <= SHORT ? short(at, length) : fresh(at, length);
}

/** short is decode for short strings, which are not made again as long as they are kept. */
function short(at: usize, length: usize): string {
  let hash: u64;
  if (length >= 8) hash = load<u64>(at) + rotl(load<u64>(at + length - 8), 23);
  else if (length >= 4) hash = <u64>load<u32>(at) << 32 | load<u32>(at + length - 4);
  else hash = <u64>load<u8>(at) | <u64>load<u8>(at + (length >> 1)) << 8 | <u64>load<u8>(at + length - 1) << 16;
  if (kept === null) kept = new StaticArray<string>(1 << <i32>KEPT_BITS);
  const place = changetype<usize>(kept) + (<usize>((hash ^ length) * 0x9e3779b97f4a7c15 >> 64 - KEPT_BITS) << alignof<string>());
  const known = load<string>(place);
  if (changetype<usize>(known) != 0 && <usize>known.length == length && same(at, length, changetype<usize>(known))) return known;
  const s = fresh(at, length);
  store<string>(place, s);
  return s;
}

/** same reports whether the ASCII in [at, at+length) is the string of as many units at s; false if there is anything else. */
function same(at: usize, length: usize, s: usize): bool {
  const end = at + length;
  if (length < 8) {
    for (; at < end; at++, s += 2) if (load<u8>(at) >= 0x80 || load<u8>(at) != load<u16>(s)) return false;
    return true;
  }
  for (;;) {
    const eight = load<u64>(at);
    if ((eight & 0x8080808080808080) != 0 || spread(<u32>eight) != load<u64>(s) || spread(<u32>(eight >> 32)) != load<u64>(s, 8)) return false;
    const left = end - at;
    if (left == 8) return true;
    const step = min<usize>(left - 8, 8); // The last eight bytes overlap those before.
    at += step;
    s += step << 1;
  }
  return false;
}

function fresh(at: usize, length: usize): string {
  const s = __new(length << 1, idof<string>());
  let i: usize = 0;
  while (i + 8 <= length) {
    const eight = load<u64>(at + i);
    if (eight & 0x8080808080808080) break;
    let four = spread(<u32>eight);
    store<u64>(s + (i << 1), four);
    four = spread(<u32>(eight >> 32));
    store<u64>(s + (i << 1), four, 8);
    i += 8;
  }
  for (; i < length; i++) {
    const b = load<u8>(at + i);
    if (b >= 0x80) return decodeRest(at, length, s, i);
    store<u16>(s + (i << 1), b);
  }
  return changetype<string>(s);
}

/** spread makes four bytes four numbers of 16 bits. */
// @ts-ignore: decorator
@inline
function spread(four: u32): u64 {
  const a = (<u64>four | <u64>four << 16) & 0x0000ffff0000ffff;
  return (a | a << 8) & 0x00ff00ff00ff00ff;
}

/** The code point that rune read last, and how many bytes it has. */
let point: u32 = 0;
let width: usize = 0;

/** rune reads a code point; U+FFFD of one byte if there is none. */
function rune(at: usize, end: usize): void {
  const a = <u32>load<u8>(at);
  point = 0xfffd;
  width = 1;
  if (a < 0x80) {
    point = a;
    return;
  }
  const left = end - at;
  if (a < 0xc2 || left < 2) return;
  const b = <u32>load<u8>(at, 1);
  if ((b & 0xc0) != 0x80) return;
  if (a < 0xe0) {
    point = (a & 0x1f) << 6 | (b & 0x3f);
    width = 2;
    return;
  }
  if (left < 3) return;
  const c = <u32>load<u8>(at, 2);
  if ((c & 0xc0) != 0x80) return;
  if (a < 0xf0) {
    const p = (a & 0x0f) << 12 | (b & 0x3f) << 6 | (c & 0x3f);
    if (p < 0x800 || (p >= 0xd800 && p < 0xe000)) return;
    point = p;
    width = 3;
    return;
  }
  if (left < 4 || a > 0xf4) return;
  const d = <u32>load<u8>(at, 3);
  if ((d & 0xc0) != 0x80) return;
  const p = (a & 0x07) << 18 | (b & 0x3f) << 12 | (c & 0x3f) << 6 | (d & 0x3f);
  if (p < 0x10000 || p > 0x10ffff) return;
  point = p;
  width = 4;
}

function decodeRest(at: usize, length: usize, s: usize, i: usize): string {
  const out = decodeTo(at + i, at + length, s + (i << 1));
  return changetype<string>(__renew(s, out - s));
}

/** decodeTo writes the UTF-8 in [at, end) as UTF-16, two bytes at most for each byte, and returns the position after it. */
export function decodeTo(at: usize, end: usize, out: usize): usize {
  while (at < end) {
    rune(at, end);
    at += width;
    if (point < 0x10000) {
      store<u16>(out, point);
      out += 2;
    } else {
      point -= 0x10000;
      store<u32>(out, (0xd800 | point >> 10) | (0xdc00 | (point & 0x3ff)) << 16);
      out += 4;
    }
  }
  return out;
}

/** size returns how many bytes a string has in UTF-8. */
export function size(s: string): usize {
  const n = <usize>s.length;
  const p = changetype<usize>(s);
  let bytes = n;
  for (let i: usize = 0; i < n; i++) {
    const c = <u32>load<u16>(p + (i << 1));
    if (c < 0x80) continue;
    if (c < 0x800) {
      bytes++;
    } else {
      bytes += 2;
      // The second half of a pair is counted with the first.
      if ((c & 0xfc00) == 0xd800 && i + 1 < n && (load<u16>(p + (i << 1), 2) & 0xfc00) == 0xdc00) i++;
    }
  }
  return bytes;
}

/** encode writes a string in UTF-8, size(s) bytes. Half of a pair becomes U+FFFD. */
export function encode(s: string, to: usize): usize {
  const n = <usize>s.length;
  const p = changetype<usize>(s);
  const start = to;
  let i: usize = 0;
  for (; i + 4 <= n; i += 4) { // Four units of ASCII.
    let four = load<u64>(p + (i << 1));
    if (four & 0xff80ff80ff80ff80) break;
    four = (four | four >> 8) & 0x0000ffff0000ffff;
    store<u32>(to, <u32>(four | four >> 16));
    to += 4;
  }
  for (; i < n; i++) {
    let c = <u32>load<u16>(p + (i << 1));
    if (c < 0x80) {
      store<u8>(to++, c);
      continue;
    }
    if (c < 0x800) {
      store<u16>(to, (0xc0 | c >> 6) | (0x80 | (c & 0x3f)) << 8);
      to += 2;
      continue;
    }
    if ((c & 0xf800) == 0xd800) {
      const d = i + 1 < n ? <u32>load<u16>(p + (i << 1), 2) : 0;
      if (c < 0xdc00 && (d & 0xfc00) == 0xdc00) {
        i++;
        c = 0x10000 + ((c & 0x3ff) << 10) + (d & 0x3ff);
        store<u32>(to, (0xf0 | c >> 18) | (0x80 | (c >> 12 & 0x3f)) << 8 | (0x80 | (c >> 6 & 0x3f)) << 16 | (0x80 | (c & 0x3f)) << 24);
        to += 4;
        continue;
      }
      c = 0xfffd;
    }
    store<u8>(to, 0xe0 | c >> 12);
    store<u16>(to, (0x80 | (c >> 6 & 0x3f)) | (0x80 | (c & 0x3f)) << 8, 1);
    to += 3;
  }
  return to - start;
}

/** equal reports whether the UTF-8 in [at, at+length) is the string, without a copy of it. */
export function equal(at: usize, length: usize, s: string): bool {
  const n = <usize>s.length;
  const p = changetype<usize>(s);
  // A unit of UTF-16 has a byte at least, and one byte if it is ASCII.
  if (n == length && same(at, length, p)) return true;
  if (n > length) return false;
  for (let i: usize = 0; i < n; i++) {
    const b = <u32>load<u8>(at + i);
    const c = <u32>load<u16>(p + (i << 1));
    if ((b | c) >= 0x80) return decode(at, length) == s;
    if (b != c) return false;
  }
  return n == length;
}
