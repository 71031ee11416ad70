use alloc::string::String;
use core::fmt;

/// The result of a function of a plugin.
pub type Result<T = ()> = core::result::Result<T, Status>;

/// Why a function does not succeed. Success is Ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    code: Code,
    reason: String,
}

/// The code of a [`Status`], as in the scheduler framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Something is wrong with the plugin or what it works with.
    Error = 1,
    /// The Pod does not fit, but might after other Pods were preempted.
    Unschedulable = 2,
    /// The Pod does not fit, also after any preemption.
    UnschedulableAndUnresolvable = 3,
    /// The Pod waits. Permit has [`Permission::Wait`](super::Permission) for it.
    Wait = 4,
    /// The function has nothing to do.
    Skip = 5,
    /// The Pod waits for something outside of the scheduler.
    Pending = 6,
}

impl Code {
    pub(crate) fn of(code: i64) -> Option<Code> {
        Some(match code {
            0 => return None,
            2 => Code::Unschedulable,
            3 => Code::UnschedulableAndUnresolvable,
            4 => Code::Wait,
            5 => Code::Skip,
            6 => Code::Pending,
            _ => Code::Error,
        })
    }
}

impl Status {
    /// Returns a status.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Status { code, reason: reason.into() }
    }

    /// The Pod does not fit, but might after other Pods were preempted. Users find the reason in
    /// the conditions of the Pod.
    pub fn unschedulable(reason: impl Into<String>) -> Self {
        Status::new(Code::Unschedulable, reason)
    }

    /// The Pod does not fit, also after any preemption.
    pub fn unresolvable(reason: impl Into<String>) -> Self {
        Status::new(Code::UnschedulableAndUnresolvable, reason)
    }

    /// Something is wrong.
    pub fn error(reason: impl Into<String>) -> Self {
        Status::new(Code::Error, reason)
    }

    /// The function has nothing to do for this Pod.
    pub fn skip() -> Self {
        Status::new(Code::Skip, "")
    }

    /// Adds another reason. In a Pod's condition the scheduler counts the nodes with each.
    pub fn and(mut self, reason: &str) -> Self {
        if !self.reason.is_empty() {
            self.reason.push('\0');
        }
        self.reason.push_str(reason);
        self
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the reason, several with a NUL between them.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<String> for Status {
    /// An error with the text.
    fn from(text: String) -> Self {
        Status::error(text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.code)?;
        for (i, reason) in self.reason.split('\0').filter(|r| !r.is_empty()).enumerate() {
            f.write_str(if i == 0 { ": " } else { ", " })?;
            f.write_str(reason)?;
        }
        Ok(())
    }
}
