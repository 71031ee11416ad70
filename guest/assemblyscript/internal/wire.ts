// The wire format of protobuf, read where it lies. Positions are addresses in memory; 0 is
// the position after bytes that are malformed. Nothing at or beyond an end is read.

/** The wire types. */
export const VARINT: u32 = 0;
export const FIXED64: u32 = 1;
export const BYTES: u32 = 2;
export const FIXED32: u32 = 5;

/** The number that varint read last. */
export let value: u64 = 0;

/** varint reads a number and returns the position after it. */
// @ts-ignore: decorator
@inline
export function varint(at: usize, end: usize): usize {
  if (at < end) {
    const first = load<u8>(at);
    if (first < 0x80) {
      value = first;
      return at + 1;
    }
  }
  return longVarint(at, end);
}

function longVarint(at: usize, end: usize): usize {
  let n: u64 = 0;
  for (let shift = 0; at < end && shift < 70; shift += 7) {
    const b = load<u8>(at++);
    if (shift < 64) n |= <u64>(b & 0x7f) << shift;
    if (b < 0x80) {
      if (shift == 63 && b > 1) return 0; // More than 64 bits.
      value = n;
      return at;
    }
  }
  return 0;
}

/** The field that next read last: its number, type and value, a number or a span. */
export let field: u32 = 0;
export let type: u32 = 0;
export let number: u64 = 0;
export let from: usize = 0;
export let to: usize = 0;

/** next reads a field and returns the position after it. */
export function next(at: usize, end: usize): usize {
  at = varint(at, end);
  if (at == 0 || value >> 35 != 0) return 0;
  field = <u32>(value >> 3);
  if (field == 0 || field > 0x1fffffff) return 0;
  type = <u32>value & 7;
  switch (type) {
    case VARINT: {
      at = varint(at, end);
      number = value;
      return at;
    }
    case BYTES: {
      at = varint(at, end);
      if (at == 0 || value > <u64>(end - at)) return 0;
      from = at;
      to = at + <usize>value;
      return to;
    }
    case FIXED64: {
      if (end - at < 8) return 0;
      number = load<u64>(at);
      return at + 8;
    }
    case FIXED32: {
      if (end - at < 4) return 0;
      number = load<u32>(at);
      return at + 4;
    }
  }
  return 0; // Groups are no part of any message here.
}

/**
 * find reads the last field n of the message in [at, end), as every decoder does. sorted says
 * that the fields come in the order of their numbers, so that later ones need not be looked at.
 */
export function find(at: usize, end: usize, n: u32, sorted: bool): bool {
  let found = false;
  let t: u32 = 0, v: u64 = 0, a: usize = 0, b: usize = 0;
  while (at < end) {
    // The usual field: a key and a length of one byte each.
    if (end - at > 2) {
      const key = load<u8>(at);
      const length = load<u8>(at + 1);
      if ((key & 0x87) == BYTES && length < 0x80 && key > 7 && <usize>length <= end - at - 2) {
        const number = <u32>(key >> 3);
        if (number != n) {
          if (sorted && number > n) break;
          at += 2 + <usize>length;
          continue;
        }
      }
    }
    at = next(at, end);
    if (at == 0) break;
    if (field == n) {
      found = true;
      t = type;
      v = number;
      a = from;
      b = to;
    } else if (sorted && field > n) {
      break;
    }
  }
  if (found) {
    field = n;
    type = t;
    number = v;
    from = a;
    to = b;
  }
  return found;
}

/** zigzag decodes a number of type sint32 or sint64. */
// @ts-ignore: decorator
@inline
export function zigzag(n: u64): i64 {
  return <i64>(n >> 1) ^ -<i64>(n & 1);
}
