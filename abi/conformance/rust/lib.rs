//! The conformance guests, which are the examples of this package.
