package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/host/record"

	"github.com/google/go-cmp/cmp"
)

// frameAt is a frame of a file.
type frameAt struct {
	kind       byte
	start, end int
}

func framesOf(t *testing.T, data []byte) (list []frameAt) {
	t.Helper()
	for at := len(magic); at < len(data); {
		kind, _, next, ok := nextFrame(data[at:])
		if !ok {
			t.Fatal("the file is not sound")
		}
		list = append(list, frameAt{kind, at, len(data) - len(next)})
		at = len(data) - len(next)
	}
	return list
}

// soundFile is a file with three sequences of four calls, each call with a blob of its own.
func soundFile(t *testing.T) []byte {
	t.Helper()
	r := newRecorder(t, record.Config{})
	v := r.Version(answering)
	for n := range 3 {
		tape, _ := v.Tape()
		for k := range 4 {
			ask(tape, k, strings.Repeat(fmt.Sprint(n, k, " "), 100), "no", 2, Returned)
		}
		tape.Close()
	}
	closed(t, r)
	files, err := segments(r.cfg.Path)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0].name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What is damaged in a file is lost, and told; what is before and behind it is read, and is what
// was recorded.
func TestDamage(t *testing.T) {
	sound := soundFile(t)
	frames := framesOf(t, sound)
	// of returns the nth frame of a kind.
	of := func(kind byte, n int) frameAt {
		for _, f := range frames {
			if f.kind == kind {
				if n--; n < 0 {
					return f
				}
			}
		}
		t.Fatalf("there is no frame %c", kind)
		return frameAt{}
	}
	flipped := func(f frameAt, at int) []byte {
		b := bytes.Clone(sound)
		b[f.start+at] ^= 0x10
		return b
	}
	spliced := func(at int, b []byte) []byte { return bytes.Join([][]byte{sound[:at], b, sound[at:]}, nil) }
	call := of(frameCall, 5)
	zeros := bytes.Clone(sound)
	clear(zeros[of(frameCall, 4).start+3 : of(frameCall, 5).end-2])
	within := flipped(call, 20)
	// A frame in the middle of another one, as a guest may have it in what it reads.
	forged := appendFrame(nil, frameBlob, func(b []byte) []byte {
		inner := appendFrame(nil, frameDropped, func(b []byte) []byte { return append(b, 77) })
		return append(append(append(b, 200, 1), make([]byte, 32)...), inner...)
	})
	forged[9] ^= 1
	otherFormat := append([]byte(magic), appendFrame(nil, frameHead, func(b []byte) []byte { return append(b, `{"format":7,"run":"r"}`...) })...)
	type read struct {
		// Read are the calls that are read as they were, Lost those behind a missing one, Broken
		// those whose bytes are missing.
		Read, Lost, Broken int
		Problems           []string
	}
	for _, test := range []struct {
		name string
		data []byte
		want read
	}{
		{"nothing", sound, read{12, 0, 0, nil}},
		{"a bit of a call", within, read{9, 2, 0, []string{"torn frame"}}},
		{"the length of a call", flipped(call, 1), read{9, 2, 0, []string{"torn frame"}}},
		{"a huge length", flipped(call, 3), read{9, 2, 0, []string{"torn frame"}}},
		{"a blob", flipped(of(frameBlob, 5), 60), read{9, 0, 1, []string{"torn frame"}}},
		{"the kind of a blob", flipped(of(frameBlob, 5), 8), read{9, 0, 1, []string{"torn frame"}}},
		{"the head", flipped(of(frameHead, 0), 12), read{12, 0, 0, []string{"torn frame"}}},
		{"zeros over the end of one and the start of another", zeros, read{8, 2, 0, []string{"torn frame"}}},
		{"a kind of frame of a later version", spliced(call.start, appendFrame(nil, 'Z', func(b []byte) []byte { return append(b, "future"...) })),
			read{12, 0, 0, []string{"frame of unknown kind 0x5a"}}},
		{"a file in the middle of another", spliced(call.start, otherFormat), read{5, 0, 0, []string{"torn frame", "format 7, this program knows 2"}}},
		{"a frame within a damaged one", spliced(call.start, forged), read{12, 0, 0, []string{"torn frame"}}},
		{"a call twice", spliced(call.end, sound[call.start:call.end]), read{12, 0, 0, nil}},
		{"another format", otherFormat, read{0, 0, 0, []string{"format 7, this program knows 2"}}},
		{"a version that is missing", append(bytes.Clone(sound[:of(frameVersion, 0).start]), sound[of(frameVersion, 0).end:]...),
			read{0, 0, 0, repeated("call of version 1, which is missing", 12)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			recording := parse(test.data)
			got := read{}
			for _, s := range recording.Sequences() {
				got.Lost += s.Lost()
				k := 0
				for c, err := range s.Calls() {
					if errors.Is(err, ErrMalformed) {
						got.Broken++
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					want := strings.Repeat(fmt.Sprint(s.ID-1, k, " "), 100)
					if string(c.Events[1].Data) != want || c.Number != uint64(k) {
						t.Errorf("call %d of sequence %d has %.10q, want %.10q", c.Number, s.ID, c.Events[1].Data, want)
					}
					k++
				}
				got.Read += k
			}
			for _, p := range recording.Problems() {
				got.Problems = append(got.Problems, p.Text)
			}
			if recording.Dropped() != 0 {
				t.Errorf("%d calls are said to be dropped", recording.Dropped())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("what was read (-want +got):\n%s", diff)
			}
		})
	}
}

func repeated(s string, n int) (list []string) {
	for range n {
		list = append(list, s)
	}
	return list
}

// Files of a recording that are no recordings, are empty or are of another format are told, and
// the others are read.
func TestDamagedFiles(t *testing.T) {
	dir, sound := t.TempDir(), soundFile(t)
	for n, data := range [][]byte{nil, sound[:5], make([]byte, 1000), []byte("text"), sound} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%012d%s", n+1, extension)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	recording, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(recording.Problems()), 4; got != want || recording.Calls() != 12 {
		t.Errorf("%d calls, %d problems, want 12 and %d: %v", recording.Calls(), got, want, recording.Problems())
	}
}

// However many frames are damaged, the problems that are told and the bytes that are read to find the
// next frame are bounded.
func TestDamageEverywhere(t *testing.T) {
	t.Run("problems", func(t *testing.T) {
		data := []byte(magic)
		for range 100_000 {
			data = appendFrame(data, 'Z', func(b []byte) []byte { return b })
		}
		recording := parse(data)
		problems := recording.Problems()
		lost := int64(0)
		for _, p := range problems {
			lost += p.Bytes
		}
		if len(problems) != maxProblems || lost != int64(len(data)-len(magic)) {
			t.Errorf("%d problems, %d bytes lost of %d", len(problems), lost, len(data))
		}
	})
	t.Run("frames that claim all the rest", func(t *testing.T) {
		data := []byte(magic)
		for len(data) < 1<<20 {
			data = append(binary.LittleEndian.AppendUint32(data, 1<<19), 0, 0, 0, 0, frameBlob)
		}
		budget := int64(maxTimesRead * len(data))
		if n := nextSound(data[len(magic):], &budget); n != len(data)-len(magic) || budget < 0 {
			t.Errorf("the next frame is after %d bytes, %d of the budget are left", n, budget)
		}
	})
}
