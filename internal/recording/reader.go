package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
)

// Recording is a recording for reading: a directory of segments, or one of them. It is not safe for
// use by several goroutines. Bytes that it returns must not be changed.
type Recording struct {
	segments  []*reading
	versions  []*Version
	starts    map[*Version][]place
	sequences []*Sequence
	problems  []Problem
	dropped   uint64
	calls     int
	loaded    []*reading
}

// reading is a segment that is being read.
type reading struct {
	name string
	run  string
	size int64
	// end is the length of the sound part.
	end int
	// data is nil unless the segment is in memory.
	data     []byte
	versions map[uint64]*Version
	blobs    map[uint64]span
}

// span is a part of a segment.
type span struct{ start, end int }

// place is a call in a segment.
type place struct {
	segment *reading
	number  uint64
	span
}

// Problem is something that a recording has lost.
type Problem struct {
	// Segment is the name of the file. Bytes of it, from Offset on, cannot be read.
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
	// Text describes the damage.
	Text string `json:"text"`
}

func (p Problem) String() string {
	return fmt.Sprintf("%s: %s at byte %d: %d bytes are lost", p.Segment, p.Text, p.Offset, p.Bytes)
}

// Sequence is the calls of one instance since it began, or was reset.
type Sequence struct {
	Version *Version
	ID      uint64
	// places are the calls up to the first missing one, and lost is the number of those that
	// follow.
	places []place
	of     *Recording
	lost   int
}

