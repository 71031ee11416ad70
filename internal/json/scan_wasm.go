package json

// The functions of scan_native.go, in scan_wasm.s.

//go:noescape
func next(w *walk) bool

//go:noescape
func indexNested(doc []byte, nested []uint64) int

//go:noescape
func readFields(w *Walker, names []string, fields []Field, version uint32, from int) int
