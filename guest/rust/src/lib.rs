#![no_std]
#![warn(missing_docs)]

extern crate self as kubewasm;
#[doc(hidden)]
pub extern crate alloc;
#[cfg(any(test, all(target_arch = "wasm32", feature = "std")))]
extern crate std;

#[allow(missing_docs)]
pub mod api;
mod global;
#[allow(dead_code)]
mod host;
pub mod json;
#[allow(dead_code)]
mod memory;
mod object;
#[allow(dead_code)]
mod panic;
pub mod value;
pub mod view;
pub mod wire;
