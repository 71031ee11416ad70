use alloc::string::String;
use alloc::vec::Vec;

use super::field::FieldError;
use crate::{host, wire};

/// What a policy decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    verdict: u32,
    code: u32,
    reason: String,
    message: String,
    errors: Vec<FieldError>,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
}

const ERROR: u32 = 1;
const DENY: u32 = 2;

impl Response {
    /// Allows the request.
    pub fn allow() -> Self {
        Response::default()
    }

    /// Denies the request. The user sees the message.
    pub fn deny(message: impl Into<String>) -> Self {
        Response { verdict: DENY, message: message.into(), ..Response::default() }
    }

    /// The policy cannot decide: its failure policy does.
    pub fn error(message: impl Into<String>) -> Self {
        Response { verdict: ERROR, message: message.into(), ..Response::default() }
    }

    /// Denies the request for a field.
    pub fn invalid(error: FieldError) -> Self {
        Response::allow().with_field_error(error)
    }

    /// Sets the HTTP status of a denial, 400 to 599. The default is 403, and 422 with field errors.
    pub fn with_code(mut self, code: u32) -> Self {
        self.code = code;
        self
    }

    /// Sets the reason of a denial: "Conflict".
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Denies the request for a field, too.
    pub fn with_field_error(mut self, error: FieldError) -> Self {
        if self.verdict == 0 {
            self.verdict = DENY;
        }
        self.errors.push(error);
        self
    }

    /// Adds a warning, which the user sees whether the request is allowed or not.
    pub fn with_warning(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds an annotation for the audit log.
    pub fn with_audit_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.push((key.into(), value.into()));
        self
    }

    /// Reports whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.verdict == 0
    }

    /// Reports whether the policy could not decide.
    pub fn is_error(&self) -> bool {
        self.verdict == ERROR
    }

    /// Returns the message of a denial or an error.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Tells the host, and returns the verdict for it.
    pub(crate) fn give(self) -> u64 {
        let mut b = Vec::new();
        if !self.reason.is_empty() {
            wire::append_bytes(&mut b, 1, self.reason.as_bytes());
        }
        for e in &self.errors {
            wire::append_message(&mut b, 2, |b| {
                for (number, text) in [(1, e.field.as_str()), (2, e.kind), (3, &e.detail), (4, &e.bad_value)] {
                    if !text.is_empty() {
                        wire::append_bytes(b, number, text.as_bytes());
                    }
                }
            });
        }
        for warning in &self.warnings {
            wire::append_bytes(&mut b, 3, warning.as_bytes());
        }
        for (key, value) in &self.annotations {
            wire::append_entry(&mut b, 4, key, value);
        }
        if !b.is_empty() {
            host::give(host::admission_result, &b);
        }
        if self.verdict != 0 && !self.message.is_empty() {
            host::reason(&self.message);
        }
        let code = if self.verdict == DENY { self.code } else { 0 };
        (code as u64) << 32 | self.verdict as u64
    }
}
