// Package statemap holds the state that all instances of a plugin share, and its transactions:
// abi/SPEC.md, section 6, has the semantics. The host and the kit that runs guests natively use it.
//
// A transaction reads a snapshot, which costs nothing since committed chunks are copied before they
// change while others read them. Its reads are compared when it commits, under a lock that no guest
// code runs under, so it cannot deadlock. Operations that take effect at once, with a log to undo them,
// were turned down: others would act on writes that are undone. So were locks by key: a guest may hold
// one for its whole timeout.
package statemap
