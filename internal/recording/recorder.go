package recording

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host/record"
)

// Recorder writes the calls of plugins to a directory. It is safe for use by several
// goroutines.
type Recorder struct {
	cfg   record.Config
	run   string
	queue chan item
	// queued is the number of bytes of calls that run, wait, or are kept for a later call that
	// decides whether they are written.
	queued atomic.Int64
	// congested is set from a call that was dropped until half of the queue is free.
	congested atomic.Bool
	sequences atomic.Uint64
	// epoch changes with each segment: a sequence is not continued in the next one.
	epoch atomic.Uint32

	recorded, dropped, bytes, segments, removed, failures atomic.Uint64
	lastError                                             atomic.Pointer[error]

	mu       sync.Mutex
	closed   bool
	stop     chan struct{}
	done     chan struct{}
	versions atomic.Uint64

	// The rest belongs to the goroutine that writes.
	ring    ring
	batch   []byte
	scratch []byte
	blobs   map[[sha256.Size]byte]uint64
	known   map[uint64]bool
	pending map[*Tape]*held
	// told is the number of dropped calls recorded in the batch and on the disk, toldWritten that
	// on the disk alone.
	told, toldWritten uint64
	// calls is the number of those in the batch.
	calls uint64
	// failedAt is the time at which writing last failed. retry is the time from then on in which no
	// segment is begun, 0 while calls are recorded. reportedAt is the time at which Report was
	// called with the error.
	failedAt, reportedAt time.Time
	retry                time.Duration
}

// No segment is begun for a second after a failure, and for twice as long after each further one.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// reportAgain is the interval at which a continuing failure is reported.
	reportAgain = time.Minute
)

// held are the calls of a sequence that wait for one which is to be kept.
type held struct {
	items []item
	seen  int64
	// lost is set if some of them had to make room: the sequence cannot be written any more.
	lost bool
}

// item is a call on its way to the disk. The body is the queue's, which has counted held bytes
// for it.
type item struct {
	tape   *Tape
	number uint64
	marks  Marks
	body   []byte
	held   int64
}

const (
	maxQueued = 8 << 10
	// maxSequenceBytes is the maximum size of the calls of a sequence, at which it ends, and of the
	// calls in memory that wait for a call that is to be kept.
	maxSequenceBytes = 8 << 20
)

// withDefaults returns the configuration with defaults for fields that are not set.
func withDefaults(c record.Config) record.Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.Rate == 0 {
		c.Rate = 1
	}
	if c.SequenceCalls == 0 {
		c.SequenceCalls = 4096
		if c.Only != "" {
			c.SequenceCalls = 256
		}
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = 64 << 20
	}
	return c
}

// NewRecorder makes a recorder that writes new segments to cfg.Path. The caller must close it. The
// error has every mistake of the configuration. A directory that cannot be made is no error: the
// recorder tries again, and record.Stats.Err holds the reason. The same goes for a full disk.
func NewRecorder(cfg record.Config) (*Recorder, error) {
	if err := errors.Join(cfg.Check()...); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	cfg = withDefaults(cfg)
	r := &Recorder{
		cfg: cfg, run: newRun(), queue: make(chan item, maxQueued), stop: make(chan struct{}), done: make(chan struct{}),
		pending: map[*Tape]*held{},
	}
	r.ring = newRing(cfg.Path, cfg.MaxBytes, cfg.MaxAge)
	if err := r.ring.open(); err != nil {
		r.reportedAt = time.Now() // Whoever makes it sees the error.
		r.failed(fmt.Errorf("record to %q: %w", cfg.Path, err))
	}
	go r.write()
	return r, nil
}

func newRun() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Config returns the configuration with its defaults.
func (r *Recorder) Config() record.Config { return r.cfg }

// Stats returns the numbers of the recorder.
func (r *Recorder) Stats() record.Stats {
	s := record.Stats{
		Recorded: r.recorded.Load(), Dropped: r.dropped.Load(), Queued: r.queued.Load(), Bytes: r.bytes.Load(),
		Segments: r.segments.Load(), Removed: r.removed.Load(), Failures: r.failures.Load(),
	}
	if err := r.lastError.Load(); err != nil {
		s.Err = *err
	}
	return s
}

