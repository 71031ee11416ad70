//! Values of the Kubernetes API that are more than a number or a text: amounts, times,
//! durations, and those that are a number or a percentage.

use alloc::vec::Vec;
use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

use crate::view::{Element, List, Value, View};
use crate::wire;

/// An amount of a resource, such as `500m` or `1Gi`, with nine digits after the point: those
/// that the API has.
///
/// ```
/// use kubewasm::value::Quantity;
///
/// let cpu: Quantity = "1500m".parse().unwrap();
/// assert_eq!((cpu.value(), cpu.milli_value()), (2, 1500)); // Rounded up.
/// assert!(cpu < "2".parse().unwrap());
/// assert_eq!("1Gi".parse::<Quantity>().unwrap().value(), 1 << 30);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

const NANO: i128 = 1_000_000_000;
/// The largest amount that the API has, 2^63-1.
const LARGEST: i128 = i64::MAX as i128 * NANO;

/// What is wrong with a text that should be a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseQuantityError;

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("want a quantity such as 500m or 1Gi")
    }
}

impl core::str::FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        parse_quantity(text.as_bytes()).map(|nanos| Quantity { nanos }).ok_or(ParseQuantityError)
    }
}

/// Reads `<sign><digits>.<digits><suffix>`. Digits beyond the ninth after the point round up,
/// and an amount beyond the largest is that, as in k8s.io/apimachinery/pkg/api/resource.
fn parse_quantity(b: &[u8]) -> Option<i128> {
    let (negative, b) = match b.first()? {
        b'-' => (true, &b[1..]),
        b'+' => (false, &b[1..]),
        _ => (false, b),
    };
    let end = b.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(b.len());
    let (digits, suffix) = b.split_at(end);
    let point = digits.iter().position(|&c| c == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or(&[]));
    if whole.is_empty() && fraction.is_empty() || fraction.contains(&b'.') {
        return None;
    }
    // The amount is mantissa * 10^-places * 10^ten * 2^two.
    let (mut ten, two): (i32, u32) = match suffix {
        b"n" => (-9, 0),
        b"u" => (-6, 0),
        b"m" => (-3, 0),
        b"" => (0, 0),
        b"k" => (3, 0),
        b"M" => (6, 0),
        b"G" => (9, 0),
        b"T" => (12, 0),
        b"P" => (15, 0),
        b"E" => (18, 0),
        b"Ki" => (0, 10),
        b"Mi" => (0, 20),
        b"Gi" => (0, 30),
        b"Ti" => (0, 40),
        b"Pi" => (0, 50),
        b"Ei" => (0, 60),
        [b'e' | b'E', exponent @ ..] => (core::str::from_utf8(exponent).ok()?.parse::<i32>().ok()?, 0),
        _ => return None,
    };
    let (mut nanos, mut large, mut rest) = (0i128, false, false);
    // All digits, with the point moved behind the ninth place.
    let mut push = |digit: u8, nanos: &mut i128| {
        let next = nanos.checked_mul(10).and_then(|n| n.checked_add((digit - b'0') as i128));
        match next {
            Some(next) if next <= LARGEST => *nanos = next,
            _ => large = true,
        }
    };
    ten = ten.checked_add(9)?;
    for &d in whole {
        push(d, &mut nanos);
    }
    // Powers of two first, so that nothing is rounded away too early.
    let mut places = 0;
    for &d in fraction {
        if places < 18 {
            push(d, &mut nanos);
            places += 1;
        } else {
            rest |= d != b'0';
        }
    }
    if large {
        // Digits were left out. Without the fraction it is large or not for certain.
        nanos = 0;
        places = 0;
        let mut too_large = false;
        for &d in whole {
            match nanos.checked_mul(10).and_then(|n| n.checked_add((d - b'0') as i128)).filter(|n| *n <= LARGEST) {
                Some(n) => nanos = n,
                None => too_large = true,
            }
        }
        if too_large && ten >= 0 {
            return Some(if negative { -LARGEST } else { LARGEST });
        }
        rest |= fraction.iter().any(|&d| d != b'0');
    }
    for _ in 0..two {
        nanos = nanos.checked_mul(2).unwrap_or(i128::MAX / 2);
    }
    let mut shift = ten.saturating_sub(places);
    while shift > 0 && nanos != 0 && nanos <= LARGEST {
        nanos *= 10;
        shift -= 1;
    }
    while shift < 0 && nanos != 0 {
        rest |= nanos % 10 != 0;
        nanos /= 10;
        shift += 1;
    }
    if rest {
        nanos += 1;
    }
    nanos = nanos.min(LARGEST);
    Some(if negative { -nanos } else { nanos })
}

