package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// answering is a version whose guest is asked by one function.
var answering = Version{Plugin: "zone", SHA256: strings.Repeat("ab", 32), Kind: abi.KindScheduler, Imports: []Import{
	{Module: abi.ModuleObjects, Name: "object", Memory: 0b110},
	{Module: abi.KindCommon.Module(), Name: "status_reason", Memory: 0b11},
	{Module: abi.ModuleObjects, Name: "get_object", Memory: 0b1111},
}}

// ask records a call in which the guest was given data and said reason.
func ask(t *Tape, number int, data, reason string, result uint64, end End) {
	t.Begin(ByFunction, "filter", []uint64{1, 2, uint64(number)})
	t.Host(0, []uint64{1<<32 | 1, 1024, 4096}, []abi.ValueType{abi.I64, abi.I32, abi.I32})
	t.Bytes(Write, []byte(data), 1024, 4096, uint64(len(data)))
	t.Result(HostReturned, []uint64{uint64(len(data))}, []abi.ValueType{abi.I32})
	t.Host(1, []uint64{9, uint64(len(reason))}, []abi.ValueType{abi.I32, abi.I32})
	t.Bytes(Read, []byte(reason), 9, uint64(len(reason)))
	t.Result(HostReturned, nil, nil)
	t.End(end, result, int64(100+number), "", []byte("printed "+reason))
}

func newRecorder(t testing.TB, cfg record.Config) *Recorder {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "recording")
	}
	r, err := NewRecorder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// closed closes a recorder and opens what it has written.
func closed(t testing.TB, r *Recorder) *Recording {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	recording, err := Open(r.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	return recording
}

func TestWhatWasRecordedIsRead(t *testing.T) {
	r := newRecorder(t, record.Config{})
	v := r.Version(answering)
	long := strings.Repeat("label ", 100)
	for range 3 {
		tape, _ := v.Tape()
		for n := range 4 {
			ask(tape, n, long, fmt.Sprint("no ", n), 2, Returned)
		}
		tape.Close()
	}
	recording := closed(t, r)
	if len(recording.Versions()) != 1 || recording.Versions()[0].SHA256 != answering.SHA256 || recording.Calls() != 12 || len(recording.Problems()) != 0 {
		t.Fatalf("the recording has %s", recording.Summary())
	}
	for _, s := range recording.Sequences() {
		n := 0
		for c, err := range s.Calls() {
			if err != nil {
				t.Fatal(err)
			}
			want := &Call{
				Function: "filter", Args: []uint64{1, 2, uint64(n)}, Result: 2, Output: []byte(fmt.Sprint("printed no ", n)), Fuel: int64(100 + n),
				Events: []Event{
					{Kind: Host, Args: []uint64{1<<32 | 1, 1024, 4096}},
					{Kind: Write, Args: []uint64{1024, 4096, uint64(len(long))}, Data: []byte(long)},
					{Kind: HostReturned, Args: []uint64{uint64(len(long))}},
					{Kind: Host, Index: 1, Args: []uint64{9, 4}},
					{Kind: Read, Args: []uint64{9, 4}, Data: []byte(fmt.Sprint("no ", n))},
					{Kind: HostReturned},
				},
				Sequence: s.ID, Number: uint64(n),
			}
			got := *c
			got.Version, got.Start, got.Duration = nil, want.Start, 0
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("call %d (-want +got):\n%s", n, diff)
			}
			n++
		}
	}
	// The object is in the file once.
	files, err := segments(r.cfg.Path)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	data, err := os.ReadFile(files[0].name)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(data, []byte(long)); n != 1 {
		t.Errorf("the object is there %d times", n)
	}
}

// A recorder that was killed may leave a file without anything in it.
func TestAFileThatWasJustBegun(t *testing.T) {
	for name, want := range map[string]string{
		"": "torn before its first frame", magic[:5]: "torn before its first frame", "kubewasm!": "no recording",
	} {
		problems := parse([]byte(name)).Problems()
		if len(problems) != 1 || problems[0].Text != want || problems[0].Bytes != int64(len(name)) {
			t.Errorf("%q: %v, want %s", name, problems, want)
		}
	}
}

