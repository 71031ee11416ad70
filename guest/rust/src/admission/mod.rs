//! Policies: a plugin validates requests, changes their objects, or converts custom resources
//! between versions.
//!
//! ```
//! use kubewasm::admission::{FieldError, Path, Request, Response, Validate};
//!
//! kubewasm::config! {
//!     pub struct Policy {
//!         labels: Vec<String>,
//!     }
//! }
//!
//! impl Validate for Policy {
//!     fn validate(&self, req: &Request<'_>) -> Response {
//!         let pod = match req.pod() {
//!             Some(pod) => pod,
//!             None => return Response::allow(),
//!         };
//!         let mut response = Response::allow();
//!         for key in &self.labels {
//!             if !pod.metadata().labels().contains_key(key) {
//!                 let path = pod.path().child("metadata").child("labels").key(key);
//!                 response = response.with_field_error(FieldError::required(&path, "every Pod must have it"));
//!             }
//!         }
//!         response
//!     }
//! }
//!
//! kubewasm::plugin! {
//!     Policy: Validate;
//!     matches = ["CREATE,UPDATE pods deployments.apps"];
//! }
//! # fn main() {}
//! ```

mod conversion;
#[doc(hidden)]
pub mod export;
mod field;
#[allow(missing_docs)]
pub mod messages;
mod patch;
mod pod;
mod request;
mod response;

pub use self::conversion::Conversion;
pub use self::field::{FieldError, Path};
pub use self::patch::Patch;
pub use self::pod::{Container, PodOf};
pub use self::request::{Operation, Request};
pub use self::response::Response;
pub use crate::lookup::{get, list, Objects};

use alloc::string::String;

/// Decides about requests.
pub trait Validate {
    /// Allows a request, or says why not. The host decides the same request again with the same
    /// answers to look-ups, so the response must depend on nothing else.
    fn validate(&self, req: &Request<'_>) -> Response;
}

/// Changes the objects of requests before anybody validates them.
pub trait Mutate {
    /// Changes the object by `patch`, and may refuse the request as well. It may be called more
    /// than once for a request, and must then have nothing left to change.
    fn mutate(&self, req: &Request<'_>, patch: &mut Patch<'_>) -> Response;
}

/// Converts custom resources between versions.
pub trait Convert {
    /// Changes the object by `patch` into the version that is desired. The SDK sets its
    /// apiVersion. The user sees an error.
    fn convert(&self, c: &Conversion<'_>, patch: &mut Patch<'_>) -> Result<(), String>;
}