// Open opens a recording and reads through it. Damaged parts, such as the end of a segment whose
// process was killed or a changed frame, are reported by [Recording.Problems]. They are no error,
// and later parts are read.
func Open(path string) (*Recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	r := &Recording{starts: map[*Version][]place{}}
	files := []segment{{name: path, size: info.Size()}}
	if info.IsDir() {
		if files, err = segments(path); err != nil {
			return nil, fmt.Errorf("open recording: %w", err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("open recording: %q has no files that end with %s", path, extension)
		}
	}
	known := map[versionKey]*Version{}
	sequences := map[sequenceKey]*Sequence{}
	for _, f := range files {
		if f.size > maxFileBytes {
			return nil, fmt.Errorf("open recording: %s has %d bytes, more than %d", f.name, f.size, maxFileBytes)
		}
		data, err := os.ReadFile(f.name)
		if err != nil {
			return nil, fmt.Errorf("open recording: %w", err)
		}
		r.read(f.name, data, known, sequences)
	}
	if len(r.segments) == 0 {
		return nil, fmt.Errorf("open recording: %q is not a recording", path)
	}
	return r, nil
}

const (
	// maxFileBytes is more than a segment has: it ends with the call that fills it.
	maxFileBytes = maxSegmentBytes + 4*maxCallBytes
	// maxObjects is the maximum number of objects of a version in JSON, its imports and exports.
	maxObjects = 1 << 14
	// maxProblems is the maximum number of separate problems.
	maxProblems = 1000
	// maxTimesRead is the number of times that the bytes of a damaged segment are read to find
	// frames.
	maxTimesRead = 16
)

// versionKey and sequenceKey are versions and sequences in all segments of a recording.
type (
	versionKey struct {
		run string
		id  uint64
	}
	sequenceKey struct {
		version *Version
		id      uint64
	}
)

// parse reads a recording that is in memory, as one segment.
func parse(data []byte) *Recording {
	r := &Recording{starts: map[*Version][]place{}}
	r.read("segment", data, map[versionKey]*Version{}, map[sequenceKey]*Sequence{})
	return r
}

// read indexes a segment.
func (r *Recording) read(name string, data []byte, known map[versionKey]*Version, sequences map[sequenceKey]*Sequence) {
	s := &reading{name: name, size: int64(len(data)), data: data, versions: map[uint64]*Version{}, blobs: map[uint64]span{}}
	s.run = "the head of " + name // Unless it can be read.
	problem := func(rest []byte, length int, text string) {
		p := Problem{name, int64(len(data) - len(rest)), int64(length), text}
		if n := len(r.problems); n < maxProblems {
			r.problems = append(r.problems, p)
		} else {
			last := &r.problems[n-1]
			last.Bytes, last.Text = last.Bytes+p.Bytes, "and more, of this file or others"
		}
	}
	if !bytes.HasPrefix(data, []byte(magic)) {
		text := "no recording"
		if strings.HasPrefix(magic, string(data)) {
			text = "torn before its first frame"
		}
		problem(data, len(data), text)
		return
	}
	r.segments = append(r.segments, s)
	budget := maxTimesRead * int64(len(data))
	for rest := data[len(magic):]; len(rest) > 0; {
		kind, payload, next, ok := nextFrame(rest)
		if !ok {
			n := nextSound(rest, &budget)
			problem(rest, n, "torn frame")
			rest = rest[n:]
			continue
		}
		start := len(data) - len(next) - len(payload)
		if err := r.index(s, kind, payload, start, known, sequences); errors.Is(err, errFormat) {
			problem(rest, len(rest), err.Error())
			break
		} else if err != nil {
			problem(rest, len(rest)-len(next), err.Error())
		}
		rest = next
		s.end = len(data) - len(rest)
	}
	r.remember(s)
}

// errFormat is the error of a segment of another format.
var errFormat = errors.New("format")

// index takes a frame.
func (r *Recording) index(s *reading, kind byte, payload []byte, start int, known map[versionKey]*Version, sequences map[sequenceKey]*Sequence) error {
	d := &decoder{b: payload}
	switch kind {
	case frameHead:
		var head struct {
			Format int    `json:"format"`
			Run    string `json:"run"`
		}
		if err := json.Unmarshal(payload, &head); err != nil {
			return fmt.Errorf("head: %w", err)
		}
		if head.Format != formatVersion {
			return fmt.Errorf("%w %d, this program knows %d", errFormat, head.Format, formatVersion)
		}
		s.run = head.Run
	case frameVersion:
		id := d.uvarint()
		if d.bad {
			return ErrMalformed
		}
		key := versionKey{s.run, id}
		if known[key] == nil {
			v := &Version{id: id}
			if n := bytes.Count(d.b, []byte("{")); n > maxObjects {
				return fmt.Errorf("version: it has %d objects, more than %d", n, maxObjects)
			}
			if err := json.Unmarshal(d.b, v); err != nil {
				return fmt.Errorf("version: %w", err)
			}
			known[key] = v
			r.versions = append(r.versions, v)
		}
		s.versions[id] = known[key]
	case frameBlob:
		id := d.uvarint()
		if d.bad || len(d.b) < sha256.Size {
			return errors.New("blob without its digest")
		}
		s.blobs[id] = span{start + len(payload) - len(d.b) + sha256.Size, start + len(payload)}
	case frameCall:
		id, sequence, number := d.uvarint(), d.uvarint(), d.uvarint()
		marks := d.byte()
		if d.bad {
			return ErrMalformed
		}
		v := s.versions[id]
		if v == nil {
			return fmt.Errorf("call of version %d, which is missing", id)
		}
		// The marks stay before the body: place begins with them.
		p := place{s, number, span{start + len(payload) - len(d.b) - 1, start + len(payload)}}
		_ = marks
		if sequence == 0 {
			if uint64(len(r.starts[v])) == number {
				r.starts[v] = append(r.starts[v], p)
			}
			return nil
		}
		key := sequenceKey{v, sequence}
		q := sequences[key]
		if q == nil {
			q = &Sequence{Version: v, ID: sequence, of: r}
			sequences[key] = q
			r.sequences = append(r.sequences, q)
		}
		switch {
		case number < uint64(len(q.places)):
			return nil // A copy of the segment.
		case number > uint64(len(q.places)) || q.lost != 0:
			q.lost++
		default:
			q.places = append(q.places, p)
		}
		r.calls++
	case frameDropped:
		r.dropped += d.uvarint()
	default:
		return fmt.Errorf("frame of unknown kind %#x", kind)
	}
	return nil
}

// maxLoaded is the maximum number of segments in memory at a time.
const maxLoaded = 4

// remember keeps a segment in memory, and drops another.
func (r *Recording) remember(s *reading) {
	if len(r.loaded) >= maxLoaded {
		r.loaded[0].data = nil
		r.loaded = r.loaded[1:]
	}
	r.loaded = append(r.loaded, s)
}

// bytes returns the sound part of a segment.
func (r *Recording) bytes(s *reading) ([]byte, error) {
	if s.data == nil {
		data, err := os.ReadFile(s.name)
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		if len(data) < s.end {
			return nil, fmt.Errorf("read recording: %s was truncated", s.name)
		}
		s.data = data
		r.remember(s)
	}
	return s.data[:s.end], nil
}

// Versions returns the versions of plugins whose calls were recorded.
func (r *Recording) Versions() []*Version { return r.versions }

// Sequences returns the sequences, in the order of their first calls.
func (r *Recording) Sequences() []*Sequence { return r.sequences }

// Calls returns the number of calls in all sequences.
func (r *Recording) Calls() int { return r.calls }

// Problems returns the losses.
func (r *Recording) Problems() []Problem { return r.problems }

// Dropped returns the number of calls that were not recorded since the queue was full.
func (r *Recording) Dropped() uint64 { return r.dropped }

// Start returns the calls of the start of the first instance of a version, if they depend on
// more than the module and its configuration: the version is granted the clock or random
// numbers.
func (r *Recording) Start(v *Version) ([]*Call, error) {
	var calls []*Call
	for _, p := range r.starts[v] {
		c, err := r.call(v, 0, p)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// Len returns the number of calls from the first one after the reset on, as far as none is
// missing. 0 if the first one is missing.
func (s *Sequence) Len() int { return len(s.places) }

// Lost returns the number of calls in the recording after a missing one. They cannot be repeated:
// the data that the instance had seen before is not known.
func (s *Sequence) Lost() int { return s.lost }

// Calls returns the calls in order, without those that are lost. An error that wraps
// [ErrMalformed] is one of the recording; it ends the sequence.
func (s *Sequence) Calls() iter.Seq2[*Call, error] {
	return func(yield func(*Call, error) bool) {
		for _, p := range s.places {
			c, err := s.of.call(s.Version, s.ID, p)
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Call returns the call with an index.
func (s *Sequence) Call(i int) (*Call, error) { return s.of.call(s.Version, s.ID, s.places[i]) }

func (r *Recording) call(v *Version, sequence uint64, p place) (*Call, error) {
	data, err := r.bytes(p.segment)
	if err != nil {
		return nil, err
	}
	body := data[p.start:p.end]
	c, err := decodeCall(body[1:], func(id uint64, length int) ([]byte, bool) {
		b, ok := p.segment.blobs[id]
		if !ok {
			return nil, false
		}
		return data[b.start:b.end], true
	})
	if err != nil {
		return nil, fmt.Errorf("read recording: %s: call %d of sequence %d: %w", p.segment.name, p.number, sequence, err)
	}
	c.Version, c.Sequence, c.Number, c.Marks = v, sequence, p.number, Marks(body[0])
	return c, nil
}

// Summary returns the contents of a recording in a few lines.
func (r *Recording) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls in %d sequences of %d versions", r.calls, len(r.sequences), len(r.versions))
	if r.dropped != 0 {
		fmt.Fprintf(&b, "; %d calls were dropped", r.dropped)
	}
	partial := 0
	for _, s := range r.sequences {
		if s.lost != 0 {
			partial++
		}
	}
	if partial != 0 {
		fmt.Fprintf(&b, "; %d sequences are incomplete", partial)
	}
	for _, p := range r.problems {
		fmt.Fprintf(&b, "\n%s", p)
	}
	return b.String()
}

// Digest returns the SHA-256 of the configuration that the guest reads.
func (v *Version) Digest() [sha256.Size]byte { return sha256.Sum256(v.Config) }
