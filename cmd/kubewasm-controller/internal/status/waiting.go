package status

import "sync"

// Waiting are the keys that wait in a queue. 5,000 reports on 200 plugins are a million events at a
// start: a queue keeps each addition until it gets to sort it, which took more memory than all that the
// controller knows.
type Waiting[K comparable] struct {
	mu   sync.Mutex
	keys map[K]bool
}

// Add reports whether a key is to be added to the queue. It is not if it waits: whoever takes it calls
// Taken before it reads the cache, so that it sees what the event was about.
func (w *Waiting[K]) Add(key K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key] {
		return false
	}
	if w.keys == nil {
		w.keys = map[K]bool{}
	}
	w.keys[key] = true
	return true
}

// Taken notes that a key was taken from the queue.
func (w *Waiting[K]) Taken(key K) {
	w.mu.Lock()
	delete(w.keys, key)
	w.mu.Unlock()
}
