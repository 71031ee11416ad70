package sched

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// nodeReads is what a guest has ever read of the Nodes that it asks for by parts. Its answer
// about one cannot depend on anything else of it. So Nodes that are equal in this are one
// question, as long as nothing happens in a cycle. What is read in one call may be known in
// the next, and what one instance does another would do, too: so what counts is all that
// any instance has read so far.
//
// What says which Node it is no other has. It is noted with the Node of which it was read
// (see identityNote), so that a guest that names some Nodes in its reasons is asked about
// these.
type nodeReads struct {
	// logger tells what is read, for who wonders why a guest is asked how often.
	logger *slog.Logger
	// parts are the fields that were read of metadata, spec and status, by their numbers
	// as parts, and entries those of labels and annotations that were read alone.
	parts   [4]atomic.Uint64
	entries atomic.Pointer[[]nodeEntry]
	// alike finds out which Nodes are equal in this, nil if that is not worthwhile.
	alike atomic.Pointer[alike]
	// cycles counts the cycles, and again is the one in which Nodes are compared again
	// that were too different, 0 if they were not.
	cycles, again atomic.Uint64

	mu sync.Mutex
	// off says that each Node is a question of its own.
	off bool
}

// nodeEntry is a key of the labels or the annotations, by their number in the metadata.
type nodeEntry struct {
	field uint32
	key   string
}

// alike finds out which Nodes are equal in what was read.
type alike struct {
	// table has them by what was read, without their names.
	table objects.Table
	// asked counts the questions that the guest was asked, and alone those since it was
	// looked at last whose answers are of one Node alone.
	asked, alone atomic.Uint64
}

const (
	// maxEntries is by how many keys of labels and annotations Nodes are compared, and
	// maxKey how long one may be: longer than any that a Node can have.
	maxEntries, maxKey = 16, 512
	// judgedEvery is after how many questions it is looked at whether it is worthwhile to
	// compare Nodes, and againAfter after how many cycles that is tried again.
	judgedEvery, againAfter = 64, 256
)

// identity are the fields of the metadata that say which Node it is, or which version:
// name, uid and resourceVersion.
const identity = 1<<1 | 1<<5 | 1<<6

// identityNote is which of the notes of a Node says whether identity was read of it.
const identityNote = 4

// part notes that the guest reads fields of a part of a Node.
func (r *nodeReads) part(node *objects.Object, number uint32, fields uint64) {
	if number == objects.MetadataPart && fields&identity != 0 {
		node.Notes[identityNote].Store(1)
		if fields != abi.AllFields {
			fields &^= identity
		}
	}
	if uint64(number) < uint64(len(r.parts)) && r.parts[number].Load()&fields != fields {
		r.change(func() { r.parts[number].Or(fields) })
	}
}

// entry notes that the guest looks a key up in the labels or the annotations of a Node.
// The key is only valid during the call.
func (r *nodeReads) entry(field uint32, key string) {
	if field != objects.LabelsField && field != objects.AnnotationsField || slices.Contains(r.known(), nodeEntry{field, key}) {
		return
	}
	r.change(func() {
		known := r.known()
		if len(known) >= maxEntries || len(key) > maxKey {
			r.off = true
			return
		}
		known = append(slices.Clip(known), nodeEntry{field, strings.Clone(key)})
		r.entries.Store(&known)
	})
}

func (r *nodeReads) known() []nodeEntry {
	if p := r.entries.Load(); p != nil {
		return *p
	}
	return nil
}

// everything notes that the guest may know which Node it is, or that nobody knows what it
// reads.
func (r *nodeReads) everything() { r.change(func() { r.off = true }) }

// change adds something to what is read. What was answered without it counts no longer.
func (r *nodeReads) change(add func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.off {
		add()
		r.compare()
	}
}

// compare begins to compare Nodes by what was read so far.
func (r *nodeReads) compare() {
	r.alike.Store(nil)
	r.again.Store(0)
	if r.off {
		return
	}
	var paths []string
	for number := range r.parts {
		paths = append(paths, objects.NodePaths(uint32(number), r.parts[number].Load())...)
	}
	for _, e := range r.known() {
		for _, path := range objects.NodePaths(objects.MetadataPart, 1<<e.field) {
			paths = append(paths, fmt.Sprintf("%s[%s]", path, e.key))
		}
	}
	if len(paths) == 0 {
		return // It does not look at Nodes.
	}
	p, err := objects.ParseProjection(append(paths, objects.NamelessNodes))
	if err != nil {
		r.off = true // A key that is none.
		return
	}
	a := &alike{}
	a.table.Project(p, false)
	r.alike.Store(a)
	r.logger.Debug("Nodes are compared by what the guest has read", "fields", paths)
}

// next begins a cycle.
func (r *nodeReads) next() {
	n := r.cycles.Add(1)
	if a := r.alike.Load(); a != nil {
		a.table.Advance()
	} else if again := r.again.Load(); again != 0 && n >= again {
		r.change(func() {})
	}
}

// holds reports whether what the guest just said about a Node it would have said about all
// that are alike. ofNode says that it asked for nothing but its arguments, and did not fail.
// If few such answers hold, or most Nodes are like no other, they are not compared for a
// while.
func (r *nodeReads) holds(a *alike, node *objects.Object, ofNode bool) bool {
	ok := ofNode && node.Notes[identityNote].Load() == 0
	if !ok {
		a.alone.Add(1)
	}
	if a.asked.Add(1)%judgedEvery == 0 {
		r.judge(a)
	}
	return ok && r.alike.Load() == a
}

func (r *nodeReads) judge(a *alike) {
	alone := a.alone.Swap(0)
	nodes, contents := a.table.Nodes()
	if 2*alone <= judgedEvery && 2*contents <= nodes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alike.CompareAndSwap(a, nil) {
		r.again.Store(r.cycles.Load() + againAfter)
		r.logger.Debug("Nodes are compared no longer for a while, since too few answers are of several",
			"nodes", nodes, "contents", contents, "answers", judgedEvery, "alone", alone, "cycles", againAfter)
	}
}
