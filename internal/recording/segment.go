package recording

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A segment is a file of frames after magic. A frame is
//
//	length of kind and payload  4 bytes, little-endian
//	CRC-32C of them             4 bytes, little-endian
//	kind                        1 byte
//	payload
//
// A frame is never changed, and no frame refers to another segment. One that does not pass its
// checksum is skipped.
const (
	magic         = "kubewasm recording\n"
	formatVersion = 2
	frameOverhead = 8
)

// The kinds of frames.
const (
	// frameHead is JSON: format, run, created. It is the first frame.
	frameHead byte = 'H'
	// frameVersion is the number of a version, and the Version in JSON.
	frameVersion byte = 'V'
	// frameBlob is a number, by which calls refer to it, the SHA-256 of bytes, and the bytes.
	frameBlob byte = 'B'
	// frameCall is the numbers of the version, of the sequence and of the call, the marks in
	// a byte, and the call.
	frameCall byte = 'C'
	// frameDropped is the number of calls that were dropped since the last such frame.
	frameDropped byte = 'D'

	frameKinds = "HVBCD"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends a frame with the payload that payload appends.
func appendFrame(b []byte, kind byte, payload func(b []byte) []byte) []byte {
	start := len(b)
	b = payload(append(b, 0, 0, 0, 0, 0, 0, 0, 0, kind))
	body := b[start+frameOverhead:]
	binary.LittleEndian.PutUint32(b[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(body, castagnoli))
	return b
}

// nextFrame takes a frame from b. ok is false if b does not begin with a whole one.
func nextFrame(b []byte) (kind byte, payload, rest []byte, ok bool) {
	if len(b) < frameOverhead {
		return 0, nil, nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || uint64(n) > uint64(len(b)-frameOverhead) {
		return 0, nil, nil, false
	}
	body := b[frameOverhead : frameOverhead+int(n)]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return 0, nil, nil, false
	}
	return body[0], body[1:], b[frameOverhead+int(n):], true
}

// nextSound returns the number of bytes of b, which does not begin with a whole frame, before the
// next frame. budget bounds the number of bytes that are read to find it.
func nextSound(b []byte, budget *int64) int {
	sound := func(at int64) bool {
		rest := b[at:]
		if len(rest) <= frameOverhead || !strings.ContainsRune(frameKinds, rune(rest[frameOverhead])) {
			return false
		}
		n := int64(binary.LittleEndian.Uint32(rest))
		if n == 0 || n > int64(len(rest)-frameOverhead) || n > *budget {
			return false
		}
		*budget -= n
		_, _, _, ok := nextFrame(rest)
		return ok
	}
	// The length may be right. The content of the frame, which may be a guest's, is not searched
	// then.
	if len(b) >= frameOverhead {
		if at := frameOverhead + int64(binary.LittleEndian.Uint32(b)); at <= int64(len(b)) && (at == int64(len(b)) || sound(at)) {
			return int(at)
		}
	}
	for at := 1; at < len(b); at++ {
		if sound(int64(at)) {
			return at
		}
	}
	return len(b)
}

// ring is the segments of a directory.
type ring struct {
	dir                    string
	maxBytes, segmentBytes int64
	maxAge                 time.Duration
	opened                 bool
	file                   *os.File
	number                 uint64
	written                int64
	began                  time.Time
}

const (
	extension       = ".kwrec"
	maxSegmentBytes = 64 << 20
)

// segment is a file of a recording.
type segment struct {
	name     string
	number   uint64
	size     int64
	modified time.Time
}

func newRing(dir string, maxBytes int64, maxAge time.Duration) ring {
	return ring{dir: dir, maxBytes: maxBytes, segmentBytes: min(maxSegmentBytes, maxBytes/8), maxAge: maxAge}
}

// open makes the directory, unless it was open before.
func (r *ring) open() error {
	if r.opened {
		return nil
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	list, err := segments(r.dir)
	if err != nil {
		return err
	}
	if len(list) != 0 {
		r.number = list[len(list)-1].number
	}
	r.opened = true
	return nil
}

// segments returns the segments of a directory, in their order.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, e := range entries {
		text, ok := strings.CutSuffix(e.Name(), extension)
		number, err := strconv.ParseUint(text, 10, 64)
		if !ok || err != nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, segment{filepath.Join(dir, e.Name()), number, info.Size(), info.ModTime()})
	}
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	return list, nil
}

// old reports whether the segment is so old that the next one must begin, for the limit of
// age to hold.
func (r *ring) old(now time.Time) bool { return r.maxAge > 0 && now.Sub(r.began) > r.maxAge/8 }

// next closes the segment and begins the next one, after making room.
func (r *ring) next(removed *atomic.Uint64) error {
	if err := r.close(); err != nil {
		return err
	}
	if _, err := os.Stat(r.dir); err != nil {
		r.opened = false // It is gone, and made anew.
	}
	if err := r.open(); err != nil {
		return err
	}
	if err := r.trim(r.maxBytes-r.segmentBytes, time.Now(), removed); err != nil {
		return err
	}
	for {
		r.number++
		name := filepath.Join(r.dir, fmt.Sprintf("%012d%s", r.number, extension))
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue // Another process records there, too.
		}
		if err != nil {
			return err
		}
		lock(file)
		r.file, r.written, r.began = file, 0, time.Now()
		return nil
	}
}

// named reports whether the segment being written still has its name: it may have been removed.
func (r *ring) named() bool {
	open, err := r.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(r.file.Name())
	return err == nil && os.SameFile(open, there)
}

// trim removes the oldest segments until there are at most limit bytes, and those that are too old.
// It leaves segments that any recorder is writing.
func (r *ring) trim(limit int64, now time.Time, removed *atomic.Uint64) error {
	list, err := segments(r.dir)
	if err != nil {
		return err
	}
	var total int64
	for _, s := range list {
		total += s.size
	}
	for _, s := range list {
		old := r.maxAge > 0 && now.Sub(s.modified) > r.maxAge
		if total <= limit && !old {
			continue
		}
		if r.file != nil && s.name == r.file.Name() || locked(s.name) {
			continue
		}
		if err := os.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= s.size
		removed.Add(1)
	}
	return nil
}

// expire removes the segments that are too old.
func (r *ring) expire(now time.Time, removed *atomic.Uint64) {
	if r.maxAge > 0 {
		_ = r.trim(r.maxBytes, now, removed) // It is tried again.
	}
}

func (r *ring) write(b []byte) (int, error) {
	n, err := r.file.Write(b)
	r.written += int64(n)
	return n, err
}

// remove removes the segment being written.
func (r *ring) remove() error {
	name := r.file.Name()
	return errors.Join(r.close(), os.Remove(name))
}

// close closes the segment being written.
func (r *ring) close() error {
	if r.file == nil {
		return nil
	}
	err := errors.Join(r.file.Sync(), r.file.Close())
	r.file = nil
	return err
}
