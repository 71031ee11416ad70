package recording

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// Tape records the calls of one instance, from its begin or reset. Package host calls it; it serves
// one goroutine at a time.
//
// A tape copies the crossing data once, into a buffer that goes to the goroutine that writes. It
// neither waits nor writes itself.
type Tape struct {
	version  *VersionTape
	sequence uint64
	calls    int
	bytes    int
	epoch    uint32
	buf      []byte
	// events is the number of events of the running call, and held the number of bytes that the
	// queue keeps for it.
	events, held int
	start        time.Time
	// over is set once no further call of the sequence can be recorded. ended is set by the
	// goroutine that writes, to end the sequence.
	over  bool
	ended atomic.Bool
	marks Marks
	// closed is set after the last call. kept and stained belong to the goroutine that writes: they
	// hold whether the sequence is written, and its marks so far.
	closed  atomic.Bool
	kept    bool
	stained Marks
	// sent is the number of calls that were handed over.
	sent atomic.Int64
	// stain holds the confidential values known to the instance, for the goroutine that writes.
	stain confidential.Stain
}

// Begin begins a call.
func (t *Tape) Begin(kind CallKind, function string, args []uint64) {
	if t.events = 0; t.over {
		return
	}
	if t.buf == nil {
		t.buf = buffer()
	}
	t.start = time.Now()
	b := append(t.buf[:0], byte(kind))
	b = appendNumbers(appendData(b, function), args)
	t.buf = binary.AppendVarint(b, t.start.UnixNano())
}

// Host begins a call of the host function with that index. Of parameters of 32 bits the other
// half may be anything.
func (t *Tape) Host(index int, params []uint64, types []abi.ValueType) {
	if !t.room(len(params), 0) {
		return
	}
	b := binary.AppendUvarint(append(t.buf, byte(Host)), uint64(index))
	b = append(b, byte(len(params)))
	for i, v := range params {
		b = binary.AppendUvarint(b, Narrow(v, types[i]))
	}
	t.buf = b
}

// Narrow returns a number of a type as it is on the stack, without the half that a type of 32
// bits does not have.
func Narrow(v uint64, t abi.ValueType) uint64 {
	if t == abi.I32 || t == f32 {
		return uint64(uint32(v))
	}
	return v
}

const f32 abi.ValueType = 0x7d

// Result records the end of a host function or of an export within a call, with its result, if
// it has one, on the stack.
func (t *Tape) Result(kind EventKind, stack []uint64, types []abi.ValueType) {
	if !t.room(1, 0) {
		return
	}
	b := append(t.buf, byte(kind), byte(len(types)))
	if len(types) > 0 {
		b = binary.AppendUvarint(b, Narrow(stack[0], types[0]))
	}
	t.buf = b
}

// Invoke begins a call of the export with that index within the call.
func (t *Tape) Invoke(index int, args []uint64) {
	if !t.room(len(args), 0) {
		return
	}
	t.buf = appendNumbers(binary.AppendUvarint(append(t.buf, byte(Invoke)), uint64(index)), args)
}

// Numbers records an event of numbers: Charge, Spend or Value.
func (t *Tape) Numbers(kind EventKind, args ...uint64) {
	if !t.room(len(args), 0) {
		return
	}
	t.buf = appendNumbers(append(t.buf, byte(kind)), args)
}

// Bytes records an event of numbers and bytes, which are copied: Read, Write, Put or Text.
func (t *Tape) Bytes(kind EventKind, data []byte, args ...uint64) {
	if !t.room(len(args), len(data)) {
		return
	}
	t.buf = appendData(appendNumbers(append(t.buf, byte(kind)), args), data)
}

// Data records an event of bytes, which are copied: Input, Output, Argument, Abort or Random.
func (t *Tape) Data(kind EventKind, data []byte) {
	if !t.room(0, len(data)) {
		return
	}
	t.buf = appendData(append(t.buf, byte(kind)), data)
}

