//go:build !wasip1

package view

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

var (
	typeOfWhole    = Type{Names: []string{1: "metadata", 2: "spec", 3: "status"}}
	typeOfMetadata = Type{Names: []string{1: "name", 11: "labels", 12: "annotations"}}
	typeOfSpec     = Type{Names: []string{1: "host", 2: "pieces", 3: "size", 4: "open", 5: "address"}}
)

// whole is an object that a host has.
type whole struct {
	name, host          string
	labels, annotations map[string]string
}

func (w whole) part(n uint32, fields uint64) (b []byte) {
	add := func(field uint32, value []byte) {
		if fields>>field&1 != 0 {
			b = wire.AppendBytes(b, field, value)
		}
	}
	switch n {
	case 1:
		add(1, []byte(w.name))
		for field, m := range map[uint32]map[string]string{11: w.labels, 12: w.annotations} {
			for k, v := range m {
				add(field, wire.AppendBytes(wire.AppendBytes(nil, 1, k), 2, v))
			}
		}
	case 2:
		add(1, []byte(w.host))
		for i := range 3 {
			add(2, wire.AppendBytes(nil, 1, fmt.Sprint("piece ", i, " of ", w.host)))
		}
		if fields>>3&1 != 0 {
			b = wire.AppendVarint(b, 3, uint64(len(w.host)))
		}
	}
	return b
}

// forgetWanted makes the next objects the first ones.
func forgetWanted() {
	clear(wantedOf)
	clear(wantedFields[1:])
}

