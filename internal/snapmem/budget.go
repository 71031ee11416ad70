package snapmem

import "sync/atomic"

// Budget bounds the size of several memories together, in bytes. It is safe for
// use by several goroutines.
type Budget struct {
	limit uint64
	used  atomic.Uint64
}

// NewBudget makes a budget of limit bytes; 0 means that it only counts.
func NewBudget(limit uint64) *Budget { return &Budget{limit: limit} }

// Used returns how many bytes are taken.
func (b *Budget) Used() uint64 { return b.used.Load() }

// Limit returns how many bytes there are, 0 for no limit.
func (b *Budget) Limit() uint64 { return b.limit }

// take takes n bytes, or none if there are less.
func (b *Budget) take(n uint64) bool {
	for {
		used := b.used.Load()
		// used never exceeds a limit, so the difference does not wrap.
		if b.limit != 0 && n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *Budget) give(n uint64) { b.used.Add(-n) }
