//! Plugins of Kubernetes components in WebAssembly: scheduler plugins ([`sched`]), admission
//! policies ([`admission`]), runtime hooks ([`hooks`]) and extension points of a component's own
//! ([`service`]), for hosts that embed kubewasm.
//!
//! A plugin is a type that implements the traits of its extension points, and [`plugin!`]
//! registers it, which makes the crate a module. There are examples with each of the modules
//! above. Kubernetes objects are views of the bytes where they lie ([`api`], [`view`]): an
//! accessor costs a scan of one message, and of objects of the scheduler only the fields that are
//! read come from the host. Views and the strings that they return live as long as the [`Call`], and
//! code that keeps them for longer does not compile.
//!
//! The crate is `no_std` with `alloc`. With the feature `std`, which is on by default, a module
//! links the standard library: Rust before 1.68 needs it. Panics end the call, and their message
//! is part of the host's error.
#![no_std]
#![warn(missing_docs)]

extern crate self as kubewasm;
#[doc(hidden)]
pub extern crate alloc;
#[cfg(any(test, all(target_arch = "wasm32", feature = "std")))]
extern crate std;

pub mod admission;
#[allow(missing_docs)]
pub mod api;
mod call;
mod compare;
pub mod config;
mod global;
pub mod hooks;
#[allow(dead_code)]
mod host;
mod index;
pub mod json;
pub mod log;
pub mod lookup;
#[allow(dead_code)]
mod memory;
mod object;
#[allow(dead_code)]
mod panic;
pub mod plugin;
mod scan;
pub mod sched;
pub mod select;
pub mod service;
pub mod state;
pub mod value;
pub mod view;
pub mod wire;

pub use self::call::Call;