/// Divides and rounds away from zero.
fn divide_up(n: i128, by: i128) -> i64 {
    let q = n / by;
    let q = if n % by == 0 { q } else { q + n.signum() };
    q.clamp(i64::MIN as i128, i64::MAX as i128) as i64
}

impl Quantity {
    /// Returns the amount of a whole number.
    pub const fn new(value: i64) -> Self {
        Quantity { nanos: value as i128 * NANO }
    }

    /// Returns the amount of so many thousandths.
    pub const fn from_milli(value: i64) -> Self {
        Quantity { nanos: value as i128 * 1_000_000 }
    }

    /// Returns the amount as a whole number, rounded up.
    pub fn value(self) -> i64 {
        divide_up(self.nanos, NANO)
    }

    /// Returns the amount in thousandths, rounded up.
    pub fn milli_value(self) -> i64 {
        divide_up(self.nanos, 1_000_000)
    }

    /// Reports whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Appends the field of a message. It is for generated code.
    pub fn append(self, b: &mut Vec<u8>, number: u32) {
        use alloc::string::ToString;
        wire::append_message(b, number, |b| wire::append_bytes(b, 1, self.to_string().as_bytes()));
    }
}

impl fmt::Display for Quantity {
    /// Writes the amount as a decimal number with the suffix n, u or m if it has a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, suffix) in [(NANO, ""), (1_000_000, "m"), (1_000, "u"), (1, "n")] {
            if self.nanos % unit == 0 {
                return write!(f, "{}{}", self.nanos / unit, suffix);
            }
        }
        Ok(())
    }
}

impl Add for Quantity {
    type Output = Quantity;
    fn add(self, other: Quantity) -> Quantity {
        Quantity { nanos: (self.nanos + other.nanos).clamp(-LARGEST, LARGEST) }
    }
}

impl Sub for Quantity {
    type Output = Quantity;
    fn sub(self, other: Quantity) -> Quantity {
        Quantity { nanos: (self.nanos - other.nanos).clamp(-LARGEST, LARGEST) }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Quantity) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Quantity) {
        *self = *self - other;
    }
}

impl<'a> Element<'a> for Quantity {
    type Out = Quantity;
    fn read(value: Value<'a>) -> Quantity {
        let text = match value.as_json() {
            Some(v) => v.text().map_or(v.raw(), str::as_bytes), // A number is an amount, too.
            None => wire::last(value.as_bytes(), 1, false).map_or(&[][..], |f| f.bytes),
        };
        Quantity { nanos: parse_quantity(text).unwrap_or(0) }
    }
}

/// A number, or a text such as a percentage or the name of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// A number.
    Int(i32),
    /// A text.
    Text(&'a str),
}

impl Default for IntOrString<'_> {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl IntOrString<'_> {
    /// Appends the field of a message. It is for generated code.
    pub fn append(&self, b: &mut Vec<u8>, number: u32) {
        wire::append_message(b, number, |b| match self {
            IntOrString::Int(n) => wire::append_number(b, 2, *n as i64 as u64),
            IntOrString::Text(text) => {
                wire::append_number(b, 1, 1);
                wire::append_bytes(b, 3, text.as_bytes());
            }
        });
    }

    /// Returns the number, or a percentage of `total`, rounded up if `up` is set. A text that is
    /// no percentage is None.
    pub fn scaled(&self, total: i32, up: bool) -> Option<i32> {
        match self {
            IntOrString::Int(n) => Some(*n),
            IntOrString::Text(text) => {
                let percent: i64 = text.strip_suffix('%')?.parse::<i32>().ok()?.into();
                let product = percent * total as i64;
                Some((if up { (product + 99).div_euclid(100) } else { product.div_euclid(100) }) as i32)
            }
        }
    }
}

impl fmt::Display for IntOrString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(n) => write!(f, "{}", n),
            IntOrString::Text(text) => f.write_str(text),
        }
    }
}

impl<'a> Element<'a> for IntOrString<'a> {
    type Out = IntOrString<'a>;
    fn read(value: Value<'a>) -> Self {
        if let Some(v) = value.as_json() {
            return match v.text() {
                Some(text) => IntOrString::Text(text),
                None => IntOrString::Int(v.integer().unwrap_or(0) as i32),
            };
        }
        let view = View::from_any_proto(value.call(), value.as_bytes());
        match view.get::<i64>(1, "") {
            1 => IntOrString::Text(view.text(3, "")),
            _ => IntOrString::Int(view.get::<i32>(2, "")),
        }
    }
}

