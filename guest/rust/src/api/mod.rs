//! Views of the objects of the Kubernetes API, one module for each package of k8s.io/api. They
//! are of its newest version: a field that a cluster does not know reads as absent.
//!
//! ```
//! use kubewasm::api::core::Pod;
//!
//! let pod = Pod::from_json(kubewasm::Call::for_test(), br#"{"metadata": {"labels": {"app": "web"}}, "spec": {"priority": 7}}"#);
//! assert_eq!(pod.metadata().labels().get("app"), Some("web"));
//! assert_eq!(pod.spec().priority(), Some(7));
//! assert!(pod.spec().containers().is_empty());
//! ```

pub mod admission;
pub mod apps;
pub mod authentication;
pub mod autoscaling;
pub mod batch;
pub mod core;
pub mod meta;
pub mod metrics;
pub mod networking;
pub mod policy;
pub mod rbac;
pub mod resourceapi;
pub mod scheduling;
pub mod schedulingv1alpha3;
pub mod storage;