// Close writes the waiting calls and closes the recording. Calls that end later are dropped.
func (r *Recorder) Close() error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.stop)
	}
	r.mu.Unlock()
	<-r.done
	return r.Stats().Err
}

// Tapes is a destination of recorded calls: a [Recorder], or a [Tap].
type Tapes interface {
	// Version returns the maker of tapes for a version. v must not change afterwards.
	Version(v Version) *VersionTape
}

// Tap is called with each call when it has ended, on the goroutine of the caller. The call
// and its bytes are the function's own.
type Tap func(c *Call)

// Version implements [Tapes].
func (t Tap) Version(v Version) *VersionTape { return &VersionTape{tap: t, version: &v} }

// VersionTape makes the tapes of a version's instances.
type VersionTape struct {
	recorder *Recorder
	tap      Tap
	version  *Version
	id       uint64
	// start are the calls of the start of the first instance. They belong to the goroutine
	// that writes.
	start []*Call
}

// Version returns the maker of tapes for a version. v must not change afterwards.
func (r *Recorder) Version(v Version) *VersionTape {
	v.Run = r.run
	v.id = r.versions.Add(1)
	return &VersionTape{recorder: r, version: &v, id: v.id}
}

// Tape returns the tape of an instance that has just begun or was reset, or nil if its calls are
// not to be recorded. The caller may then ask again after skip releases of the instance, when that
// is to be reset; 0 means that it asks before each.
func (v *VersionTape) Tape() (tape *Tape, skip int) {
	r := v.recorder
	if r == nil {
		return &Tape{version: v}, 0
	}
	if r.congested.Load() {
		return nil, r.cfg.SequenceCalls
	}
	if r.cfg.Rate < 1 && mathrand.Float64() >= r.cfg.Rate {
		return nil, r.cfg.SequenceCalls
	}
	return &Tape{version: v, sequence: r.sequences.Add(1), epoch: r.epoch.Load()}, 0
}

// Start returns a tape for the start of the first instance of the version, which is recorded
// with each segment. It has the sequence 0.
func (v *VersionTape) Start() *Tape {
	t := &Tape{version: v}
	if v.recorder != nil {
		t.epoch = v.recorder.epoch.Load()
	}
	return t
}

// send passes a call on, and reports whether there was room for it.
func (r *Recorder) send(i item) bool {
	i.tape.sent.Add(1)
	select {
	case r.queue <- i:
		return true
	default:
		i.tape.sent.Add(-1)
		return false
	}
}

// hold counts bytes as part of the queue, and reports whether there was room for them.
func (r *Recorder) hold(n int64) bool {
	if r.queued.Add(n) > r.cfg.QueueBytes {
		r.queued.Add(-n)
		return false
	}
	return true
}

func (r *Recorder) free(n int64) { r.queued.Add(-n) }

func (r *Recorder) drop() {
	r.dropped.Add(1)
	r.congested.Store(true)
}

// write writes calls until the recorder is closed.
func (r *Recorder) write() {
	defer close(r.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case i := <-r.queue:
			r.take(i)
			for more := true; more; {
				select {
				case i := <-r.queue:
					r.take(i)
				default:
					more = false
				}
			}
			r.flush()
		case <-tick.C:
			r.sweep()
			r.finish(time.Now())
			r.ring.expire(time.Now(), &r.removed)
		case <-r.stop:
			for more := true; more; {
				select {
				case i := <-r.queue:
					r.take(i)
				default:
					more = false
				}
			}
			r.sweep()
			r.flush()
			r.failed(r.ring.close())
			return
		}
		if r.queued.Load() >= r.cfg.QueueBytes/2 {
			r.evict()
		}
		if r.queued.Load() < r.cfg.QueueBytes/2 && len(r.queue) < maxQueued/2 {
			r.congested.Store(false)
		}
	}
}

