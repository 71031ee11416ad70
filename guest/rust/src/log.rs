//! Lines for the host's log, with attributes.
//!
//! ```
//! kubewasm::log::info("configured", &[("label", &"app"), ("tries", &3)]);
//! ```

use alloc::string::String;
use core::fmt::{self, Display, Write};

use crate::host;

/// The attributes of a line: keys and values.
pub type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

/// Writes a line at the level debug.
pub fn debug(text: &str, attributes: Attributes<'_>) {
    write_line(-4, text, attributes)
}

/// Writes a line at the level info.
pub fn info(text: &str, attributes: Attributes<'_>) {
    write_line(0, text, attributes)
}

/// Writes a line at the level warning.
pub fn warn(text: &str, attributes: Attributes<'_>) {
    write_line(4, text, attributes)
}

/// Writes a line at the level error.
pub fn error(text: &str, attributes: Attributes<'_>) {
    write_line(8, text, attributes)
}

/// A line whose parts have no NUL, which stands between them.
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for (i, part) in s.split('\0').enumerate() {
            if i > 0 {
                self.0.push('\u{fffd}');
            }
            self.0.push_str(part);
        }
        Ok(())
    }
}

fn write_line(level: i32, text: &str, attributes: Attributes<'_>) {
    let mut line = Line(String::new());
    let _ = line.write_str(text);
    for (key, value) in attributes {
        line.0.push('\0');
        let _ = line.write_str(key);
        line.0.push('\0');
        let _ = write!(line, "{}", value);
    }
    unsafe { host::log(level, line.0.as_ptr(), line.0.len() as u32) }
}
