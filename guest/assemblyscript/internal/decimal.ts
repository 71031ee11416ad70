// Decimal numbers as floating-point ones, rounded to the nearest as Go and Rust do.

/** How many digits are kept; of more it counts only whether one is not 0. No halfway point has more. */
const KEPT: i32 = 800;

/** A number 0.d0d1d2… times ten to the power of point. */
let d: StaticArray<u8> = new StaticArray<u8>(0);
let n: i32 = 0;
let point: i32 = 0;
let cut: bool = false;

const EXACT: StaticArray<f64> = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22];

/** parse returns the number of JSON in [at, end). */
export function parse(at: usize, end: usize): f64 {
  const negative = load<u8>(at) == 0x2d;
  if (negative) at++;
  // The first 19 digits from the first that is not 0, and the power of ten after them.
  let mantissa: u64 = 0;
  let power: i32 = 0;
  let count = 0;
  let fraction = false;
  let p = at;
  for (; p < end; p++) {
    const c = load<u8>(p);
    if (c == 0x2e) {
      fraction = true;
      continue;
    }
    if (c < 0x30 || c > 0x39) break;
    if (fraction) power--;
    if (count == 0 && c == 0x30) continue;
    if (++count <= 19) mantissa = mantissa * 10 + (c - 0x30);
  }
  const digitsEnd = p;
  if (p < end) { // An exponent.
    p++;
    const down = load<u8>(p) == 0x2d;
    if (down || load<u8>(p) == 0x2b) p++;
    let e = 0;
    for (; p < end; p++) if (e < 1000000) e = e * 10 + (load<u8>(p) - 0x30);
    power += down ? -e : e;
  }
  let value: f64 = 0;
  if (count <= 19 && mantissa <= <u64>1 << 53 && power >= -22 && power <= 22) {
    value = <f64>mantissa;
    value = power < 0 ? value / unchecked(EXACT[-power]) : value * unchecked(EXACT[power]);
  } else if (count != 0) {
    value = nearest(at, digitsEnd, count + power);
  }
  return negative ? -value : value;
}

/** nearest returns the number of the digits in [at, end) with the point after so many of them. */
function nearest(at: usize, end: usize, after: i32): f64 {
  if (d.length == 0) d = new StaticArray<u8>(KEPT + 20);
  n = 0;
  cut = false;
  point = after;
  for (; at < end; at++) {
    const c = load<u8>(at) - 0x30;
    if (c > 9 || (n == 0 && c == 0)) continue;
    if (n < KEPT) unchecked((d[n++] = c));
    else if (c != 0) cut = true;
  }
  trim();
  if (point > 310) return Infinity;
  if (point < -330) return 0;
  // To a number of at least 1 and less than 2, by powers of two.
  let exponent = 0;
  while (point > 1) {
    const by = point > 17 ? 50 : 3;
    divide(by);
    exponent += by;
  }
  while (point < 1) {
    const by = point < -16 ? 50 : 3;
    multiply(by);
    exponent -= by;
  }
  while (unchecked(d[0]) >= 2) {
    divide(1);
    exponent++;
  }
  while (exponent < -1022) { // A subnormal number.
    const by = min(-1022 - exponent, 50);
    divide(by);
    exponent += by;
  }
  if (exponent > 1023) return Infinity;
  multiply(52);
  let mantissa = rounded();
  if (mantissa == <u64>1 << 53) {
    mantissa >>= 1;
    if (++exponent > 1023) return Infinity;
  }
  const biased = mantissa >> 52 ? <u64>(exponent + 1023) : 0;
  return reinterpret<f64>(biased << 52 | (mantissa & 0x000fffffffffffff));
}

function trim(): void {
  while (n > 0 && unchecked(d[n - 1]) == 0) n--;
}

/** divide divides by a power of two, to the power of 50 at most. */
function divide(by: i32): void {
  const mask = (<u64>1 << by) - 1;
  let rest: u64 = 0;
  let read = 0;
  let written = 0;
  // The digits before the first of the quotient.
  while (rest >> by == 0) {
    rest = rest * 10 + (read < n ? <u64>unchecked(d[read]) : 0);
    if (rest == 0 && read >= n) {
      n = 0;
      return;
    }
    read++;
  }
  point -= read - 1;
  while (read < n || rest != 0) {
    const digit = <u8>(rest >> by);
    if (written < KEPT) unchecked((d[written++] = digit));
    else if (digit != 0) cut = true;
    rest = (rest & mask) * 10 + (read < n ? <u64>unchecked(d[read]) : 0);
    read++;
  }
  n = written;
  trim();
}

/** multiply multiplies by a power of two, to the power of 52 at most. */
function multiply(by: i32): void {
  if (n == 0) return;
  // The carry out of all digits becomes digits before them.
  let carry: u64 = 0;
  for (let i = n - 1; i >= 0; i--) {
    const sum = (<u64>unchecked(d[i]) << by) + carry;
    carry = sum / 10;
    unchecked((d[i] = <u8>(sum % 10)));
  }
  let more = 0;
  for (let c = carry; c != 0; c /= 10) more++;
  for (let i = min(n + more, KEPT + 20) - 1; i >= more; i--) unchecked((d[i] = d[i - more]));
  for (let i = more - 1; i >= 0; i--, carry /= 10) unchecked((d[i] = <u8>(carry % 10)));
  point += more;
  n = min(n + more, KEPT + 20);
  for (; n > KEPT; n--) if (unchecked(d[n - 1]) != 0) cut = true;
  trim();
}

/** rounded returns the whole number that is nearest, of two the even one. */
function rounded(): u64 {
  let whole: u64 = 0;
  for (let i = 0; i < point; i++) whole = whole * 10 + (i < n ? <u64>unchecked(d[i]) : 0);
  if (point < 0 || point >= n) return whole;
  const next = unchecked(d[point]);
  const isHalf = next == 5 && point + 1 == n && !cut;
  return isHalf ? whole + (whole & 1) : next >= 5 ? whole + 1 : whole;
}
