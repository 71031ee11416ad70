//go:build !wasip1

package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

var (
	typeOfWhole    = Type{Names: []string{1: "metadata", 2: "spec", 3: "status"}}
	typeOfMetadata = Type{Names: []string{1: "name", 11: "labels", 12: "annotations"}}
	typeOfSpec     = Type{Names: []string{1: "host", 2: "pieces"}}
)

// whole is an object that a host has.
type whole struct {
	name, host          string
	labels, annotations map[string]string
}

func (w whole) part(n uint32) (b []byte) {
	switch n {
	case 1:
		b = wire.AppendBytes(b, 1, w.name)
		for field, m := range map[uint32]map[string]string{11: w.labels, 12: w.annotations} {
			for k, v := range m {
				b = wire.AppendBytes(b, field, wire.AppendBytes(wire.AppendBytes(nil, 1, k), 2, v))
			}
		}
	case 2:
		b = wire.AppendBytes(b, 1, w.host)
		b = wire.AppendBytes(b, 2, wire.AppendBytes(nil, 1, "piece of "+w.host))
	}
	return b
}

// serveParts makes the host answer with parts, and notes what crosses.
func serveParts(t *testing.T, objects map[abi.Ref]whole) (crossed *[]string) {
	object, part, entry, by := hostObject, hostPart, hostEntry, hostByParts
	t.Cleanup(func() { hostObject, hostPart, hostEntry, hostByParts = object, part, entry, by })
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
	hostByParts = func(abi.Ref) bool { return true }
	hostPart = func(ref abi.Ref, n uint32, buf []byte) uint32 {
		return answer(fmt.Sprint("part ", n, " of ", ref.Version()), objects[ref].part(n), buf)
	}
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
			b = wire.AppendBytes(b, n+1, objects[ref].part(n+1))
		}
		return answer(fmt.Sprint("all of ", ref.Version()), b, buf)
	}
	return crossed
}

func TestPartsCrossWhenTheyAreRead(t *testing.T) {
	long := strings.Repeat("long", 100)
	objects := map[abi.Ref]whole{}
	for i := range uint32(4) {
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
		// The fifth: now all of it.
		{1, func() string { return labels().Get("long") }, long, []string{"part 1 of 1"}},
		{1, func() string { return labels().Get("zone") + metadata().Text(1) }, "z0n0", nil},
		{1, func() string { return v.Message(2, &typeOfSpec).Text(1) }, "h0", []string{"part 2 of 1"}},
		{1, func() string { return fmt.Sprint(v.Message(3, &typeOfSpec).Has(1)) }, "false", []string{"part 3 of 1"}},
		// What was read is fetched as soon as its message is asked for.
		{2, func() string { return labels().Get("zone") }, "z0", []string{"part 1 of 2"}},
		{2, func() string { return List[View](v.Message(2, &typeOfSpec), 2, &typeOfPiece)[0].Text(1) }, "piece of h1", []string{"part 2 of 2"}},
		// What was not, is not.
		{3, func() string { return "" }, "", nil},
		{4, func() string { return labels().Get("long") + labels().Get("zone") }, long + "z1", []string{"long in 11 of 4", "zone in 11 of 4"}},
		{4, func() string { return v.Message(2, &typeOfSpec).Text(1) }, "h3", []string{"part 2 of 4"}},
		{4, func() string { return fmt.Sprint(v.Has(3), v.Message(2, &typeOfSpec).Text(1)) }, "trueh3", []string{"all of 4"}},
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
		"the object":        func(root, _, _ View) { root.Message(1, &typeOfMetadata) },
		"what was read":     func(_, read, _ View) { read.Int64(2) },
		"what was not":      func(_, _, unread View) { unread.Text(1) },
		"a label of it":     func(_, _, unread View) { unread.StringMap(11).Get("a") },
		"a look-up in it":   func(_, _, unread View) { unread.StringMap(11).Lookup("a") },
		"all entries of it": func(_, _, unread View) { unread.StringMap(11).Len() },
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

func TestPartsMakeNoGarbage(t *testing.T) {
	objects := map[abi.Ref]whole{}
	serveParts(t, objects)
	w := whole{host: "h", labels: map[string]string{"a": "1"}}
	spec := w.part(2)
	hostPart = func(_ abi.Ref, _ uint32, buf []byte) uint32 {
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
