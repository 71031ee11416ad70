//! The configuration of a plugin: typed, checked, with all mistakes by their paths.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::{Kind, Value};
use crate::Call;

/// A type that is read from JSON. [`config!`](crate::config!) implements it for structs.
pub trait Decode: Sized {
    /// Returns what stands for a value that is not there.
    fn absent() -> Self;
    /// Reads a value. What is wrong with it is added to `mistakes`, after its path.
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self;
}

/// Reads a configuration, which may be empty. The error has all mistakes.
///
/// ```
/// kubewasm::config! {
///     /// Which zones there are.
///     #[derive(Debug)]
///     pub struct Zones {
///         /// `defaultZones` in the configuration.
///         default_zones: Vec<String>,
///         weight: i64 = 10,
///         dry_run: Option<bool> as "dry-run",
///     }
/// }
///
/// let z: Zones = kubewasm::config::read(br#"{"defaultZones": ["a"], "dry-run": true}"#).unwrap();
/// assert_eq!((z.default_zones.len(), z.weight, z.dry_run), (1, 10, Some(true)));
///
/// let err = kubewasm::config::read::<Zones>(br#"{"defaultZones": ["a", 7], "wieght": 1}"#).unwrap_err();
/// assert_eq!(err, r#"defaultZones[1]: want string, got number; wieght: unknown field, did you mean "weight"?"#);
/// ```
pub fn read<T: Decode>(text: &[u8]) -> Result<T, String> {
    if text.is_empty() {
        return Ok(T::absent());
    }
    if !crate::json::is_valid(text) {
        return Err("the configuration is not valid JSON".to_owned());
    }
    let mut mistakes = Vec::new();
    let read = Call::with(|call| match Value::of(call, text) {
        null if null.is_null() => T::absent(),
        value => T::decode(value, "", &mut mistakes),
    });
    if mistakes.is_empty() {
        Ok(read)
    } else {
        Err(mistakes.join("; "))
    }
}

/// Adds a mistake.
pub fn mistake(path: &str, text: &str, mistakes: &mut Vec<String>) {
    mistakes.push(if path.is_empty() { text.to_owned() } else { [path, ": ", text].concat() });
}

fn wrong_kind(want: &str, value: Value<'_>, path: &str, mistakes: &mut Vec<String>) {
    mistake(path, &["want ", want, ", got ", value.kind().name()].concat(), mistakes);
}

/// Returns the path of a member.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        [path, ".", name].concat()
    }
}

impl Decode for String {
    fn absent() -> Self {
        String::new()
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        match value.text() {
            Some(text) => text.to_owned(),
            None => {
                wrong_kind("string", value, path, mistakes);
                String::new()
            }
        }
    }
}

impl Decode for bool {
    fn absent() -> Self {
        false
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        value.boolean().unwrap_or_else(|| {
            wrong_kind("bool", value, path, mistakes);
            false
        })
    }
}

macro_rules! integers {
    ($($type:ty)*) => { $(
        impl Decode for $type {
            fn absent() -> Self {
                0
            }
            fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
                if value.kind() != Kind::Number {
                    wrong_kind("number", value, path, mistakes);
                    return 0;
                }
                let read = value.whole().and_then(|n| match n {
                    (true, n) => <$type>::try_from((n as i64).wrapping_neg()).ok(),
                    (false, n) => <$type>::try_from(n).ok(),
                });
                read.unwrap_or_else(|| {
                    mistake(path, concat!("want a number of the type ", stringify!($type)), mistakes);
                    0
                })
            }
        }
    )* };
}

integers!(i32 i64 u8 u16 u32 usize);

