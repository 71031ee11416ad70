package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/json"
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

// indexOf returns what tells the index of a document, as a host does.
func indexOf(doc []byte) func(room []uint64) int {
	return func(room []uint64) int { return json.Index(doc, room) }
}

func TestAnIndexThatIsThereIsUsed(t *testing.T) {
	defer Return()
	object := requestJSON("x", strings.Repeat("n", 200), 9)
	for _, again := range []bool{false, true} {
		asked := 0
		Lend(Loan{JSON: object, Again: again, Index: func(room []uint64) int {
			asked++
			return indexOf(object)(room)
		}})
		got := readRequest(FromJSON(object, &typeOfRequest))
		Return()
		if diff := cmp.Diff(readRequest(FromJSON(object, &typeOfRequest)), got); diff != "" || asked != 1 {
			t.Errorf("again %t: asked %d times, read (-without index +got):\n%s", again, asked, diff)
		}
	}
}

func TestWhatWasLentIsReadLikeAnythingElse(t *testing.T) {
	defer Return()
	var got, want [][]string
	for i := range 20 {
		name := strings.Repeat("x", i*7%11) + fmt.Sprint(i)
		object := requestJSON(name, strings.Repeat("\n", i%3), i%5)
		old := requestJSON("old-"+name, "", (i+2)%7)
		want = append(want, readRequest(FromJSON(bytes.Clone(object), &typeOfRequest)), readRequest(FromJSON(bytes.Clone(old), &typeOfRequest)))
		Lend(Loan{JSON: object, Again: true, Index: indexOf(object)})
		Lend(Loan{JSON: old, Again: true})
		views := []View{FromJSON(object, &typeOfRequest), FromJSON(old, &typeOfRequest), FromJSON(object, &typeOfPiece)}
		got = append(got, readRequest(views[0]), readRequest(views[1]))
		if views[2].Text(1) != name {
			t.Errorf("the name of another type's view is %q, want %q", views[2].Text(1), name)
		}
		if again := FromJSON(object, &typeOfRequest); again != views[0] {
			t.Error("a view that was made again in the same loan is another one")
		}
		Return()
		clear(object) // Somebody else's from here on.
		clear(old)
	}
	// Strings stay as they were, though the memory of the views was used again.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is read (-not lent +lent):\n%s", diff)
	}
}

func TestStringsOfAPartOfWhatWasLentStay(t *testing.T) {
	defer Return()
	raw := []byte(`{"part":{"name":"of the part","labels":{"a":"b"}}}`)
	Lend(Loan{JSON: raw, Again: true})
	part := FromJSON(FromJSON(raw, &typeOfRequest).Value(3).Raw, &typeOfRequest)
	got := []string{part.Text(1), part.StringMap(2).Get("a")}
	clear(raw)
	if diff := cmp.Diff([]string{"of the part", "b"}, got); diff != "" {
		t.Errorf("strings that were kept (-want +got):\n%s", diff)
	}
}

func TestViewsOfWhatWasLentGoStale(t *testing.T) {
	defer Return()
	first := requestJSON("first", "", 3)
	Lend(Loan{JSON: first, Again: true})
	kept := FromJSON(first, &typeOfRequest)
	parts := List[View](kept, 4, &typeOfPiece)
	kept.Text(1)
	Return()
	second := requestJSON("second", "", 3)
	Lend(Loan{JSON: second, Again: true})
	if got := FromJSON(second, &typeOfRequest).Text(1); got != "second" {
		t.Fatalf("the name is %q", got)
	}
	for name, read := range map[string]func(){
		"a view":                func() { kept.Text(1) },
		"a view of a part":      func() { parts[2].Text(1) },
		"a map":                 func() { kept.StringMap(2).Get("l1") },
		"a part that was never": func() { kept.Message(3, &typeOfPiece) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "keep strings of an object, not views") {
					t.Errorf("%s of an earlier loan: panic %v", name, r)
				}
			}()
			read()
		}()
	}
}

func TestViewsOfWhatWasNotLentStay(t *testing.T) {
	defer Return()
	own := FromJSON(requestJSON("own", "", 1), &typeOfRequest)
	for i := range 3 {
		raw := requestJSON(fmt.Sprint(i), "", 1)
		Lend(Loan{JSON: raw, Again: true})
		FromJSON(raw, &typeOfRequest).Text(1)
		Return()
	}
	if got := own.Text(1); got != "own" {
		t.Errorf("the name is %q", got)
	}
}

func TestWhatIsLentAgainAllocatesNothing(t *testing.T) {
	defer Return()
	raw := requestJSON("name", "", 5)
	if n := testing.AllocsPerRun(100, func() {
		Lend(Loan{JSON: raw, Again: true})
		v := FromJSON(raw, &typeOfRequest)
		if v.Text(1) == "" || v.StringMap(2).Get("l3") == "" || v.Message(3, &typeOfPiece).Text(1) == "" {
			t.Fatal("something is missing")
		}
		Return()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
