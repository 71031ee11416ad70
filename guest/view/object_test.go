//go:build !wasip1

package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
)

// serve makes the host answer with objects, and counts what crosses.
func serve(t *testing.T, objects map[abi.Ref][]byte) (crossings *int) {
	native := hostObject
	t.Cleanup(func() { hostObject = native })
	crossings = new(int)
	hostObject = func(ref abi.Ref, buf []byte) uint32 {
		raw, ok := objects[ref]
		if !ok {
			t.Errorf("asked for %#x", ref)
		}
		n, err := abi.Write(buf, 0, uint32(len(buf)), raw)
		if err != nil {
			t.Error(err)
		}
		if int(n) <= len(buf) {
			*crossings++
		}
		return n
	}
	return crossings
}

func TestAnObjectCrossesOncePerVersion(t *testing.T) {
	ref := func(version uint32) abi.Ref { return abi.MakeRef(version, 7) }
	longer := strings.Repeat("longer", 100)
	crossings := serve(t, map[abi.Ref][]byte{
		ref(1): thingBytes("one", "x"), ref(2): thingBytes("two", longer), ref(3): thingBytes("three", ""), ref(4): nil,
	})
	var view View
	var kept []said
	for i, want := range []said{thingSays("one", "x"), thingSays("two", longer), thingSays("three", ""), {}} {
		view = FromRef(view, ref(uint32(i+1)), &typeOfThing)
		// The first is fetched when it is read, the others at once.
		if before := i + min(i, 1); *crossings != before {
			t.Fatalf("%d crossings before version %d was read, want %d", *crossings, i+1, before)
		}
		for range 3 {
			got := say(view)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("version %d (-want +got):\n%s", i+1, diff)
			}
			kept = append(kept, got)
		}
		if *crossings != i+1 {
			t.Fatalf("%d crossings after version %d was read", *crossings, i+1)
		}
	}
	// Strings stay as they were, though the memory of the object was used again.
	for i, want := range []said{thingSays("one", "x"), thingSays("two", longer), thingSays("three", "")} {
		if diff := cmp.Diff(want, kept[3*i]); diff != "" {
			t.Errorf("kept strings of version %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// TestWhatIsNotReadIsNotFetched moves objects through the memory of a view, of which
// some are read: one is fetched when it is read, or when the one before was.
func TestWhatIsNotReadIsNotFetched(t *testing.T) {
	ref := func(version uint32) abi.Ref { return abi.MakeRef(version, 7) }
	objects := map[abi.Ref][]byte{}
	for version := range uint32(7) {
		objects[ref(version+1)] = thingBytes("n", "x")
	}
	crossings := serve(t, objects)
	var view View
	for i, test := range []struct {
		read bool
		want int // Crossings so far.
	}{{false, 0}, {false, 0}, {true, 1}, {false, 2}, {false, 2}, {true, 3}, {true, 4}} {
		view = FromRef(view, ref(uint32(i+1)), &typeOfThing)
		if test.read && view.Text(1) != "n" {
			t.Fatalf("version %d is not what it is", i+1)
		}
		if *crossings != test.want {
			t.Errorf("%d crossings after version %d, want %d", *crossings, i+1, test.want)
		}
	}
}

// TestTwoObjectsInTheSameMemory holds that objects in different slots are not
// mistaken for each other, though their versions are the same number.
func TestTwoObjectsInTheSameMemory(t *testing.T) {
	one, two := abi.MakeRef(1, 1), abi.MakeRef(1, 2)
	crossings := serve(t, map[abi.Ref][]byte{one: thingBytes("one", "x"), two: thingBytes("two", "y")})
	view := FromRef(View{}, one, &typeOfThing)
	for i, name := range []string{"one", "one", "two", "one"} {
		ref := one
		if name == "two" {
			ref = two
		}
		view = FromRef(view, ref, &typeOfThing)
		if got := view.Text(1); got != name {
			t.Errorf("%d: the name is %s, want %s", i, got, name)
		}
	}
	if *crossings != 3 {
		t.Errorf("%d crossings, want 3: the same object is not asked for again", *crossings)
	}
}

// TestMarksAreOfAVersion holds that what is noted about a message is not taken for what is so of
// the next version, which lies in the same memory.
func TestMarksAreOfAVersion(t *testing.T) {
	serve(t, map[abi.Ref][]byte{abi.MakeRef(1, 0): thingBytes("one", "x"), abi.MakeRef(2, 0): thingBytes("two", "y")})
	v := FromRef(View{}, abi.MakeRef(1, 0), &typeOfThing)
	first := List[View](v, 4, &typeOfPart)
	if len(first) == 0 {
		t.Fatal("the object has no list")
	}
	for range 2 {
		if mark := first[0].Mark(); *mark != 0 && *mark != 7 {
			t.Errorf("the mark is %d", *mark)
		}
		*first[0].Mark() = 7
	}
	if got := *List[View](v, 4, &typeOfPart)[0].Mark(); got != 7 {
		t.Errorf("the mark is %d in the same version, want 7", got)
	}
	v = FromRef(v, abi.MakeRef(2, 0), &typeOfThing)
	if got := *List[View](v, 4, &typeOfPart)[0].Mark(); got != 0 {
		t.Errorf("the mark is %d in the next version, want 0", got)
	}
	for name, v := range map[string]View{"of the version before": first[0], "of an object": v, "of nothing": {}} {
		if v.Mark() != nil {
			t.Errorf("a view %s has a mark", name)
		}
	}
}

func TestStaleViewsPanic(t *testing.T) {
	serve(t, map[abi.Ref][]byte{abi.MakeRef(1, 0): thingBytes("one", "x"), abi.MakeRef(2, 0): thingBytes("two", "y")})
	first := func() View {
		v := FromRef(View{}, abi.MakeRef(1, 0), &typeOfThing)
		v.Has(1)
		return v
	}
	tests := map[string]func(v, part View){
		"object that was read anew": func(v, _ View) { FromRef(v, abi.MakeRef(2, 0), &typeOfThing).Has(1); v.Has(1) },
		"string":                    func(v, _ View) { v.Text(1) },
		"bytes":                     func(v, _ View) { v.Bytes(1) },
		"value":                     func(v, _ View) { v.Value(1) },
		"nested message":            func(v, _ View) { v.Message(3, &typeOfPart) },
		"element of a list":         func(_, part View) { part.Text(1) },
		"list":                      func(v, _ View) { List[View](v, 4, &typeOfPart) },
		"strings":                   func(v, _ View) { v.Strings(5) },
		"values":                    func(v, _ View) { Values(v, 5, Text) },
		"numbers":                   func(v, _ View) { Ints[int64](v, 2, Varint) },
		"look-up":                   func(v, _ View) { v.StringMap(6).Get("zone") },
		"entries":                   func(v, _ View) { v.StringMap(6).Len() },
		"look-up of values":         func(v, _ View) { MapOf(v, 6, Text).Get("zone") },
		"look-up of messages":       func(v, _ View) { MessageMapOf[View](v, 6, &typeOfPart).Get("zone") },
	}
	for name, use := range tests {
		t.Run(name, func(t *testing.T) {
			v := first()
			part := List[View](first(), 4, &typeOfPart)[0]
			FromRef(v, abi.MakeRef(2, 0), &typeOfThing)
			FromRef(View{m: &part.m.object.root}, abi.MakeRef(2, 0), &typeOfThing)
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, "after its object had changed") {
					t.Errorf("got panic %q", r)
				}
			}()
			use(v, part)
		})
	}
	t.Run("what was read before stays", func(t *testing.T) {
		v := first()
		zone, name := v.StringMap(6).Get("zone"), v.Text(1)
		FromRef(v, abi.MakeRef(2, 0), &typeOfThing)
		if got := v.Text(1); got != name {
			t.Errorf("name %q, was %q", got, name)
		}
		if got := v.StringMap(6).Get("zone"); got != zone {
			t.Errorf("zone %q, was %q", got, zone)
		}
	})
}

// TestANewVersionMakesNoGarbage holds that all but the slices of views that are
// handed out is used again: a string that stays the same, too.
func TestANewVersionMakesNoGarbage(t *testing.T) {
	raw := thingBytes("n", "value")
	native := hostObject
	defer func() { hostObject = native }()
	hostObject = func(_ abi.Ref, buf []byte) uint32 {
		if len(buf) >= len(raw) {
			copy(buf, raw)
		}
		return uint32(len(raw))
	}
	var v View
	version := uint32(0)
	allocs := testing.AllocsPerRun(100, func() {
		version++
		v = FromRef(v, abi.MakeRef(version, 0), &typeOfThing)
		v.Text(1)
		v.StringMap(6).Get("zone")
		List[View](v, 4, &typeOfPart)
	})
	if allocs > 1 {
		t.Errorf("%v allocations for a version, want 1", allocs)
	}
}
