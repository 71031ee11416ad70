package snapmem

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// maxGap is the number of zeros that MergeSegments writes out to save a segment. A
// segment takes some seven bytes of the binary, and in wazero 24 of each instance
// and 0.1 microseconds of each instantiation.
const maxGap = 128

// The sections of the WebAssembly binary format that are of interest here.
const (
	sectionData      = 11
	sectionDataCount = 12
)

var errFormat = errors.New("not of the form that is looked for")

// MergeSegments returns a valid module with its data segments merged where they
// lie close together, or module itself where nothing can be gained or the
// segments must stay as they are. Go's linker ends a segment wherever a few
// zeros follow: a guest of 3 MB has 30,000.
//
// A module without a count of its segments has no instruction that names one, and
// segments that do not overlap may be written in any order.
func MergeSegments(module []byte) []byte {
	start, body, end, ok := findData(module)
	if !ok {
		return module
	}
	segments, err := parseSegments(module[body:end])
	if err != nil {
		return module
	}
	merged := segments[:0:0]
	room := uint64(max(len(module), 4<<10)) // A small module must not become a large one.
	for _, s := range segments {
		if n := len(merged); n != 0 {
			last := &merged[n-1]
			if gap := s.offset - last.end(); gap <= min(maxGap, room) {
				room -= gap
				last.data = append(last.data, make([]byte, gap)...)
				last.data = append(last.data, s.data...)
				continue
			}
		}
		// The first append of a merge must not write into the module.
		s.data = s.data[:len(s.data):len(s.data)]
		merged = append(merged, s)
	}
	if len(merged) == len(segments) {
		return module
	}
	section := binary.AppendUvarint(nil, uint64(len(merged)))
	for _, s := range merged {
		section = append(section, 0, 0x41) // Active, in memory 0, at i32.const
		section = appendInt32(section, int32(s.offset))
		section = append(section, 0x0b) // end
		section = binary.AppendUvarint(section, uint64(len(s.data)))
		section = append(section, s.data...)
	}
	out := make([]byte, 0, start+len(section)+binary.MaxVarintLen32+1+len(module)-end)
	out = append(out, module[:start]...)
	out = append(out, sectionData)
	out = binary.AppendUvarint(out, uint64(len(section)))
	out = append(out, section...)
	return append(out, module[end:]...)
}

// findData finds the data section: where it starts, its body, and where it ends.
func findData(module []byte) (start, body, end int, ok bool) {
	for at := 8; at < len(module); {
		r := reader{bytes: module, at: at + 1}
		size := int(r.uint32())
		if r.failed || size > len(module)-r.at {
			return 0, 0, 0, false
		}
		switch module[at] {
		case sectionDataCount:
			return 0, 0, 0, false
		case sectionData:
			// No section of interest can follow: the count stands before.
			return at, r.at, r.at + size, true
		}
		at = r.at + size
	}
	return 0, 0, 0, false
}

// segment is an active segment of memory 0.
type segment struct {
	offset uint64
	data   []byte
}

func (s *segment) end() uint64 { return s.offset + uint64(len(s.data)) }

// parseSegments reads the data section, if its segments are active, have
// constant offsets and do not overlap. It returns them by their offsets.
func parseSegments(section []byte) ([]segment, error) {
	r := reader{bytes: section}
	segments := make([]segment, 0, min(int(r.uint32()), len(section)))
	for want := cap(segments); len(segments) < want && !r.failed; {
		if r.byte() != 0 || r.byte() != 0x41 {
			return nil, errFormat
		}
		s := segment{offset: uint64(uint32(r.int32()))}
		if r.byte() != 0x0b {
			return nil, errFormat
		}
		s.data = r.take(int(r.uint32()))
		segments = append(segments, s)
	}
	if r.failed || r.at != len(section) {
		return nil, errFormat
	}
	slices.SortStableFunc(segments, func(a, b segment) int { return cmp.Compare(a.offset, b.offset) })
	for i := 1; i < len(segments); i++ {
		if segments[i].offset < segments[i-1].end() {
			return nil, errFormat // What is written later counts.
		}
	}
	return segments, nil
}

// reader reads a binary. After a mistake it only reports that it has failed.
type reader struct {
	bytes  []byte
	at     int
	failed bool
}

func (r *reader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.bytes)-r.at {
		r.failed = true
		return nil
	}
	b := r.bytes[r.at : r.at+n]
	r.at += n
	return b
}

func (r *reader) uint32() uint32 {
	v, n := binary.Uvarint(r.bytes[min(r.at, len(r.bytes)):])
	if n <= 0 || v > math.MaxUint32 {
		r.failed = true
		return 0
	}
	r.at += n
	return uint32(v)
}

// int32 reads a signed LEB128.
func (r *reader) int32() int32 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			if b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return int32(v)
		}
	}
	r.failed = true
	return 0
}

// appendInt32 appends a signed LEB128.
func appendInt32(b []byte, v int32) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
