package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	typeOfPiece   = Type{Names: []string{1: "name", 2: "size"}}
	typeOfRequest = Type{Names: []string{1: "name", 2: "labels", 3: "part", 4: "parts", 5: "note"}}
)

// requestJSON has n labels and parts; note is there only if it is not empty.
func requestJSON(name, note string, n int) []byte {
	var labels, parts []string
	for i := range n {
		labels = append(labels, fmt.Sprintf(`"l%d":"%s-%d"`, i, name, i))
		parts = append(parts, fmt.Sprintf(`{"name":"%s-part-%d","size":%d}`, name, i, i))
	}
	if note != "" {
		note = fmt.Sprintf(`,"note":%q`, note)
	}
	return fmt.Appendf(nil, `{"name":%q,"labels":{%s},"part":{"name":"%s-only"},"parts":[%s]%s}`,
		name, strings.Join(labels, ","), name, strings.Join(parts, ","), note)
}

// readRequest returns all that there is in a request.
func readRequest(v View) []string {
	out := []string{v.Text(1), v.Text(5), v.Message(3, &typeOfPiece).Text(1)}
	for _, key := range []string{"l0", "l1", "l9"} {
		value, ok := v.StringMap(2).Lookup(key)
		out = append(out, fmt.Sprint(key, "=", value, ok))
	}
	for _, part := range List[View](v, 4, &typeOfPiece) {
		out = append(out, fmt.Sprint(part.Text(1), part.Int64(2)))
	}
	return out
}

func TestAnObjectInASlotIsReadLikeAnyOther(t *testing.T) {
	defer CloseSlots()
	var object, old Slot
	var got, want [][]string
	for i := range 20 {
		name := strings.Repeat("x", i*7%11) + fmt.Sprint(i)
		first := requestJSON(name, strings.Repeat("\n", i%3), i%5)
		second := requestJSON("old-"+name, "", (i+2)%7)
		want = append(want, readRequest(FromJSON(bytes.Clone(first), &typeOfRequest)), readRequest(FromJSON(bytes.Clone(second), &typeOfRequest)))
		object.Put(first, nil)
		old.Put(second, nil)
		views := []View{FromJSON(first, &typeOfRequest), FromJSON(second, &typeOfRequest)}
		got = append(got, readRequest(views[0]), readRequest(views[1]))
		if again := FromJSON(first, &typeOfRequest); again != views[0] {
			t.Error("the second view of an object is another one")
		}
		if other := FromJSON(first, &typeOfPiece); other.Text(1) != name || views[0].Text(1) != name {
			t.Errorf("the name by another type is %q, by the first one %q, want %q", other.Text(1), views[0].Text(1), name)
		}
		CloseSlots()
	}
	// Strings stay as they were, though the memory of the views was used again.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is read (-alone +in a slot):\n%s", diff)
	}
}

func TestViewsOfASlotGoStaleWithTheNextObject(t *testing.T) {
	defer CloseSlots()
	var slot Slot
	first, second := requestJSON("first", "", 3), requestJSON("second", "", 3)
	slot.Put(first, nil)
	kept := FromJSON(first, &typeOfRequest)
	parts := List[View](kept, 4, &typeOfPiece)
	kept.Text(1)
	slot.Put(second, nil)
	if got := FromJSON(second, &typeOfRequest).Text(1); got != "second" {
		t.Fatalf("the name is %q", got)
	}
	for name, read := range map[string]func(){
		"a view":                          func() { kept.Text(1) },
		"a view of a part":                func() { parts[2].Text(1) },
		"a map":                           func() { kept.StringMap(2).Get("l1") },
		"a part that was not read before": func() { kept.Message(3, &typeOfPiece) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "keep strings of an object, not views") {
					t.Errorf("%s of the object before: panic %v", name, r)
				}
			}()
			read()
		}()
	}
}

func TestViewsOfNoSlotStay(t *testing.T) {
	defer CloseSlots()
	var slot Slot
	own := FromJSON(requestJSON("own", "", 1), &typeOfRequest)
	for i := range 3 {
		raw := requestJSON(fmt.Sprint(i), "", 1)
		slot.Put(raw, nil)
		FromJSON(raw, &typeOfRequest).Text(1)
		CloseSlots()
	}
	if got := own.Text(1); got != "own" {
		t.Errorf("the name is %q", got)
	}
}

func TestTheNextViewOfASlotAllocatesNothing(t *testing.T) {
	defer CloseSlots()
	var slot Slot
	objects := [][]byte{requestJSON("name", "", 5), requestJSON("other", "", 5)}
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		i++
		raw := objects[i%2]
		slot.Put(raw, nil)
		v := FromJSON(raw, &typeOfRequest)
		if v.Text(1) == "" || v.StringMap(2).Get("l3") == "" || v.Message(3, &typeOfPiece).Text(1) == "" {
			t.Fatal("something is missing")
		}
		CloseSlots()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
