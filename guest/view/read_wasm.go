package view

// The functions of read_native.go, in read_wasm.s.

func readMessage(v View, n uint32, t *Type) View

func readViews(v View, n uint32, t *Type) []View

func readText(v View, n uint32) string

func readEntry(s StringMap, key string) string

//go:noescape
func readUsual(m *message, at int) int

//go:noescape
func readElements(m *message, key uint64, at, end int, into []message, count int) (next, total int)

//go:noescape
func readEntries(b []byte, at int, number uint64, key string) (next int, value uint64)

// Of what is of an earlier version, called by readMessage, readViews and
// readEntry.

func rereadMessage(v View, n uint32, t *Type) View

func rereadViews(v View, n uint32, t *Type) []View

func rereadEntry(s StringMap, key string) string