// fieldsOf returns the numbers of the bits that are set in a mask.
func fieldsOf(mask uint64) (numbers []int) {
	if mask == abi.AllFields {
		return []int{-1}
	}
	for n := range 64 {
		if mask>>n&1 != 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// serveParts makes the host answer with parts, and notes what crosses.
func serveParts(t *testing.T, objects map[abi.Ref]whole) (crossed *[]string) {
	object, part, entry := hostObject, hostPart, hostEntry
	t.Cleanup(func() { hostObject, hostPart, hostEntry = object, part, entry })
	crossed = new([]string)
	answer := func(what string, b, buf []byte) uint32 {
		if len(b) <= len(buf) {
			*crossed = append(*crossed, what)
		}
		n, err := abi.Write(buf, 0, uint32(len(buf)), b)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	hostPart = func(ref abi.Ref, n uint32, fields uint64, buf []byte) uint32 {
		return answer(fmt.Sprint("part ", n, " fields ", fieldsOf(fields), " of ", ref.Version()), objects[ref].part(n, fields), buf)
	}
	forgetWanted()
	hostEntry = func(ref abi.Ref, field uint32, key string, buf []byte) uint32 {
		m := objects[ref].labels
		if field == 12 {
			m = objects[ref].annotations
		}
		value, ok := m[key]
		what := fmt.Sprint(key, " in ", field, " of ", ref.Version())
		if !ok {
			*crossed = append(*crossed, what)
			return abi.NoEntry
		}
		return answer(what, []byte(value), buf)
	}
	hostObject = func(ref abi.Ref, buf []byte) uint32 {
		var b []byte
		for n := range uint32(3) {
			b = wire.AppendBytes(b, n+1, objects[ref].part(n+1, abi.AllFields))
		}
		return answer(fmt.Sprint("all of ", ref.Version()), b, buf)
	}
	return crossed
}

func TestPartsCrossWhenTheyAreRead(t *testing.T) {
	long := strings.Repeat("long", 100)
	objects := map[abi.Ref]whole{}
	for i := range uint32(6) {
		objects[abi.MakeRef(i+1, 7)] = whole{
			name: fmt.Sprint("n", i), host: fmt.Sprint("h", i),
			labels:      map[string]string{"zone": fmt.Sprint("z", i/2), "long": long, "empty": ""},
			annotations: map[string]string{"zone": "of annotations"},
		}
	}
	crossed := serveParts(t, objects)
	var v View
	metadata := func() View { return v.Message(1, &typeOfMetadata) }
	labels := func() StringMap { return metadata().StringMap(11) }
	spec := func() View { return v.Message(2, &typeOfSpec) }
	pieces := func() []View { return List[View](spec(), 2, &typeOfPiece) }
	for i, step := range []struct {
		version uint32
		read    func() string
		want    string
		crossed []string
	}{
		{1, func() string { metadata(); return "" }, "", nil},
		{1, func() string { return labels().Get("zone") + labels().Get("zone") }, "z0z0", []string{"zone in 11 of 1"}},
		{1, func() string { return metadata().StringMap(12).Get("zone") }, "of annotations", []string{"zone in 12 of 1"}},
		{1, func() string { value, ok := labels().Lookup("no"); return fmt.Sprint(value, ok, labels().Has("no")) }, "false false", []string{"no in 11 of 1"}},
		{1, func() string { value, ok := labels().Lookup("empty"); return fmt.Sprint(value, ok) }, "true", []string{"empty in 11 of 1"}},
		// The fifth: now all labels, and nothing else.
		{1, func() string { return labels().Get("long") }, long, []string{"part 1 fields [11] of 1"}},
		{1, func() string { return labels().Get("zone") + metadata().Text(1) }, "z0n0", []string{"part 1 fields [1] of 1"}},
		{1, func() string { return spec().Text(1) + spec().Text(1) }, "h0h0", []string{"part 2 fields [1] of 1"}},
		{1, func() string { return fmt.Sprint(v.Message(3, &typeOfSpec).Has(1)) }, "false", []string{"part 3 fields [1] of 1"}},
		// All labels again, as they were read of the version before.
		{2, func() string { return labels().Get("zone") }, "z0", []string{"part 1 fields [11] of 2"}},
		// Names are not, as long as they are not read.
		{2, func() string { return metadata().Text(1) + metadata().Text(1) + labels().Get("zone") }, "n1n1z0", []string{"part 1 fields [1] of 2"}},
		{2, func() string { return pieces()[0].Text(1) }, "piece 0 of h1", []string{"part 2 fields [1 2] of 2"}},
		// A version of which nothing is read changes nothing.
		{3, func() string { metadata(); spec(); return "" }, "", nil},
		{4, func() string { return labels().Get("long") + labels().Get("zone") }, long + "z1", []string{"part 1 fields [11] of 4"}},
		{4, func() string { return spec().Text(1) }, "h3", []string{"part 2 fields [1 2] of 4"}},
		// What is not there is asked for once.
		{4, func() string {
			return fmt.Sprint(spec().Int64(3), spec().Bool(4), spec().Bool(4), spec().Message(5, &typeOfPiece).Has(1), spec().Has(5))
		}, "2 false false false false",
			[]string{"part 2 fields [3] of 4", "part 2 fields [4] of 4", "part 2 fields [5] of 4"}},
		{5, func() string {
			return fmt.Sprint(spec().Int64(3), spec().Bool(4), len(List[View](spec(), 5, &typeOfPiece)))
		}, "2 false 0", []string{"part 2 fields [1 2 3 4 5] of 5"}},
		// Another object of the type begins with what was read of the others.
		{6, func() string {
			other := FromRefByParts(View{}, abi.MakeRef(6, 7), &typeOfWhole)
			return other.Message(2, &typeOfSpec).Text(1)
		}, "h5", []string{"part 2 fields [1 2 3 4 5] of 6"}},
		{6, func() string { return fmt.Sprint(v.Has(3), v.Message(2, &typeOfSpec).Text(1)) }, "trueh5", []string{"all of 6"}},
	} {
		*crossed = nil
		v = FromRefByParts(v, abi.MakeRef(step.version, 7), &typeOfWhole)
		if got := step.read(); got != step.want {
			t.Errorf("step %d: read %q, want %q", i, got, step.want)
		}
		if diff := cmp.Diff(step.crossed, *crossed); diff != "" {
			t.Errorf("step %d: crossed (-want +got):\n%s", i, diff)
		}
	}
}

func TestPartsOfAnotherVersionPanic(t *testing.T) {
	one, two := abi.MakeRef(1, 0), abi.MakeRef(2, 0)
	serveParts(t, map[abi.Ref]whole{
		one: {name: "one", labels: map[string]string{"a": "1"}}, two: {name: "two", labels: map[string]string{"a": "2"}},
	})
	for name, use := range map[string]func(root, read, unread View){
		"the object":               func(root, _, _ View) { root.Message(1, &typeOfMetadata) },
		"what was read":            func(_, read, _ View) { read.Int64(2) },
		"what was not":             func(_, _, unread View) { unread.Text(1) },
		"a label of it":            func(_, _, unread View) { unread.StringMap(11).Get("a") },
		"a look-up in it":          func(_, _, unread View) { unread.StringMap(11).Lookup("a") },
		"all entries of it":        func(_, _, unread View) { unread.StringMap(11).Len() },
		"what was not of what was": func(_, read, _ View) { read.Text(5) },
		"a list of it":             func(_, read, _ View) { List[View](read, 2, &typeOfPiece) },
		"whether it is there":      func(_, read, _ View) { read.Has(4) },
	} {
		t.Run(name, func(t *testing.T) {
			root := FromRefByParts(View{}, one, &typeOfWhole)
			read, unread := root.Message(2, &typeOfSpec), root.Message(1, &typeOfMetadata)
			read.Text(1)
			FromRefByParts(root, two, &typeOfWhole)
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, "after its object had changed") {
					t.Errorf("got panic %q", r)
				}
			}()
			use(root, read, unread)
		})
	}
}

func TestFetchingPartsDoesNotAllocate(t *testing.T) {
	objects := map[abi.Ref]whole{}
	serveParts(t, objects)
	w := whole{host: "h", labels: map[string]string{"a": "1"}}
	spec := w.part(2, 1<<1)
	hostPart = func(_ abi.Ref, _ uint32, _ uint64, buf []byte) uint32 {
		if len(spec) <= len(buf) {
			copy(buf, spec)
		}
		return uint32(len(spec))
	}
	hostEntry = func(_ abi.Ref, _ uint32, _ string, buf []byte) uint32 { return uint32(copy(buf, "1")) }
	var v View
	version := uint32(0)
	if n := testing.AllocsPerRun(200, func() {
		version++
		v = FromRefByParts(v, abi.MakeRef(version, 0), &typeOfWhole)
		if v.Message(1, &typeOfMetadata).StringMap(11).Get("a") != "1" || v.Message(2, &typeOfSpec).Text(1) != "h" {
			t.Fatalf("something is missing in version %d", version)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a version, want 0", n)
	}
}

// TestFieldsStayWhereTheyAre reads fields of parts in any order, and what was read of
// them before the next ones came behind them.
func TestFieldsStayWhereTheyAre(t *testing.T) {
	objects := map[abi.Ref]whole{}
	serveParts(t, objects)
	r := rand.New(rand.NewPCG(3, 4))
	var v View
	for version := range uint32(200) {
		if version%20 == 0 {
			forgetWanted()
			v = View{} // Its parts have other masks.
		}
		w := whole{
			name: strings.Repeat("n", r.IntN(100)), host: strings.Repeat("h", r.IntN(150)),
			labels: map[string]string{"a": fmt.Sprint(version), "b": strings.Repeat("b", r.IntN(200))},
		}
		ref := abi.MakeRef(version+1, 3)
		objects[ref] = w
		v = FromRefByParts(v, ref, &typeOfWhole)
		metadata, spec := v.Message(1, &typeOfMetadata), v.Message(2, &typeOfSpec)
		wantPieces := fmt.Sprintf("piece 0 of %[1]s,piece 1 of %[1]s,piece 2 of %[1]s,", w.host)
		wantLabels := fmt.Sprint(2, w.labels["a"], w.labels["b"])
		// What was read of a list and of a map, to be read again.
		var pieces, labels func() string
		read := []func() (got, want string){
			func() (got, want string) { return spec.Text(1), w.host },
			func() (got, want string) { return fmt.Sprint(spec.Int64(3)), fmt.Sprint(len(w.host)) },
			func() (got, want string) { return metadata.Text(1), w.name },
			func() (got, want string) {
				list := List[View](spec, 2, &typeOfPiece)
				pieces = func() (all string) {
					for _, p := range list {
						all += p.Text(1) + ","
					}
					return all
				}
				return pieces(), wantPieces
			},
			func() (got, want string) {
				m := metadata.StringMap(11)
				labels = func() string { return fmt.Sprint(m.Len(), m.Get("a"), m.Get("b")) }
				return labels(), wantLabels
			},
			func() (got, want string) {
				if pieces == nil {
					return "", ""
				}
				return pieces(), wantPieces
			},
			func() (got, want string) {
				if labels == nil {
					return "", ""
				}
				return labels(), wantLabels
			},
		}
		for range 12 {
			if got, want := read[r.IntN(len(read))](); got != want {
				t.Fatalf("version %d: read %q, want %q", version, got, want)
			}
		}
	}
}

// TestHostilePartsReadPlainly compares what views say of random bytes of a part, which is read
// in another way than other messages, with a plain reader.
func TestHostilePartsReadPlainly(t *testing.T) {
	serveParts(t, nil)
	var raw []byte
	hostPart = func(_ abi.Ref, _ uint32, _ uint64, buf []byte) uint32 {
		if len(raw) <= len(buf) {
			copy(buf, raw)
		}
		return uint32(len(raw))
	}
	r := rand.New(rand.NewPCG(53, 59))
	short, long := thingBytes("n", "x"), thingBytes("name", strings.Repeat("long", 100))
	var v View
	for i := range uint32(20_000) {
		if raw = mutate(r, short); i%8 == 0 {
			raw = mutate(r, long)
		}
		v = FromRefByParts(v, abi.MakeRef(i+1, 0), &typeOfWhole)
		part := v.Message(2, &typeOfThing)
		wantedFields[part.m.object.wanted] = abi.AllFields // So that all are fetched at once.
		want := plainly(raw)
		for range 2 { // As it is read first, and again.
			if diff := cmp.Diff(want, say(part), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%d: %x (-want +got):\n%s", i, raw, diff)
			}
			for _, key := range []string{"zone", "long", ""} {
				if got, want := part.StringMap(6).Get(key), want.value(key); got != want {
					t.Fatalf("%d: %x: label %q is %q, want %q", i, raw, key, got, want)
				}
			}
		}
	}
}
