package abi_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
)

func TestPackKeepsBothHalves(t *testing.T) {
	score := func(score int32, code int32) bool {
		s, c := abi.Unpack[abi.Code](abi.Pack(uint32(score), abi.Code(code)))
		return int32(s) == score && c == abi.Code(code)
	}
	if err := quick.Check(score, nil); err != nil {
		t.Error(err)
	}
	verdict := func(status uint32, v int32) bool {
		s, got := abi.Unpack[abi.Verdict](abi.Pack(status, abi.Verdict(v)))
		return s == status && got == abi.Verdict(v)
	}
	if err := quick.Check(verdict, nil); err != nil {
		t.Error(err)
	}
}

func TestPackedResultsAreAsInTheSpecification(t *testing.T) {
	tests := map[string]struct{ got, want uint64 }{
		"score 100, Success":      {abi.Pack(100, abi.Success), 0x0000_0064_0000_0000},
		"score -1, Unschedulable": {abi.Pack(math.MaxUint32, abi.Unschedulable), 0xffff_ffff_0000_0002},
		"deny with 422":           {abi.Pack(422, abi.VerdictDeny), 0x0000_01a6_0000_0002},
		"allow":                   {abi.Pack(0, abi.VerdictAllow), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.got != test.want {
				t.Errorf("got %#x, want %#x", test.got, test.want)
			}
		})
	}
}

