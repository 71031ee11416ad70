package wasmbin

// TestPass is the pass that the tests run modules with, beside running them without: that
// of package gowasm, which imports this one.
var TestPass Pass

// TestCoroutines are those of package gowasm, too.
var TestCoroutines *Coroutines