/// A point in time.
///
/// ```
/// use kubewasm::value::Time;
///
/// let t = Time::parse("2024-02-29T12:00:00+01:00").unwrap();
/// assert_eq!(t.unix(), 1_709_204_400);
/// assert_eq!(t.to_string(), "2024-02-29T11:00:00Z");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    seconds: i64,
    nanos: u32,
}

impl Time {
    /// Returns the time so many seconds and nanoseconds after the beginning of 1970 in UTC.
    pub const fn from_unix(seconds: i64, nanos: u32) -> Self {
        Time { seconds, nanos }
    }

    /// Returns the seconds since the beginning of 1970 in UTC.
    pub fn unix(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds within the second.
    pub fn nanosecond(self) -> u32 {
        self.nanos
    }

    /// Returns how much later than `other` the time is. It is right for differences of less than
    /// 292 years.
    pub fn since(self, other: Time) -> Duration {
        let seconds = self.seconds.wrapping_sub(other.seconds).wrapping_mul(1_000_000_000);
        Duration(seconds.wrapping_add(self.nanos as i64 - other.nanos as i64))
    }

    /// Reads a time as RFC 3339 has it, with any fraction and zone.
    pub fn parse(text: &str) -> Option<Time> {
        let b = text.as_bytes();
        if b.len() < 20 || b[4] != b'-' || b[7] != b'-' || b[10] != b'T' || b[13] != b':' || b[16] != b':' {
            return None;
        }
        let part = |from: usize, to: usize, low: i64, high: i64| -> Option<i64> {
            let mut n = 0;
            for &c in b.get(from..to)? {
                if !c.is_ascii_digit() {
                    return None;
                }
                n = n * 10 + (c - b'0') as i64;
            }
            Some(n).filter(|n| low <= *n && *n <= high)
        };
        let (year, month) = (part(0, 4, 0, 9999)?, part(5, 7, 1, 12)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = [31, 28 + leap as i64, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
        let day = part(8, 10, 1, days)?;
        let mut seconds = days_since_1970(year, month, day) * 86400;
        seconds += part(11, 13, 0, 23)? * 3600 + part(14, 16, 0, 59)? * 60 + part(17, 19, 0, 59)?;
        let (mut at, mut nanos) = (19, 0);
        if b[at] == b'.' {
            at += 1;
            let from = at;
            let mut unit = 100_000_000;
            while at < b.len() && b[at].is_ascii_digit() {
                nanos += (b[at] - b'0') as u32 * unit;
                unit /= 10;
                at += 1;
            }
            if at == from {
                return None;
            }
        }
        match b.get(at)? {
            b'Z' if at + 1 == b.len() => {}
            sign @ (b'+' | b'-') if at + 6 == b.len() && b[at + 3] == b':' => {
                let offset = part(at + 1, at + 3, 0, 23)? * 3600 + part(at + 4, at + 6, 0, 59)? * 60;
                seconds += if *sign == b'+' { -offset } else { offset };
            }
            _ => return None,
        }
        Some(Time { seconds, nanos })
    }

    /// Appends the field of a message. It is for generated code.
    pub fn append(self, b: &mut Vec<u8>, number: u32) {
        wire::append_message(b, number, |b| {
            wire::append_number(b, 1, self.seconds as u64);
            wire::append_number(b, 2, self.nanos as u64);
        });
    }
}

/// Returns the days from the beginning of 1970 to a date. The year begins with March, so that a
/// leap day is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (y, m) = if month <= 2 { (year - 1, month + 12) } else { (year, month) };
    365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * (m - 3) + 2) / 5 + day - 1 - 719_468
}

impl fmt::Display for Time {
    /// Writes the time in UTC as RFC 3339 has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.seconds.div_euclid(86400), self.seconds.rem_euclid(86400));
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let d = z.rem_euclid(146_097);
        let y = (d - d / 1460 + d / 36524 - d / 146_096) / 365;
        let d = d - (365 * y + y / 4 - y / 100);
        let m = (5 * d + 2) / 153;
        let (day, month) = (d - (153 * m + 2) / 5 + 1, if m < 10 { m + 3 } else { m - 9 });
        let year = y + era * 400 + (month <= 2) as i64;
        write!(f, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", year, month, day, second / 3600, second / 60 % 60, second % 60)?;
        if self.nanos != 0 {
            let (mut nanos, mut width) = (self.nanos, 9);
            while nanos % 10 == 0 {
                nanos /= 10;
                width -= 1;
            }
            write!(f, ".{:0width$}", nanos, width = width)?;
        }
        f.write_str("Z")
    }
}

impl<'a> Element<'a> for Time {
    /// None is no time: the API has it as null, or as an empty message.
    type Out = Option<Time>;
    fn read(value: Value<'a>) -> Option<Time> {
        if let Some(v) = value.as_json() {
            return v.text().and_then(Time::parse);
        }
        let view = View::from_any_proto(value.call(), value.as_bytes());
        let time = Time { seconds: view.get::<i64>(1, ""), nanos: view.get::<u32>(2, "") };
        Some(time).filter(|t| *t != Time::default())
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(
    /// The nanoseconds.
    pub i64,
);

impl Duration {
    /// Returns so many milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Duration(ms.saturating_mul(1_000_000))
    }

    /// Returns so many seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Duration(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns the whole milliseconds.
    pub const fn as_millis(self) -> i64 {
        self.0 / 1_000_000
    }

    /// Reads a duration as Go writes it: "1h30m", "1.5s", "-2ms".
    pub fn parse(text: &str) -> Option<Duration> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Duration(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut sum = 0i128;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, after) = rest.split_at(end);
            let (unit, after) = [("ns", 1i128), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", NANO), ("m", 60 * NANO), ("h", 3600 * NANO)]
                .iter()
                .filter_map(|(suffix, unit)| after.strip_prefix(suffix).map(|after| (*unit, after)))
                .find(|(_, after)| after.is_empty() || after.starts_with(|c: char| c.is_ascii_digit() || c == '.'))?;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if whole.is_empty() && fraction.is_empty() || whole.len() > 20 {
                return None;
            }
            sum += unit * if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()? };
            let mut part = unit;
            let mut of = 0;
            for d in fraction.bytes().take(18) {
                if !d.is_ascii_digit() {
                    return None;
                }
                of = of * 10 + (d - b'0') as i128;
                part *= 10;
            }
            sum += of * unit / (part / unit);
            rest = after;
        }
        i64::try_from(if negative { -sum } else { sum }).ok().map(Duration)
    }

