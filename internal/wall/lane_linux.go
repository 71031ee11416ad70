//go:build amd64 || arm64

package wall

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Op is the kind of a message.
type Op uint32

// The sides of a lane, which are also the values of its turn.
const (
	parentSide = 0
	childSide  = 1
)

const (
	// headerBytes is the size of the shared page of a lane.
	headerBytes = 256 << 10
	// MaxWords is the maximum number of parameters of a function that crosses the wall.
	MaxWords = 24
	// MaxText is the size of the text of a message in bytes.
	MaxText = 252 << 10
)

// page is the shared part of a lane. The other side may write to all of it at any time. The words that a
// side polls are apart from those that the other one writes meanwhile: a processor that polls takes the
// line away from the writer before each store.
type page struct {
	turn   atomic.Uint32
	_      [124]byte
	asleep [2]atomic.Uint32
	_      [120]byte
	op     atomic.Uint32
	n      atomic.Uint32
	length atomic.Uint32
	fuel   atomic.Int64
	stack  atomic.Uint64
	words  [MaxWords]atomic.Uint64
	text   [MaxText]byte
}

// Lane passes messages between the two sides, strictly in turn.
type Lane struct {
	*page
	side uint32
	// Spin is the maximum time for which the side spins before it sleeps.
	Spin time.Duration
	// missed counts the waits in a row that were longer.
	missed uint32
}

// NewLane makes a lane and returns the parent's side, and a file for [OpenLane].
func NewLane() (l Lane, file int, err error) {
	if file, err = NewFile(headerBytes); err != nil {
		return Lane{}, -1, err
	}
	b, err := unix.Mmap(file, 0, headerBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(file)
		return Lane{}, -1, err
	}
	return lane(b, parentSide), file, nil
}

// OpenLane returns the child's side of a lane. It closes the file.
func OpenLane(file int) (Lane, error) {
	b, err := Map(file, headerBytes)
	if err != nil {
		return Lane{}, err
	}
	return lane(b, childSide), nil
}

func lane(b []byte, side uint32) Lane {
	return Lane{page: (*page)(unsafe.Pointer(unsafe.SliceData(b))), side: side, Spin: maxSpin}
}

// Close frees this side, which nobody may use any more.
func (l *Lane) Close() {
	_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(l.page)), headerBytes))
}

// Other returns the other side of the lane.
func (l *Lane) Other() Lane { return Lane{page: l.page, side: 1 - l.side, Spin: l.Spin} }

// A side spins for maxSpin before it sleeps, which is about what a wake-up takes. After two waits in a row
// that were longer, because of pauses or for want of a processor for the other side, it spins for minSpin,
// except each 16th time.
const (
	minSpin = 4 * time.Microsecond
	maxSpin = 50 * time.Microsecond
)

// waitSlice is the time after which a side that sleeps looks around.
const waitSlice = 20 * time.Millisecond

// Message is the part of a message beside its words and text.
type Message struct {
	Op    Op
	N     uint32
	Fuel  int64
	Stack uint64
}

// Room returns the room for the text of a message. The side that has the turn may read and write it:
// the other one may as well, at any time.
func (l *Lane) Room() []byte { return l.text[:] }

// Send gives the other side a message and the turn. The text is length bytes of Room.
func (l *Lane) Send(m Message, words []uint64, length int) {
	l.op.Store(uint32(m.Op))
	l.n.Store(m.N)
	l.fuel.Store(m.Fuel)
	l.stack.Store(m.Stack)
	for i, w := range words[:min(len(words), MaxWords)] {
		l.words[i].Store(w)
	}
	l.length.Store(uint32(length))
	other := 1 - l.side
	l.turn.Store(other)
	if l.asleep[other].Load() != 0 {
		l.wake()
	}
}

func (l *Lane) wake() { futex(&l.turn, futexWake, 1<<30, nil) }

// The operations of futex.
const futexWait, futexWake = 0, 1

// futex calls the kernel for a word that processes share.
func futex(word *atomic.Uint32, op int, value uint32, timeout *unix.Timespec) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op), uintptr(value), uintptr(unsafe.Pointer(timeout)), 0, 0)
}

// Wait waits for the turn. It calls check, unless that is nil, before each sleep, which lasts for
// some milliseconds; an error of check ends the wait.
func (l *Lane) Wait(check func() error) error {
	if l.spins() {
		l.missed = 0
		return nil
	}
	l.missed++
	l.asleep[l.side].Store(1)
	defer l.asleep[l.side].Store(0)
	for l.turn.Load() != l.side {
		var timeout *unix.Timespec
		if check != nil {
			if err := check(); err != nil {
				return err
			}
			timeout = &unix.Timespec{Nsec: int64(waitSlice)}
		}
		futex(&l.turn, futexWait, 1-l.side, timeout)
	}
	return nil
}

// spins reports whether the side has the turn before it is time to sleep.
func (l *Lane) spins() bool {
	var start time.Time
	for most := l.spin(); ; {
		for range 64 {
			if l.turn.Load() == l.side {
				return true
			}
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) >= most {
			return false
		}
	}
}

// spin returns the time for which the side spins next.
func (l *Lane) spin() time.Duration {
	if l.missed < 2 || l.missed%16 == 0 {
		return l.Spin
	}
	return min(l.Spin, minSpin)
}

// Receive copies the message, and as many words as there is room for.
func (l *Lane) Receive(words []uint64) Message {
	for i := range words[:min(len(words), MaxWords)] {
		words[i] = l.words[i].Load()
	}
	return Message{Op(l.op.Load()), l.n.Load(), l.fuel.Load(), l.stack.Load()}
}

// Text returns the text of the message in Room.
func (l *Lane) Text() []byte { return l.text[:min(l.length.Load(), MaxText)] }