impl Decode for f64 {
    fn absent() -> Self {
        0.0
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        match value.kind() {
            Kind::Number => value.float().unwrap_or(0.0),
            _ => {
                wrong_kind("number", value, path, mistakes);
                0.0
            }
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn absent() -> Self {
        None
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        Some(T::decode(value, path, mistakes))
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn absent() -> Self {
        Vec::new()
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        if value.kind() != Kind::Array {
            wrong_kind("array", value, path, mistakes);
        }
        value.elements().enumerate().map(|(i, v)| T::decode(v, &format!("{}[{}]", path, i), mistakes)).collect()
    }
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn absent() -> Self {
        BTreeMap::new()
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        if value.kind() != Kind::Object {
            wrong_kind("object", value, path, mistakes);
        }
        value.members().map(|(k, v)| (k.to_owned(), T::decode(v, &format!("{}[{}]", path, k), mistakes))).collect()
    }
}

impl Decode for crate::value::Quantity {
    fn absent() -> Self {
        Self::default()
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        let text = value.text().or_else(|| core::str::from_utf8(value.raw()).ok()).unwrap_or_default();
        text.parse().unwrap_or_else(|_| {
            mistake(path, "want a quantity such as 500m or 1Gi", mistakes);
            Self::default()
        })
    }
}

impl Decode for crate::value::Duration {
    fn absent() -> Self {
        Self::default()
    }
    fn decode(value: Value<'_>, path: &str, mistakes: &mut Vec<String>) -> Self {
        value.text().and_then(Self::parse).unwrap_or_else(|| {
            mistake(path, "want a duration such as 1m30s", mistakes);
            Self::default()
        })
    }
}

/// Returns the members of an object. It is for [`config!`](crate::config!).
#[doc(hidden)]
pub fn members<'a>(value: Value<'a>, path: &str, mistakes: &mut Vec<String>) -> crate::json::Members<'a> {
    if value.kind() != Kind::Object {
        wrong_kind("object", value, path, mistakes);
    }
    value.members()
}

/// Reports whether `key` is the name of a field in JSON: `name`, or else the field in camel case.
#[doc(hidden)]
pub fn is_field(field: &str, name: &str, key: &str) -> bool {
    if !name.is_empty() {
        return key == name;
    }
    camel(field) == key
}

fn camel(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut upper = false;
    for c in field.trim_start_matches("r#").chars() {
        match (c, upper) {
            ('_', _) => {
                upper = true;
                continue;
            }
            (c, true) => out.push(c.to_ascii_uppercase()),
            (c, false) => out.push(c),
        }
        upper = false;
    }
    out
}

/// Adds the mistake of a field that does not exist, with the one that was meant.
#[doc(hidden)]
pub fn unknown(key: &str, path: &str, fields: &[(&str, &str)], mistakes: &mut Vec<String>) {
    let mut best: Option<(usize, String)> = None;
    for (field, name) in fields {
        let name = if name.is_empty() { camel(field) } else { (*name).to_owned() };
        let d = distance(key.as_bytes(), name.as_bytes());
        if d <= key.len() / 3 && best.as_ref().map_or(true, |b| d < b.0) {
            best = Some((d, name));
        }
    }
    let text = match best {
        Some((_, name)) => ["unknown field, did you mean \"", &name, "\"?"].concat(),
        None => "unknown field".to_owned(),
    };
    mistake(&child(path, key), &text, mistakes);
}

/// Returns the number of edits between two names: a letter added, left out or replaced, or two
/// neighbours swapped.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let (mut before, mut last) = (Vec::new(), (0..=b.len()).collect::<Vec<_>>());
    for i in 0..a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for j in 0..b.len() {
            let same = a[i].eq_ignore_ascii_case(&b[j]);
            let mut d = (last[j] + !same as usize).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                let before: &Vec<usize> = &before;
                d = d.min(before[j - 1] + 1);
            }
            row.push(d);
        }
        before = core::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Declares a struct that is read from a configuration, as the plugin or a part of it.
///
/// A field is called in camel case in JSON (`default_zones` is `defaultZones`), or as `as` says,
/// and has a default after `=`. A struct without fields, `struct Name;`, takes no configuration.
/// See [`read`](crate::config::read) for an example.
#[macro_export]
macro_rules! config {
    (@default $default:expr) => { $default };
    (@default) => { $crate::config::Decode::absent() };
    (@name $name:literal) => { $name };
    (@name) => { "" };
    ($(#[$meta:meta])* $vis:vis struct $name:ident;) => {
        $(#[$meta])*
        $vis struct $name;

        impl $crate::config::Decode for $name {
            fn absent() -> Self {
                $name
            }
            fn decode(_: $crate::json::Value<'_>, path: &str, mistakes: &mut $crate::alloc::vec::Vec<$crate::alloc::string::String>) -> Self {
                $crate::config::mistake(path, "the plugin takes no configuration", mistakes);
                $name
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty $(as $json:literal)? $(= $default:expr)?),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $crate::config::Decode for $name {
            fn absent() -> Self {
                $name { $($field: $crate::config!(@default $($default)?),)* }
            }
            fn decode(value: $crate::json::Value<'_>, path: &str, mistakes: &mut $crate::alloc::vec::Vec<$crate::alloc::string::String>) -> Self {
                #[allow(unused_mut)]
                let mut read = Self::absent();
                for (key, member) in $crate::config::members(value, path, mistakes) {
                    $(if $crate::config::is_field(stringify!($field), $crate::config!(@name $($json)?), key) {
                        if !member.is_null() {
                            read.$field = $crate::config::Decode::decode(member, &$crate::config::child(path, key), mistakes);
                        }
                        continue;
                    })*
                    $crate::config::unknown(key, path, &[$((stringify!($field), $crate::config!(@name $($json)?))),*], mistakes);
                }
                read
            }
        }
    };
}