// take takes a call from the queue.
func (r *Recorder) take(i item) {
	if r.cfg.Only == "" {
		r.put(i)
		return
	}
	h := r.pending[i.tape]
	if h == nil {
		h = &held{}
		r.pending[i.tape] = h
	}
	h.seen++
	switch {
	case h.lost:
		r.forget(i)
		r.dropped.Add(1)
	case i.tape.kept:
		r.put(i)
	case r.wanted(i):
		i.tape.kept = true
		for _, earlier := range h.items {
			r.put(earlier)
		}
		h.items = nil
		r.put(i)
	default:
		h.items = append(h.items, i)
	}
}

// wanted reports whether a call causes its sequence to be written.
func (r *Recorder) wanted(i item) bool {
	c, err := decodeCall(i.body, nil)
	if err != nil {
		return false
	}
	c.Version = i.tape.version.version
	v := VerdictOf(c)
	return v == Failed || v == Denied && r.cfg.Only == record.Denials
}

// forget drops a call.
func (r *Recorder) forget(i item) {
	release(i.body)
	r.free(i.held)
}

// sweep forgets the sequences that have ended.
func (r *Recorder) sweep() {
	for t, h := range r.pending {
		if t.closed.Load() && h.seen == t.sent.Load() {
			for _, i := range h.items {
				r.forget(i)
			}
			delete(r.pending, t)
		}
	}
}

// evict makes room: it drops sequences that have ended and, if that is not enough, the calls of
// others so far.
func (r *Recorder) evict() {
	r.sweep()
	for t, h := range r.pending {
		if r.queued.Load() < r.cfg.QueueBytes/2 {
			return
		}
		if len(h.items) == 0 {
			continue
		}
		t.ended.Store(true)
		h.lost = true
		for _, i := range h.items {
			r.forget(i)
			r.dropped.Add(1)
		}
		h.items = nil
	}
}

// put adds a call to the batch.
func (r *Recorder) put(i item) {
	defer r.forget(i)
	c, err := decodeCall(i.body, nil)
	if err != nil {
		r.failed(fmt.Errorf("record: %w", err)) // It cannot be: this package has written it.
		return
	}
	v := i.tape.version
	c.Version, c.Sequence, c.Number, c.Marks = v.version, i.tape.sequence, i.number, i.marks|i.tape.stained
	r.redact(c, i.tape)
	if !r.begin() {
		r.dropped.Add(1)
		return
	}
	if dropped := r.dropped.Load(); dropped != r.told {
		r.batch = appendFrame(r.batch, frameDropped, func(b []byte) []byte { return binary.AppendUvarint(b, dropped-r.told) })
		r.told = dropped
	}
	if !r.known[v.id] {
		r.known[v.id] = true
		text, err := json.Marshal(v.version)
		if err != nil {
			r.failed(err)
		}
		r.batch = appendFrame(r.batch, frameVersion, func(b []byte) []byte { return append(binary.AppendUvarint(b, v.id), text...) })
		if v.start != nil {
			for _, s := range v.start {
				r.frame(v.id, s)
			}
		}
	}
	if i.tape.sequence == 0 {
		v.start = append(v.start, keep(c))
	}
	r.frame(v.id, c)
	r.calls++
	if len(r.batch) >= batchBytes {
		r.flush()
	}
}

// keep returns a copy of a call that lends no bytes.
func keep(c *Call) *Call {
	b := appendCall(nil, c, appendData[[]byte])
	kept, err := decodeCall(b, nil)
	if err != nil {
		return c
	}
	kept.Version, kept.Sequence, kept.Number, kept.Marks = c.Version, c.Sequence, c.Number, c.Marks
	return kept
}

// batchBytes is the size of a batch of bytes written at once.
const batchBytes = 256 << 10

// blobBytes is the minimum length of bytes that are written only once in a segment.
const blobBytes = 96