// Wherever a file ends, everything before the torn frame is read, and the loss is told.
// A directory that can be made later has the calls from then on.
func TestADirectoryThatCannotBeMadeIsTriedAgain(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "volume")
	if err := os.WriteFile(parent, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t, record.Config{Path: filepath.Join(parent, "recording"), SequenceCalls: 1})
	if got := r.Stats(); got.Failures != 1 || !strings.Contains(fmt.Sprint(got.Err), parent) {
		t.Errorf("stats are %+v", got)
	}
	if err := os.Remove(parent); err != nil {
		t.Fatal(err)
	}
	v := r.Version(answering)
	for r.Stats().Recorded == 0 && t.Context().Err() == nil {
		if tape, _ := v.Tape(); tape != nil {
			ask(tape, 0, "a", "b", 0, Returned)
			tape.Close()
		}
		runtime.Gosched()
	}
	_ = r.Close()
	recording, err := Open(r.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	if got := recording.Calls(); got == 0 {
		t.Error("there is no call")
	}
}

func TestATornFileLosesItsTailOnly(t *testing.T) {
	r := newRecorder(t, record.Config{})
	tape, _ := r.Version(answering).Tape()
	for n := range 5 {
		ask(tape, n, "data", "no", 2, Returned)
	}
	closed(t, r)
	files, err := segments(r.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(files[0].name)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{len(magic)} // Of the frames.
	calls := []int{0}
	for rest := data[len(magic):]; len(rest) > 0; {
		kind, _, next, ok := nextFrame(rest)
		if !ok {
			t.Fatal("the file is not sound")
		}
		n := calls[len(calls)-1]
		if kind == frameCall {
			n++
		}
		ends, calls = append(ends, len(data)-len(next)), append(calls, n)
		rest = next
	}
	for length := len(magic); length <= len(data); length++ {
		for _, damage := range []string{"cut", "changed"} {
			broken := bytes.Clone(data[:length])
			if damage == "changed" && length > len(magic) {
				broken[length-1] ^= 0x40
			}
			whole := 0
			for whole+1 < len(ends) && ends[whole+1] <= length && (damage == "cut" || ends[whole+1] < length) {
				whole++
			}
			got := parse(broken)
			if got.Calls() != calls[whole] {
				t.Fatalf("%s at byte %d: %d calls, want %d", damage, length, got.Calls(), calls[whole])
			}
			if sound := ends[whole] == len(broken); sound != (len(got.Problems()) == 0) {
				t.Fatalf("%s at byte %d: problems are %v", damage, length, got.Problems())
			}
		}
	}
}

func TestConfigReportsEveryMistake(t *testing.T) {
	var cfg record.Config
	err := json.Unmarshal([]byte(`{"path": "", "maxBytes": 5, "maxAge": "-1h", "rate": 2, "only": "some", "sequenceCalls": -1, "queueBytes": -1}`), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	if errs := cfg.Check(); len(errs) != 7 {
		t.Errorf("%d mistakes are reported: %v", len(errs), errs)
	}
	err = json.Unmarshal([]byte(`{"pth": "", "rat": 1}`), &cfg)
	if err == nil || !strings.Contains(err.Error(), `"pth"`) || !strings.Contains(err.Error(), `"rat"`) {
		t.Errorf("unknown fields are reported as %v", err)
	}
}

func TestARingKeepsItsSize(t *testing.T) {
	r := newRecorder(t, record.Config{MaxBytes: 1 << 20})
	v := r.Version(answering)
	tape, _ := v.Tape()
	for n := range 20_000 {
		if !tape.Next() {
			tape.Close()
			if tape, _ = v.Tape(); tape == nil {
				t.Fatal("the queue was full")
			}
		}
		// Each is another object, so that none is shared.
		ask(tape, n, fmt.Sprintf("%0200d", n), "no", 2, Returned)
		// The writer ends a sequence where a segment ends. If it is far behind, one sequence is in
		// all segments, and its beginning is in those that are removed.
		for s := r.Stats(); s.Recorded+s.Dropped+64 <= uint64(n); s = r.Stats() {
			r.flushForTest()
		}
	}
	recording := closed(t, r)
	files, err := segments(r.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	if total > 1<<20+batchBytes || r.Stats().Removed == 0 || len(files) < 3 {
		t.Errorf("%d files have %d bytes, %d were removed", len(files), total, r.Stats().Removed)
	}
	whole := 0
	for _, s := range recording.Sequences() {
		whole += s.Len()
	}
	if whole < recording.Calls()/2 {
		t.Errorf("%d of %d calls are in whole sequences", whole, recording.Calls())
	}
}

func TestACallThatFindsNoRoomIsDroppedAndCounted(t *testing.T) {
	r := newRecorder(t, record.Config{QueueBytes: 1})
	v := r.Version(answering)
	tape, _ := v.Tape()
	ask(tape, 0, "data", "no", 2, Returned)
	if s := r.Stats(); s.Dropped != 1 {
		t.Errorf("%d calls were dropped", s.Dropped)
	}
	if tape.Next() {
		t.Error("a sequence goes on without one of its calls")
	}
}

func TestAnEndlessCallIsNotRecorded(t *testing.T) {
	r := newRecorder(t, record.Config{})
	tape, _ := r.Version(answering).Tape()
	tape.Begin(ByFunction, "filter", nil)
	data := make([]byte, 1<<20)
	for range 2 * maxCallBytes >> 20 {
		tape.Bytes(Read, data, 0, 1)
	}
	if cap(tape.buf) != 0 {
		t.Errorf("the call still has %d bytes", cap(tape.buf))
	}
	tape.End(Returned, 0, 0, "", nil)
	if recording := r.Stats(); recording.Dropped != 1 || tape.Next() {
		t.Errorf("%d calls were dropped, and the sequence goes on: %v", recording.Dropped, tape.Next())
	}
}

func TestOnlySequencesWithAFailureOrADenial(t *testing.T) {
	for _, test := range []struct {
		only record.Selection
		want int
	}{{record.Failures, 2}, {record.Denials, 3}, {"", 4}} {
		t.Run(string(test.only), func(t *testing.T) {
			r := newRecorder(t, record.Config{Only: test.only})
			v := r.Version(answering)
			for _, last := range []struct {
				result uint64
				end    End
			}{{0, Returned}, {uint64(abi.Unschedulable), Returned}, {uint64(abi.Error), Returned}, {0, Trapped}} {
				tape, _ := v.Tape()
				ask(tape, 0, "data", "", 0, Returned)
				ask(tape, 1, "data", "no", last.result, last.end)
				tape.Close()
			}
			recording := closed(t, r)
			if test.want != len(recording.Sequences()) || recording.Calls() != 2*test.want {
				t.Errorf("the recording has %s, want %d sequences of two calls", recording.Summary(), test.want)
			}
		})
	}
}

// Sequences that end without a failure leave nothing in memory, however many there are.
func TestFinishedSequencesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue = 256 << 10
		r := newRecorder(t, record.Config{Only: record.Failures, QueueBytes: queue})
		v := r.Version(answering)
		for n := range 500 {
			tape, _ := v.Tape()
			if tape == nil {
				t.Fatalf("sequence %d is not recorded", n)
			}
			ask(tape, 0, strings.Repeat("x", 4<<10), "", 0, Returned)
			ask(tape, 1, strings.Repeat("y", 4<<10), "", 0, Returned)
			tape.Close()
			synctest.Wait()
			if held := r.queued.Load(); held > queue {
				t.Fatalf("after %d sequences %d bytes are held", n+1, held)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if held, dropped := r.queued.Load(), r.Stats().Dropped; held != 0 || dropped != 0 {
			t.Errorf("at the end %d bytes are held, and %d calls were dropped", held, dropped)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestASampleIsOfWholeSequences(t *testing.T) {
	r := newRecorder(t, record.Config{Rate: 0.25})
	v := r.Version(answering)
	const sequences = 2000
	for range sequences {
		tape, skip := v.Tape()
		if tape == nil {
			if skip != r.cfg.SequenceCalls {
				t.Fatalf("the instance is asked again after %d calls", skip)
			}
			continue
		}
		ask(tape, 0, "data", "", 0, Returned)
		ask(tape, 1, "data", "", 0, Returned)
		tape.Close()
	}
	recording := closed(t, r)
	if n := len(recording.Sequences()); n < sequences/8 || n > sequences/2 || recording.Calls() != 2*n {
		t.Errorf("%s of %d", recording.Summary(), sequences)
	}
}

const password = "aHVudGVyMg=="

// No form in which a Secret crosses leaves its data in the file, nor what a guest says then.
func TestDataOfSecretsAreNeverWritten(t *testing.T) {
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"kind\":\"Secret\",\"data\":{\"p\":\"` + password + `\"}}"}},"type":"Opaque","data":{"p":"` + password + `"},"stringData":{"q":"` + password + `"}}`
	bare := `{"metadata":{"name":"s"},"data":{"p":"` + password + `"},"type":"Opaque"}`
	proto := "\x0a\x03\x0a\x01s\x12\x11\x0a\x01p\x12\x0c" + password + "\x1a\x06Opaque"
	tests := []struct{ name, data string }{
		{"an object", secret},
		{"an object that begins with a space", " \n" + secret},
		{"a review", `{"kind":"AdmissionReview","request":{"kind":{"group":"","version":"v1","kind":"Secret"},"object":` + secret + `,"oldObject":` + bare + `}}`},
		{"a request of a policy", `{"request":{"object":` + secret + `},"settings":{}}`},
		{"a list", `{"kind":"SecretList","apiVersion":"v1","items":[` + bare + `]}`},
		{"a list of anything", `{"kind":"List","items":[{"kind":"Pod"},` + secret + `]}`},
		{"an inventory", `{"inventory":{"namespace":{"shop":{"v1":{"Secret":{"s":` + secret + `}}}}}}`},
		{"an object without its kind", bare},
		{"an escaped kind", strings.Replace(secret, `"Secret"`, `"\u0053ecret"`, 1)},
		{"escaped data", strings.Replace(secret, `"data"`, `"\u0064ata"`, 1)},
		{"malformed JSON", secret[:len(secret)-1]},
		{"a manifest in a ConfigMap", `{"kind":"ConfigMap","data":{"m":"{\"kind\":\"Secret\",\"data\":{\"p\":\"` + password + `\"}}"}}`},
		{"numbers and lists", `{"kind":"Secret","data":{"p":["` + password + `"]}}`},
		{"very deep", strings.Repeat(`{"a":`, 250) + secret + strings.Repeat("}", 250)},
		{"protobuf", proto},
		{"malformed protobuf", proto[:len(proto)-3]},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRecorder(t, record.Config{})
			v := r.Version(answering)
			tape, _ := v.Tape()
			ask(tape, 0, "before", "nothing", 0, Returned)
			tape.Begin(ByFunction, "filter", nil)
			tape.Host(0, []uint64{1, 2, 3}, []abi.ValueType{abi.I64, abi.I32, abi.I32})
			if strings.Contains(test.name, "protobuf") {
				tape.Confidential(wire.ShapeSecretObject, 0, false)
			}
			tape.Bytes(Write, []byte(test.data), 2, 3, uint64(len(test.data)))
			tape.Result(HostReturned, []uint64{0}, []abi.ValueType{abi.I32})
			tape.Host(1, []uint64{9, 1}, []abi.ValueType{abi.I32, abi.I32})
			tape.Bytes(Read, []byte("it is "+password), 9, 1)
			tape.Data(Abort, []byte("bad "+password))
			tape.End(Trapped, 2, 100, "no "+password, []byte(password))
			ask(tape, 2, "after", "still "+password, 2, Returned)
			recording := closed(t, r)
			for _, s := range recording.Sequences() {
				for c, err := range s.Calls() {
					if err != nil {
						t.Fatal(err)
					}
					if want := c.Number > 0; want != (c.Marks&Secret != 0) {
						t.Errorf("call %d has the marks %b", c.Number, c.Marks)
					}
					for _, e := range c.Events {
						if e.Kind == Write && c.Number == 1 && len(e.Data) != len(test.data) {
							t.Errorf("the masked object has %d bytes, the object %d", len(e.Data), len(test.data))
						}
					}
				}
			}
			files, err := segments(r.cfg.Path)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(files[0].name)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte(password)) {
				t.Errorf("the file has the password")
			}
			if tape.Next() {
				t.Error("the sequence goes on with what it knows of a Secret")
			}
		})
	}
}

func TestTheOperatorRedacts(t *testing.T) {
	r := newRecorder(t, record.Config{Redact: func(_, _ string, data []byte) {
		copy(data, bytes.ReplaceAll(data, []byte("alice"), []byte("xxxxx")))
	}})
	tape, _ := r.Version(answering).Tape()
	ask(tape, 0, "nobody", "no", 0, Returned)
	ask(tape, 1, "user alice", "no alice", 0, Returned)
	ask(tape, 2, "nobody", "no", 0, Returned)
	var marks []Marks
	for _, s := range closed(t, r).Sequences() {
		for c, err := range s.Calls() {
			if err != nil {
				t.Fatal(err)
			}
			marks = append(marks, c.Marks)
			for _, e := range c.Events {
				if bytes.Contains(e.Data, []byte("alice")) {
					t.Errorf("call %d has %q", c.Number, e.Data)
				}
			}
		}
	}
	if diff := cmp.Diff([]Marks{0, Redacted, Redacted}, marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Reading may take so many times the bytes of a recording, and some for a small one.
const (
	mostTimes = 64
	mostOnce  = 1 << 20
)

// everything reads all of a recording.
func everything(data []byte) (calls, events int, err error) {
	for _, s := range parse(data).Sequences() {
		for c, callErr := range s.Calls() {
			if callErr != nil {
				err = callErr
				break
			}
			calls, events = calls+1, events+len(c.Events)
		}
	}
	return calls, events, err
}

// framed returns a recording with one call, whose body has the given events, after blobs.
func framed(events []byte, blobs ...[]byte) []byte {
	b := append([]byte(magic), appendFrame(nil, frameVersion, func(b []byte) []byte { return append(b, 1, '{', '}') })...)
	for _, blob := range blobs {
		b = appendFrame(b, frameBlob, func(b []byte) []byte { return append(append(append(b, 0), make([]byte, sha256.Size)...), blob...) })
	}
	return appendFrame(b, frameCall, func(b []byte) []byte {
		b = append(b, 1, 1, 0, 0) // Version, sequence, number, marks.
		b = append(b, 0, 0, 0, 0) // Kind, function, arguments, start.
		return append(append(b, events...), byte(endOfCall), 0, 0, 0, 0, 0, 0)
	})
}

// A recording of somebody else's takes no more memory than a multiple of its bytes.
func TestReadingIsBounded(t *testing.T) {
	const n = 4 << 20
	blob := bytes.Repeat([]byte("b"), maxCallBytes/4)
	reference := binary.AppendUvarint([]byte{byte(Put), 0}, uint64(len(blob))<<1|1)
	object := `{"imports":[` + strings.Repeat(`{},`, n) + `{}]}`
	for _, test := range []struct {
		name string
		data []byte
		want error
	}{
		{"events without content", framed(bytes.Repeat([]byte{byte(Confidential), 0}, n)), ErrMalformed},
		{"as many events as there may be", framed(bytes.Repeat([]byte{byte(Confidential), 0}, maxEvents)), nil},
		{"events of many numbers", framed(bytes.Repeat(append([]byte{byte(Charge), 255}, make([]byte, 255)...), n/257)), nil},
		{"one blob over and over", framed(bytes.Repeat(append(reference, 0), 1000), blob), ErrMalformed},
		{"a call without an end", framed(bytes.Repeat([]byte{byte(Host), 0, 0}, 1000))[:3000], nil},
		{"a version of many objects", append([]byte(magic), appendFrame(nil, frameVersion, func(b []byte) []byte { return append(append(b, 1), object...) })...), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var calls int
			var err error
			got := allocated(func() { calls, _, err = everything(test.data) })
			if limit := uint64(mostTimes*len(test.data) + mostOnce); got > limit {
				t.Errorf("%d bytes take %d, more than %d", len(test.data), got, limit)
			}
			if !errors.Is(err, test.want) {
				t.Errorf("%d calls, error %v, want %v", calls, err, test.want)
			}
		})
	}
}

// FuzzRead: whatever the bytes are, reading them neither panics nor takes more memory than
// some times what they have.
func FuzzRead(f *testing.F) {
	r := newRecorder(f, record.Config{})
	tape, _ := r.Version(answering).Tape()
	for n := range 3 {
		ask(tape, n, strings.Repeat("x", 200), "no", 2, Returned)
	}
	closed(f, r)
	files, err := segments(r.cfg.Path)
	if err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(files[0].name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[len(magic):], false, uint16(0))
	body := appendCall(nil, &Call{Function: "filter", Events: []Event{{Kind: Write, Args: []uint64{1, 2, 3}, Data: []byte("data")}}}, appendData[[]byte])
	f.Add(body, true, uint16(0))
	f.Add([]byte{byte(Confidential), 0}, true, uint16(2000))
	f.Add([]byte{byte(Put), 0, 41, 0}, true, uint16(2000))
	f.Fuzz(func(t *testing.T, data []byte, call bool, repeated uint16) {
		switch {
		case call && repeated%2048 != 0: // The same events over and over.
			data = framed(bytes.Repeat(data[:min(len(data), 64)], int(repeated%2048)), bytes.Repeat([]byte("b"), 20))
		case call: // With checksums that hold.
			c, err := decodeCall(data, nil)
			if err == nil {
				c.Version = &answering
				VerdictOf(c)
				again, err := decodeCall(appendCall(nil, c, appendData[[]byte]), nil)
				if err != nil {
					t.Fatal(err)
				}
				c.Version, again.Start = nil, c.Start
				if diff := cmp.Diff(c, again); diff != "" {
					t.Error(diff)
				}
			}
			whole := append([]byte(magic), appendFrame(nil, frameVersion, func(b []byte) []byte { return append(b, 1, '{', '}') })...)
			data = appendFrame(whole, frameCall, func(b []byte) []byte { return append(append(b, 1, 1, 0, 0), data...) })
		default:
			data = append([]byte(magic), data...)
		}
		if got, limit := allocated(func() { _, _, _ = everything(data) }), uint64(mostTimes*len(data)+mostOnce); got > limit {
			t.Errorf("%d bytes take %d, more than %d", len(data), got, limit)
		}
	})
}

// echoing is a version whose guest is asked by functions of the host's own, and calls others.
var echoing = Version{Plugin: "echo", SHA256: strings.Repeat("cd", 32), Kind: abi.KindAdmission, Imports: []Import{
	{Module: abi.KindAdmission.Module(), Name: "object", Memory: 0b11},
	{Module: "shop.example.com", Name: "format", Memory: 0b1111},
	{Module: abi.ModuleObjects, Name: "get_object", Memory: 0b1111},
	{Module: abi.KindAdmission.Module(), Name: "object_proto", Memory: 0b11},
}}

// hand hands an object to the guest, in JSON or as a message of a shape.
func hand(tape *Tape, object []byte, shape confidential.Shape) {
	pair := []abi.ValueType{abi.I32, abi.I32}
	index := 0
	if shape != 0 {
		index = 3
	}
	tape.Host(index, []uint64{1, 2}, pair)
	if shape != 0 {
		tape.Confidential(shape, 0, false)
	}
	tape.Bytes(Write, object, 1, 2, uint64(len(object)))
	tape.Result(HostReturned, []uint64{uint64(len(object))}, pair[:1])
}

// echo says text to the host, in a way that script chooses, and has the host repeat it.
func echo(tape *Tape, script byte, text []byte) {
	four := []abi.ValueType{abi.I32, abi.I32, abi.I32, abi.I32}
	quoted, _ := json.Marshal(string(text))
	answers := [][]byte{text, quoted, append([]byte("no object is called "), text...), append(append([]byte(`{"a":`), quoted...), '}'), append(append([]byte(`{`), quoted...), ":1}"...)}
	answer := answers[int(script>>4)%len(answers)]
	index := 1 + int(script&1)
	switch script >> 1 & 7 {
	case 0: // A function that is asked, and answers.
		tape.Host(index, []uint64{1, 2, 3, 4}, four)
		tape.Bytes(Read, text, 1, uint64(len(text)))
		tape.Bytes(Write, answer, 3, 4, uint64(len(answer)))
		tape.Result(HostReturned, []uint64{0}, four[:1])
	case 1: // One that answers later.
		tape.Host(index, []uint64{1, 2, 3, 4}, four)
		tape.Bytes(Put, answer, 3)
		tape.Result(HostReturned, []uint64{0}, four[:1])
	case 2: // Values of the guest that the host dumps and gives back within a function.
		tape.Host(index, []uint64{1, 2, 3, 4}, four)
		tape.Invoke(0, []uint64{7})
		tape.Result(Invoked, []uint64{8}, four[:1])
		tape.Bytes(Text, text, 8)
		tape.Invoke(0, []uint64{uint64(len(answer))})
		tape.Result(Invoked, []uint64{9}, four[:1])
		tape.Bytes(Put, answer, 9)
		tape.Result(HostReturned, []uint64{9}, four[:1])
	case 3: // Standard output and input.
		tape.Host(index, []uint64{1, 2, 3, 4}, four)
		tape.Data(Input, answer)
		tape.Result(HostReturned, []uint64{0}, four[:1])
		tape.Data(Output, text)
	case 4:
		tape.Host(index, []uint64{1, 2, 3, 4}, four)
		tape.Bytes(Read, text, 1, uint64(len(text)))
		tape.Data(Abort, answer)
	case 5: // A function of the project's own that is asked.
		tape.Host(2, []uint64{1, 2, 3, 4}, four)
		tape.Bytes(Read, text, 1, uint64(len(text)))
		tape.Bytes(Write, answer, 3, 4, uint64(len(answer)))
		tape.Result(HostReturned, []uint64{0}, four[:1])
	case 6:
		tape.Bytes(Text, text, 8)
	case 7:
		tape.Host(index, []uint64{1, 2, 3, 4}, four)
		tape.Data(Argument, answer)
		tape.Result(HostReturned, []uint64{0}, four[:1])
	}
}

// planted are the objects that have a value which is confidential.
func planted(value string) map[string]struct {
	object []byte
	shape  confidential.Shape
} {
	type planted = struct {
		object []byte
		shape  confidential.Shape
	}
	quoted, _ := json.Marshal(value)
	field := func(n byte, data string) string {
		return string(append(binary.AppendUvarint([]byte{n<<3 | 2}, uint64(len(data))), data...))
	}
	return map[string]planted{
		"a Secret":                {[]byte(`{"kind":"Secret","stringData":{"p":` + string(quoted) + `}}`), 0},
		"a token":                 {[]byte(`{"kind":"TokenReview","spec":{"token":` + string(quoted) + `}}`), 0},
		"an environment":          {[]byte(`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":` + string(quoted) + `}]}]}}`), 0},
		"a Secret in protobuf":    {[]byte(field(4, field(1, "p")+field(2, value))), wire.ShapeSecretObject},
		"a request of a hook":     {[]byte(field(11, field(1, "P")+field(2, value))), wire.ShapeHookRequest},
		"an annotation of a hook": {[]byte(field(6, field(1, "a")+field(2, `{"kind":"Secret","data":{"p":`+string(quoted)+`}}`))), wire.ShapeHookRequest},
	}
}

// checkEchoes records a guest that is given a value, and repeats it in every way. No eight bytes
// of the value may be in the file.
func checkEchoes(t *testing.T, value, kind string, script []byte) {
	object := planted(value)[kind]
	r := &Recorder{cfg: withDefaults(record.Config{}), queue: make(chan item, 1)} // Nothing writes.
	tape, _ := r.Version(echoing).Tape()
	text := []byte(value)
	for n := range 2 {
		tape.Begin(ByFunction, "validate", nil)
		if n == 0 {
			hand(tape, object.object, object.shape)
		}
		for i, step := range script {
			at := 0
			if n != 0 {
				at = i % len(text) // Part of it.
			}
			echo(tape, step, text[at:])
		}
		tape.End(Trapped, 0, 1, "bad "+value, append([]byte("printed "), text...))
		c, err := decodeCall((<-r.queue).body, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Version = tape.version.version
		r.redact(c, tape)
		data := appendCall(nil, c, appendData[[]byte])
		for i := 0; i+8 <= len(value); i++ {
			if piece := value[i : i+8]; strings.Trim(piece, "x1") != "" && bytes.Contains(data, []byte(piece)) {
				t.Fatalf("%s: call %d has %q of %q after the steps %d: %q", kind, n, piece, value, script, data)
			}
		}
	}
	if tape.Next() == tape.stain.Heavy() {
		t.Errorf("%s: the sequence goes on: %t", kind, tape.Next())
	}
}

func TestWhatAGuestRepeatsIsMasked(t *testing.T) {
	var script []byte
	for step := range 80 {
		script = append(script, byte(step))
	}
	for kind := range planted("") {
		for _, value := range []string{"hunter2-very-secret", "12345678901234", `a "quoted" \ value`, "[[[[[[[[]]]]]]]]", "====================="} {
			checkEchoes(t, value, kind, script)
		}
	}
}

// TestNumbersThatAGuestRepeatsAreMasked holds that a number of something confidential is in no
// recording, whether the guest passes it to a function of the component or gets it from one.
func TestNumbersThatAGuestRepeatsAreMasked(t *testing.T) {
	const pin, other = 12345678, 55555
	i32, i64 := abi.I32, abi.I64
	version := Version{Plugin: "shop", SHA256: strings.Repeat("cd", 32), Kind: abi.KindAdmission, Imports: []Import{
		{Module: abi.KindAdmission.Module(), Name: "object", Memory: 0b11},
		{Module: "shop.example.com", Name: "check", Memory: 0b011},
		{Module: abi.ModuleObjects, Name: "object_part", Memory: 0b11000},
	}}
	bytesOfPin := binary.LittleEndian.Uint64([]byte("hunter2-"))
	for name, test := range map[string]struct {
		object string
		number uint64
		want   uint64
	}{
		"of a Secret":                              {`{"kind":"Secret","stringData":{"p":"12345678"}}`, pin, 0},
		"of a Secret, in other words":              {`{"kind":"Secret","stringData":{"p":"12345678"}}`, other, 0},
		"of a token":                               {`{"kind":"TokenReview","spec":{"token":"12345678"}}`, pin, 0},
		"of a Secret, a byte at a time":            {`{"kind":"Secret","stringData":{"p":"12345678"}}`, '1', 0},
		"that is true, about a Secret":             {`{"kind":"Secret","stringData":{"p":"12345678"}}`, 1, 1},
		"that is an address, about a Secret":       {`{"kind":"Secret","stringData":{"p":"12345678"}}`, 4096, 4096},
		"that is a length, about a Secret":         {`{"kind":"Secret","stringData":{"p":"12345678"}}`, 6 << 32, 6 << 32},
		"of an environment":                        {`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"12345678"}]}]}}`, pin, 0},
		"of a short environment":                   {`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"55555"}]}]}}`, other, 0},
		"of an environment, as a float":            {`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"1234.5678"}]}]}}`, math.Float64bits(1234.5678), 0},
		"of an environment, eight bytes at a time": {`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"hunter2-hunter2"}]}]}}`, bytesOfPin, 0},
		"that is not that of an environment":       {`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"12345678"}]}]}}`, other, other},
		"of an object with nothing confidential":   {`{"kind":"Pod","spec":{"pin":12345678}}`, pin, pin},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Recorder{cfg: withDefaults(record.Config{}), queue: make(chan item, 1)} // Nothing writes.
			tape, _ := r.Version(version).Tape()
			tape.Begin(ByFunction, "validate", nil)
			tape.Host(0, []uint64{1, 2}, []abi.ValueType{i32, i32})
			tape.Bytes(Write, []byte(test.object), 1, 2, uint64(len(test.object)))
			tape.Result(HostReturned, []uint64{uint64(len(test.object))}, []abi.ValueType{i32})
			tape.Host(1, []uint64{4096, 6, test.number}, []abi.ValueType{i32, i32, i64})
			tape.Bytes(Read, []byte("a text"), 4096, 6)
			tape.Invoke(0, []uint64{test.number})
			tape.Result(Invoked, []uint64{test.number}, []abi.ValueType{i64})
			tape.Result(HostReturned, []uint64{test.number}, []abi.ValueType{i64})
			tape.Host(2, []uint64{1<<32 | 7, 2, 1 << 3, 4096, 8192}, []abi.ValueType{i64, i32, i64, i32, i32})
			tape.Result(HostReturned, []uint64{0}, []abi.ValueType{i32})
			tape.Host(1, []uint64{4096, 6, test.number}, []abi.ValueType{i32, i32, i64}) // Which ends the call.
			tape.Bytes(Read, []byte("a text"), 4096, 6)
			tape.Data(Abort, []byte("no"))
			tape.End(Trapped, 0, 1, "no", nil)
			c, err := decodeCall((<-r.queue).body, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Version = tape.version.version
			r.redact(c, tape)
			var got [][]uint64
			for _, e := range c.Events[3:] {
				got = append(got, e.Args)
			}
			want := [][]uint64{
				{4096, 6, test.want}, {4096, 6}, {test.want}, {test.want}, {test.want},
				{1<<32 | 7, 2, 1 << 3, 4096, 8192}, {0},
				{4096, 6, test.want}, {4096, 6}, nil,
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("numbers (-want +got):\n%s", diff)
			}
			if masked := c.Marks&Secret != 0; masked != !strings.Contains(name, "nothing") {
				t.Errorf("the call is marked: %t", masked)
			}
		})
	}
}

// FuzzMask: nothing that a guest or the host repeats of a confidential value is in the file, in
// whatever way and order.
func FuzzMask(f *testing.F) {
	f.Add("hunter2-very-secret", []byte{0, 2, 4, 6, 8, 10, 12, 14})
	f.Add("aHVudGVyMmh1bnRlcjI=", []byte{1, 17, 33, 49, 65})
	f.Fuzz(func(t *testing.T, value string, script []byte) {
		value = strings.ToValidUTF8(value[:min(len(value), 256)], "")
		if len(value) < 8 {
			return
		}
		// What the format itself has is no leak.
		clean := fmt.Sprint(magic, echoing, Version{}, `{"kind":"Secret","stringData":{"p":{"spec":{"token":TokenReview"Pod"containers":[{"env":[{"name":"P","value":"data"}]}]}}`, "no object is called printed bad validate")
		for i := 0; i+8 <= len(value); i++ {
			if strings.Contains(clean, value[i:i+8]) {
				return
			}
		}
		for kind := range planted("") {
			checkEchoes(t, value, kind, script[:min(len(script), 16)])
		}
	})
}

func BenchmarkTape(b *testing.B) {
	r := newRecorder(b, record.Config{QueueBytes: 1 << 30})
	v := r.Version(answering)
	data := strings.Repeat("label ", 200)
	tape, _ := v.Tape()
	b.ReportAllocs()
	for n := range b.N {
		if tape == nil || !tape.Next() {
			if tape, _ = v.Tape(); tape == nil {
				continue
			}
		}
		ask(tape, n, data, "no", 2, Returned)
	}
	b.ReportMetric(float64(r.Stats().Dropped)/float64(b.N), "dropped/op")
}