// eventBytes is the maximum size of an event beside its numbers and its bytes.
const eventBytes = 32

// room reports whether another event is recorded, of n numbers and so many bytes. If the call has
// become too large, or the queue has no room for it, the sequence ends before it.
func (t *Tape) room(n, bytes int) bool {
	if t.over {
		return false
	}
	t.events++
	if size := len(t.buf) + eventBytes + n*binary.MaxVarintLen64 + bytes; size <= maxCallBytes && t.events <= maxEvents && t.hold(size) {
		return true
	}
	t.giveUp()
	return false
}

// hold has the queue keep room for so many bytes of the running call: data held by a running call
// counts like calls that wait to be written.
func (t *Tape) hold(size int) bool {
	r := t.version.recorder
	if r == nil || size <= t.held {
		return true
	}
	for _, want := range [...]int{max(size, 2*t.held, 1<<10), size} { // A buffer grows as much.
		if r.hold(int64(want - t.held)) {
			t.held = want
			return true
		}
	}
	return false
}

// giveUp ends the sequence before the running call.
func (t *Tape) giveUp() {
	t.over, t.buf = true, nil
	if r := t.version.recorder; r != nil {
		r.free(int64(t.held))
		t.held = 0
		r.drop()
	}
}

// Confidential records the description of the bytes that the host function hands over.
func (t *Tape) Confidential(shape confidential.Shape, part uint32, list bool) {
	if !t.room(3, 0) {
		return
	}
	args := [3]uint64{uint64(shape), uint64(part)}
	if list {
		args[2] = 1
	}
	t.buf = appendNumbers(append(t.buf, byte(Confidential)), args[:])
}

// Refused records that the guest's memory could not grow.
func (t *Tape) Refused() { t.marks |= Refused }

// End ends a call and passes it on.
func (t *Tape) End(end End, result uint64, fuel int64, trap string, output []byte) {
	if t.over {
		return
	}
	if !t.hold(len(t.buf) + 2*eventBytes + len(trap) + len(output)) {
		t.giveUp()
		return
	}
	b := append(t.buf, byte(endOfCall), byte(end))
	b = binary.AppendUvarint(b, result)
	b = binary.AppendVarint(b, fuel)
	b = binary.AppendVarint(b, int64(time.Since(t.start)))
	t.buf = appendData(appendData(b, trap), output)
	r := t.version.recorder
	number := t.calls
	t.calls++
	t.bytes += len(t.buf)
	if r == nil {
		if c, err := decodeCall(t.buf, nil); err == nil {
			c.Version, c.Number, c.Marks = t.version.version, uint64(number), t.marks
			t.version.tap(c)
		}
		t.buf = nil
		return
	}
	if !r.send(item{tape: t, number: uint64(number), marks: t.marks, body: t.buf, held: int64(t.held)}) {
		t.giveUp()
		return
	}
	t.buf, t.held = nil, 0
}

// Next reports whether the sequence goes on. If it does not, the instance must be reset and
// then get another tape.
func (t *Tape) Next() bool {
	r := t.version.recorder
	if r == nil {
		return true
	}
	return !t.over && !t.ended.Load() && t.calls < r.cfg.SequenceCalls && t.bytes < maxSequenceBytes && t.epoch == r.epoch.Load()
}

// Close ends the sequence.
func (t *Tape) Close() {
	t.over = true
	if t.buf != nil {
		release(t.buf)
		t.buf = nil
	}
	if r := t.version.recorder; r != nil {
		r.free(int64(t.held))
		t.held = 0
	}
	t.closed.Store(true)
}

// buffers keeps the buffers of calls.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxKeptBuffer is the size of the largest buffer that is used again.
const maxKeptBuffer = 256 << 10

func buffer() []byte { return (*buffers.Get().(*[]byte))[:0] }

func release(b []byte) {
	if cap(b) <= maxKeptBuffer {
		buffers.Put(&b)
	}
}
