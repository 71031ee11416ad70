package hooks

import (
	"bytes"
	"hash/maphash"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// accepted is a table of decisions of an instance that were found right, by their
// bytes. What a plugin decides is mostly what it decided before: about a replica, at
// the next stage, at the next resync.
type accepted [128]acceptedDecision

// acceptedDecision is one of them, of requests at one level. The zero value is none.
type acceptedDecision struct {
	encoded  []byte
	level    hookmsg.Level
	decision *hookmsg.Decision
}

// maxAccepted is how many bytes a decision has at most that is kept.
const maxAccepted = 1 << 10

var acceptedSeed = maphash.MakeSeed()

// at returns where the decision stands if it is in the table.
func (a *accepted) at(encoded []byte) *acceptedDecision {
	return &a[maphash.Bytes(acceptedSeed, encoded)%uint64(len(a))]
}

// get returns the decision, nil if this is another.
func (e *acceptedDecision) get(encoded []byte, level hookmsg.Level) *hookmsg.Decision {
	if e.level != level || !bytes.Equal(e.encoded, encoded) {
		return nil
	}
	return e.decision
}

// put has this be the decision. encoded is copied.
func (e *acceptedDecision) put(encoded []byte, level hookmsg.Level, d *hookmsg.Decision) {
	if len(encoded) <= maxAccepted {
		e.encoded, e.level, e.decision = append(e.encoded[:0], encoded...), level, d
	}
}