// frame adds the frame of a call, and those of its blobs before it.
func (r *Recorder) frame(version uint64, c *Call) {
	body := appendCall(r.scratch[:0], c, func(b, data []byte) []byte {
		if len(data) < blobBytes {
			return appendData(b, data)
		}
		return binary.AppendUvarint(binary.AppendUvarint(b, uint64(len(data))<<1|1), r.blob(data))
	})
	r.scratch = body
	r.batch = appendFrame(r.batch, frameCall, func(b []byte) []byte {
		b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, version), c.Sequence), c.Number)
		return append(append(b, byte(c.Marks)), body...)
	})
}

// blob returns the number of bytes in the segment, and adds them unless they are there.
func (r *Recorder) blob(data []byte) uint64 {
	digest := sha256.Sum256(data)
	if id, ok := r.blobs[digest]; ok {
		return id
	}
	id := uint64(len(r.blobs))
	r.blobs[digest] = id
	r.batch = appendFrame(r.batch, frameBlob, func(b []byte) []byte {
		return append(append(binary.AppendUvarint(b, id), digest[:]...), data...)
	})
	return id
}

// begin begins a segment if there is none or it is full.
func (r *Recorder) begin() bool {
	if r.ring.file != nil && r.ring.written+int64(len(r.batch)) < r.ring.segmentBytes && !r.ring.old(time.Now()) {
		return true
	}
	if r.ring.file == nil && time.Since(r.failedAt) < r.retry {
		return false
	}
	if r.ring.file != nil {
		r.flush()
		r.epoch.Add(1)
		if r.ring.file == nil {
			return false // It could not be written.
		}
	}
	if err := r.ring.next(&r.removed); err != nil {
		r.failed(err)
		return false
	}
	r.segments.Add(1)
	r.blobs, r.known = map[[sha256.Size]byte]uint64{}, map[uint64]bool{}
	r.batch = appendFrame(append(r.batch[:0], magic...), frameHead, func(b []byte) []byte {
		return append(b, fmt.Sprintf(`{"format":%d,"run":%q,"created":%q}`, formatVersion, r.run, time.Now().UTC().Format(time.RFC3339Nano))...)
	})
	return true
}

// flush writes the batch. The calls of a batch that cannot be written are dropped. A segment
// without earlier data is removed then, so that failed attempts leave no files.
func (r *Recorder) flush() {
	if len(r.batch) == 0 || r.ring.file == nil {
		return
	}
	before := r.ring.written
	var err error
	if r.ring.named() {
		var n int
		n, err = r.ring.write(r.batch)
		r.bytes.Add(uint64(n))
	} else {
		before, err = -1, fmt.Errorf("record to %s: it was removed", r.ring.file.Name())
	}
	r.batch = r.batch[:0]
	calls := r.calls
	r.calls = 0
	if err == nil {
		r.recorded.Add(calls)
		r.toldWritten = r.told
		r.works()
		return
	}
	r.dropped.Add(calls)
	r.told = r.toldWritten
	if before == 0 {
		err = errors.Join(err, r.ring.remove())
	}
	r.failed(errors.Join(err, r.ring.close()))
	r.epoch.Add(1)
}

// finish closes a segment to which nothing is written any more: one that is so old that the next
// call begins a new one, and one that was removed.
func (r *Recorder) finish(now time.Time) {
	if r.ring.file == nil || !r.ring.old(now) && r.ring.named() {
		return
	}
	r.failed(r.ring.close())
	r.epoch.Add(1)
}

// failed counts an error, if it is one, and reports it.
func (r *Recorder) failed(err error) {
	if err == nil {
		return
	}
	r.failures.Add(1)
	r.lastError.Store(&err)
	r.failedAt, r.retry = time.Now(), min(max(2*r.retry, firstRetry), lastRetry)
	if r.cfg.Report != nil && (r.reportedAt.IsZero() || r.failedAt.Sub(r.reportedAt) >= reportAgain) {
		r.reportedAt = r.failedAt
		r.cfg.Report(err)
	}
}

// works notes that a batch was written.
func (r *Recorder) works() {
	if r.retry == 0 {
		return
	}
	r.retry, r.reportedAt = 0, time.Time{}
	if r.cfg.Report != nil {
		r.cfg.Report(nil)
	}
}
