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
	d := newThing()
	var kept []said
	for i, want := range []said{thingSays("one", "x"), thingSays("two", longer), thingSays("three", ""), {}} {
		version := d.SetRef(ref(uint32(i + 1)))
		if *crossings != i {
			t.Fatalf("%d crossings before version %d was read", *crossings, version)
		}
		for range 3 {
			got := d.say(version)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("version %d (-want +got):\n%s", version, diff)
			}
			kept = append(kept, got)
		}
		if *crossings != i+1 {
			t.Fatalf("%d crossings after version %d was read", *crossings, version)
		}
	}
	// Strings stay as they were, though the memory of the object was used again.
	for i, want := range []said{thingSays("one", "x"), thingSays("two", longer), thingSays("three", "")} {
		if diff := cmp.Diff(want, kept[3*i]); diff != "" {
			t.Errorf("kept strings of version %d (-want +got):\n%s", i+1, diff)
		}
	}
}

func TestStaleViewsPanic(t *testing.T) {
	serve(t, map[abi.Ref][]byte{abi.MakeRef(1, 0): thingBytes("one", "x"), abi.MakeRef(2, 0): thingBytes("two", "y")})
	tests := map[string]func(d *thing, p *part){
		"object":                  func(d *thing, _ *part) { d.say(1) },
		"field that was not read": func(d *thing, _ *part) { d.Text(&d.fields[1]) },
		"nested message":          func(d *thing, _ *part) { d.nested.at(1) },
		"element of a list":       func(_ *thing, p *part) { p.Text(&p.fields[1]) },
		"element, in place":       func(_ *thing, p *part) { p.Current() },
		"list":                    func(d *thing, _ *part) { d.names.Of(&d.Message, &d.fields[5]) },
		"look-up":                 func(d *thing, _ *part) { d.labels.Lookup(1, "zone") },
		"entries":                 func(d *thing, _ *part) { d.labels.Entries(1) },
	}
	for name, use := range tests {
		t.Run(name, func(t *testing.T) {
			d := newThing()
			d.at(d.SetRef(abi.MakeRef(1, 0)))
			p := d.parts.Make(&d.Message, &d.fields[4], newPart)[0].at(1)
			d.SetRef(abi.MakeRef(2, 0))
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, "after its object had changed") {
					t.Errorf("got panic %q", r)
				}
			}()
			use(d, p)
		})
	}
	t.Run("what was read before stays", func(t *testing.T) {
		d := newThing()
		d.at(d.SetRef(abi.MakeRef(1, 0)))
		d.labels.Lookup(1, "zone")
		name := d.Text(&d.fields[1])
		d.SetRef(abi.MakeRef(2, 0))
		if got := d.Text(&d.fields[1]); got != name {
			t.Errorf("name %q, was %q", got, name)
		}
		if zone, ok := d.labels.Lookup(1, "zone"); zone != "a" || !ok {
			t.Errorf("zone %q, was a", zone)
		}
	})
}

// TestANewVersionMakesNoGarbage holds that all but the strings and slices of
// views that are handed out is used again.
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
	d, version := newThing(), uint32(0)
	allocs := testing.AllocsPerRun(100, func() {
		version++
		d.at(d.SetRef(abi.MakeRef(version, 0)))
		d.Text(&d.fields[1])
		d.labels.Lookup(version, "zone")
		d.parts.Make(&d.Message, &d.fields[4], newPart)
	})
	if allocs > 3 { // The name, the zone and the slice.
		t.Errorf("%v allocations for a version, want 3", allocs)
	}
}
