package nativehost

import "sync"

// Lookups answers the questions of a plugin that runs natively, as the host functions of
// the same names do.
type Lookups interface {
	GetObject(question string) []byte
	ListObjects(question string) []byte
}

var (
	lookupsMu sync.Mutex
	lookups   Lookups
)

// UseLookups makes s the source until the function that it returns is called. Another UseLookups waits
// for that. Without a source there are no objects.
func UseLookups(s Lookups) (done func()) {
	lookupsMu.Lock()
	lookups = s
	return func() {
		lookups = nil
		lookupsMu.Unlock()
	}
}

// CurrentLookups returns the source, which may be the host of [UseObjects], nil if there is none.
func CurrentLookups() Lookups {
	if of, ok := objects.(Lookups); ok && lookups == nil {
		return of
	}
	return lookups
}
