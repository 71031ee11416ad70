package view

// The functions in read_native.go and read_wasm.s are those in which a guest spends
// its time. A Go function in WebAssembly begins with a jump through a table, each
// jump within goes through that table again, and locals lie in memory; a function
// in assembly that calls nothing has none of that. So there are two of each, and
// what is unusual both leave to Go: the functions below, and the caller of those
// that say how far they came.

func slowEntry(s StringMap, key string) string {
	if m := s.m; m != nil && m.object.part == metadataPart && m.lacks(s.at.field()) {
		if a := m.entryAgain(s.at, key); a != nil {
			return a.Value
		}
	}
	return s.answer(key).Value
}

func slowText(v View, n uint32) string { return v.text(n) }