    /// Appends a field of the type k8s.io.apimachinery.pkg.apis.meta.v1.Duration. It is for
    /// generated code.
    pub fn append(self, b: &mut Vec<u8>, number: u32) {
        wire::append_message(b, number, |b| wire::append_number(b, 1, self.0 as u64));
    }

    /// Appends a field of the type google.protobuf.Duration. It is for generated code.
    pub fn append_span(self, b: &mut Vec<u8>, number: u32) {
        wire::append_message(b, number, |b| {
            wire::append_number(b, 1, (self.0 / 1_000_000_000) as u64);
            wire::append_number(b, 2, (self.0 % 1_000_000_000) as u64);
        });
    }
}

impl<'a> Element<'a> for Duration {
    type Out = Duration;
    fn read(value: Value<'a>) -> Duration {
        match value.as_json() {
            Some(v) => v.text().and_then(Duration::parse).unwrap_or_default(),
            None => Duration(View::from_any_proto(value.call(), value.as_bytes()).get::<i64>(1, "")),
        }
    }
}

/// A field of the type google.protobuf.Duration, which is read as a [`Duration`].
#[derive(Clone, Copy, Debug)]
pub struct Span;

impl<'a> Element<'a> for Span {
    type Out = Duration;
    fn read(value: Value<'a>) -> Duration {
        if value.as_json().is_some() {
            return Duration::read(value);
        }
        let view = View::from_any_proto(value.call(), value.as_bytes());
        Duration(view.get::<i64>(1, "").saturating_mul(1_000_000_000).saturating_add(view.get::<i64>(2, "")))
    }
}

/// A group and a version of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupVersion<'a> {
    /// The group, empty for the core.
    pub group: &'a str,
    /// The version: "v1".
    pub version: &'a str,
}

impl<'a> Element<'a> for GroupVersion<'a> {
    type Out = GroupVersion<'a>;
    fn read(value: Value<'a>) -> Self {
        let view = value.view();
        GroupVersion { group: view.text(1, "group"), version: view.text(2, "version") }
    }
}

/// A message that is a list of strings, and in JSON an array.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a>(core::marker::PhantomData<&'a ()>);

impl<'a> Element<'a> for Strings<'a> {
    type Out = List<'a, &'a str>;
    fn read(value: Value<'a>) -> Self::Out {
        match value.as_json() {
            Some(v) => List::from_json(value.call(), v.raw()),
            None => value.view().list(1, ""),
        }
    }
}
