// Package statemap holds the state that all instances of a plugin share, and its transactions:
// abi/SPEC.md, section 6, has the semantics. The host and the kit that runs guests natively use it.
package statemap
