use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::json::{self, ToJson};

/// The path of a field in an object: `spec.containers[0].image`. The default is the object.
///
/// ```
/// use kubewasm::admission::Path;
///
/// let path = Path::new("spec").child("containers").index(0).child("env").key("a");
/// assert_eq!(path.to_string(), "spec.containers[0].env[a]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Member(String),
    Key(String),
    Index(usize),
}

impl Step {
    /// Returns the name of a member, None for an index.
    pub(crate) fn member(&self) -> Option<&str> {
        match self {
            Step::Member(name) | Step::Key(name) => Some(name),
            Step::Index(_) => None,
        }
    }
}

impl Path {
    /// Returns the path of a field of the object.
    pub fn new(name: &str) -> Self {
        Path::default().child(name)
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 2);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Path(steps)
    }

    /// Returns the path of a field of the field.
    pub fn child(&self, name: &str) -> Self {
        self.with(Step::Member(name.to_owned()))
    }

    /// Returns the path of an element of the list.
    pub fn index(&self, i: usize) -> Self {
        self.with(Step::Index(i))
    }

    /// Returns the path of an entry of the map.
    pub fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

pub(crate) fn write_steps(f: &mut impl fmt::Write, steps: &[Step]) -> fmt::Result {
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Member(name) if i == 0 => f.write_str(name)?,
            Step::Member(name) => write!(f, ".{}", name)?,
            Step::Key(key) => write!(f, "[{}]", key)?,
            Step::Index(n) => write!(f, "[{}]", n)?,
        }
    }
    Ok(())
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_steps(f, &self.0)
    }
}

/// What is wrong with a field, as errors of the API server are: of
/// `k8s.io/apimachinery/pkg/util/validation/field`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub(crate) kind: &'static str,
    pub(crate) field: String,
    pub(crate) bad_value: String,
    pub(crate) detail: String,
}

impl FieldError {
    fn new(kind: &'static str, path: &Path, bad_value: String, detail: impl Into<String>) -> Self {
        FieldError { kind, field: path.to_string(), bad_value, detail: detail.into() }
    }

    /// The value is not valid.
    pub fn invalid<T: ToJson + ?Sized>(path: &Path, value: &T, detail: impl Into<String>) -> Self {
        FieldError::new("FieldValueInvalid", path, json::to_json(value), detail)
    }

    /// The value has the wrong type.
    pub fn type_invalid<T: ToJson + ?Sized>(path: &Path, value: &T, detail: impl Into<String>) -> Self {
        FieldError::new("FieldValueTypeInvalid", path, json::to_json(value), detail)
    }

    /// There has to be a value.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        FieldError::new("FieldValueRequired", path, String::new(), detail)
    }

    /// The value is not allowed.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        FieldError::new("FieldValueForbidden", path, String::new(), detail)
    }

    /// The value refers to something that is not there.
    pub fn not_found<T: ToJson + ?Sized>(path: &Path, value: &T) -> Self {
        FieldError::new("FieldValueNotFound", path, json::to_json(value), "")
    }

    /// The value occurs twice.
    pub fn duplicate<T: ToJson + ?Sized>(path: &Path, value: &T) -> Self {
        FieldError::new("FieldValueDuplicate", path, json::to_json(value), "")
    }

    /// The value is none of `valid`.
    pub fn not_supported<T: ToJson + ?Sized>(path: &Path, value: &T, valid: &[&str]) -> Self {
        let list: Vec<String> = valid.iter().map(|v| json::to_json(*v)).collect();
        FieldError::new("FieldValueNotSupported", path, json::to_json(value), format!("supported values: {}", list.join(", ")))
    }

    /// The value has more than `most` bytes.
    pub fn too_long(path: &Path, most: usize) -> Self {
        FieldError::new("FieldValueTooLong", path, String::new(), format!("may not be more than {} bytes", most))
    }

    /// The list has `n` items, more than `most`.
    pub fn too_many(path: &Path, n: usize, most: usize) -> Self {
        FieldError::new("FieldValueTooMany", path, json::to_json(&n), format!("must have at most {} items", most))
    }
}