func TestRef(t *testing.T) {
	property := func(version, slot uint32) bool {
		r := abi.MakeRef(version, slot)
		return r.Version() == version && r.Slot() == slot
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

func TestWrite(t *testing.T) {
	data := []byte("kubewasm")
	tests := map[string]struct {
		buf, limit uint32
		data       []byte
		written    bool
		outside    bool
	}{
		"limit 0 asks for the length only":          {buf: 4, limit: 0, data: data},
		"limit 0 may point anywhere":                {buf: math.MaxUint32, limit: 0, data: data},
		"limit 0 and nothing to write":              {buf: math.MaxUint32, limit: 0},
		"exact limit":                               {buf: 4, limit: 8, data: data, written: true},
		"one short":                                 {buf: 4, limit: 7, data: data},
		"one more":                                  {buf: 4, limit: 9, data: data, written: true},
		"buffer up to the last byte":                {buf: 24, limit: 8, data: data, written: true},
		"buffer beyond the last byte":               {buf: 25, limit: 8, data: data, outside: true},
		"buffer beyond, though the data would fit":  {buf: 0, limit: 33, data: data, outside: true},
		"buffer beyond, though nothing is written":  {buf: 30, limit: 7, data: data, outside: true},
		"huge limit":                                {buf: 0, limit: math.MaxUint32, data: data, outside: true},
		"pointer and limit that wrap round":         {buf: math.MaxUint32, limit: math.MaxUint32, data: data, outside: true},
		"pointer that wraps round to the beginning": {buf: math.MaxUint32 - 3, limit: 8, data: data, outside: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			memory := make([]byte, 32)
			want := make([]byte, 32)
			if test.written {
				copy(want[test.buf:], test.data)
			}
			n, err := abi.Write(memory, test.buf, test.limit, test.data)
			if got := err != nil && strings.Contains(err.Error(), "out of bounds of the guest's memory of 32 bytes"); got != test.outside {
				t.Fatalf("error %v, want one: %v", err, test.outside)
			}
			if err == nil && n != uint32(len(test.data)) {
				t.Errorf("got length %d, want %d", n, len(test.data))
			}
			if diff := cmp.Diff(want, memory); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWriteRandom holds the buffer rule as a property: whatever the guest
// claims, nothing outside of [buf, buf+limit) changes, and the bytes are written
// if and only if they fit.
func TestWriteRandom(t *testing.T) {
	property := func(seed uint64) bool {
		r := rand.New(rand.NewPCG(seed, 1))
		number := func() uint32 {
			if r.IntN(4) == 0 {
				return math.MaxUint32 - uint32(r.IntN(64))
			}
			return uint32(r.IntN(80))
		}
		memory := bytes.Repeat([]byte{0xaa}, 64)
		data := bytes.Repeat([]byte{0x55}, r.IntN(80))
		buf, limit := number(), number()
		n, err := abi.Write(memory, buf, limit, data)

		inside := limit == 0 || uint64(buf)+uint64(limit) <= 64
		if (err == nil) != inside || (err == nil && n != uint32(len(data))) {
			return false
		}
		want := bytes.Repeat([]byte{0xaa}, 64)
		if inside && len(data) > 0 && uint64(len(data)) <= uint64(limit) {
			copy(want[buf:], data)
		}
		return bytes.Equal(memory, want)
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

func TestRead(t *testing.T) {
	memory := []byte("0123456789")
	tests := map[string]struct {
		ptr, length uint32
		want        string
		outside     bool
	}{
		"in the middle":                 {ptr: 2, length: 3, want: "234"},
		"all":                           {ptr: 0, length: 10, want: "0123456789"},
		"nothing, from anywhere":        {ptr: math.MaxUint32, length: 0},
		"one beyond":                    {ptr: 1, length: 10, outside: true},
		"from the end":                  {ptr: 10, length: 1, outside: true},
		"huge length":                   {ptr: 0, length: math.MaxUint32, outside: true},
		"pointer and length wrap round": {ptr: math.MaxUint32, length: 2, outside: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := abi.Read(memory, test.ptr, test.length)
			if (err != nil) != test.outside {
				t.Fatalf("error %v, want one: %v", err, test.outside)
			}
			if string(got) != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestBufferMeetsWrite runs both sides of the rule against each other.
func TestBufferMeetsWrite(t *testing.T) {
	var b abi.Buffer
	for _, size := range []int{0, 1, 4095, 4096, 4097, 10, 100_000, 8192, 8193, 0} {
		answer := bytes.Repeat([]byte{7}, size)
		calls := 0
		got := b.Fill(func(buf []byte) uint32 {
			calls++
			n, err := abi.Write(buf, 0, uint32(len(buf)), answer)
			if err != nil {
				t.Fatal(err)
			}
			return n
		})
		if !bytes.Equal(got, answer) {
			t.Errorf("got %d bytes, want %d", len(got), size)
		}
		if calls > 2 {
			t.Errorf("%d calls for %d bytes, want at most 2", calls, size)
		}
	}
	// What fits into the buffer that earlier answers made costs one call.
	calls := 0
	b.Fill(func(buf []byte) uint32 { calls++; return 5000 })
	if calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}

func TestBufferRefusesAHostThatChangesItsMind(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "answered 5000 bytes, then 6000") {
			t.Errorf("got panic %v", r)
		}
	}()
	n := uint32(4000)
	new(abi.Buffer).Fill(func([]byte) uint32 { n += 1000; return n })
}

func TestMask(t *testing.T) {
	m := abi.MaskOf(abi.Filter, abi.Score, abi.Configure) | 1<<63
	if got, want := m.String(), "filter, score, configure, function(63)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := m.Of(abi.KindScheduler), abi.MaskOf(abi.Filter, abi.Score); got != want {
		t.Errorf("scheduler functions are %s, want %s", got, want)
	}
	if got, want := m.Unknown(), abi.Mask(1<<63); got != want {
		t.Errorf("unknown functions are %s, want %s", got, want)
	}
}

func TestTypesAreWrittenAsInMessages(t *testing.T) {
	tests := []struct {
		params, results []abi.ValueType
		want            string
	}{
		{nil, nil, "() -> ()"},
		{[]abi.ValueType{abi.I32}, []abi.ValueType{abi.I32}, "(i32) -> i32"},
		{[]abi.ValueType{abi.I64, abi.I32, 0x7d, 0x7c}, []abi.ValueType{abi.I32, abi.I64}, "(i64, i32, f32, f64) -> (i32, i64)"},
		{[]abi.ValueType{0x7b, 0x70, 0x6f, 0x01}, nil, "(v128, funcref, externref, 0x1) -> ()"},
	}
	for _, test := range tests {
		if got := (abi.Signature{Params: test.params, Results: test.results}).Type(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	if got, want := abi.Filter.Signature().Type(), "(i64, i64, i64[, i64]) -> i32"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCode(t *testing.T) {
	for code, want := range map[abi.Code]string{
		abi.Success: "Success", abi.Pending: "Pending", 7: "code(7)", -1: "code(-1)",
	} {
		if got := code.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
