package jsonpatch_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// spent runs f and returns what it told its Pay, and the bytes that it allocated.
func spent(f func(pay jsonpatch.Pay)) (work, allocated int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f(func(n int) error { work += n; return nil })
	runtime.ReadMemStats(&after)
	return work, int(after.TotalAlloc - before.TotalAlloc)
}

// nested returns text in depth objects.
func nested(depth int, text string) string {
	return strings.Repeat(`{"a":`, depth) + text + strings.Repeat(`}`, depth)
}

// members returns an object whose n members are made by f.
func members(n int, f func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = f(i)
	}
	return "{" + strings.Join(list, ",") + "}"
}

func zeros(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }

// hostilePairs are documents whose difference is dear, or long when it is written as
// an operation for each value.
var hostilePairs = []struct{ name, from, to string }{
	{
		"a long key on the way to many values",
		`{"spec":{"` + strings.Repeat("k", 250_000) + `":` + zeros(10_000) + `}}`,
		`{"spec":{"` + strings.Repeat("k", 250_000) + `":` + strings.ReplaceAll(zeros(10_000), "0", "1") + `}}`,
	},
	{
		"long keys one below the other",
		`{"spec":` + strings.Repeat(`{"`+strings.Repeat("k", 1000)+`":`, 200) + members(2000, func(i int) string { return fmt.Sprintf(`"%d":0`, i) }) + strings.Repeat(`}`, 200) + `}`,
		`{"spec":` + strings.Repeat(`{"`+strings.Repeat("k", 1000)+`":`, 200) + members(2000, func(i int) string { return fmt.Sprintf(`"%d":1`, i) }) + strings.Repeat(`}`, 200) + `}`,
	},
	{"keys that are escaped twice", `{"spec":{}}`, `{"spec":` + members(9000, func(i int) string { return fmt.Sprintf(`"%s%d":0`, strings.Repeat(`\u0001~/`, 10), i) }) + `}`},
	{"deep objects with much at the bottom", `{"spec":` + nested(9000, `"`+strings.Repeat("x", 1<<18)+`"`) + `}`, `{"spec":` + nested(9000, `"`+strings.Repeat("y", 1<<18)+`"`) + `}`},
	{"deep objects that are written another way", nested(5000, zeros(1<<15)), nested(5000, strings.ReplaceAll(zeros(1<<15), ",", ", "))},
	{"deep lists of other lengths", strings.Repeat("[[],", 3000) + "0" + strings.Repeat("]", 3000), strings.Repeat("[", 3000) + "0" + strings.Repeat("]", 3000)},
	{"a list that becomes empty", `{"a":` + zeros(1<<18) + `}`, `{"a":[]}`},
	{"a list that is filled", `{"a":[]}`, `{"a":` + zeros(1<<18) + `}`},
	{"a root of many members that go", members(20_000, func(i int) string { return fmt.Sprintf(`"%d":0`, i) }), `{}`},
	{"a root of many members that change", members(20_000, func(i int) string { return fmt.Sprintf(`"%d":0`, i) }), members(20_000, func(i int) string { return fmt.Sprintf(`"%d":1`, i) })},
	{"one member that occurs again and again", "{" + strings.Repeat(`"a":0,`, 1<<16) + `"a":0}`, "{" + strings.Repeat(`"a":1,`, 1<<16) + `"a":1}`},
	{"lists of lists without an end in common", "[" + strings.Repeat(zeros(500)+",", 500) + "1]", "[2," + strings.Repeat(zeros(500)+",", 500) + "0]"},
}

// Whatever the documents are, a difference takes work, memory and a patch in
// proportion to their length.
func TestDiffIsBoundedByItsDocuments(t *testing.T) {
	for _, pair := range hostilePairs {
		t.Run(pair.name, func(t *testing.T) {
			from, to := []byte(pair.from), []byte(pair.to)
			var patch []byte
			work, allocated := spent(func(pay jsonpatch.Pay) {
				var err error
				if patch, err = pay.Diff(from, to); err != nil {
					t.Fatal(err)
				}
			})
			size := len(from) + len(to)
			if limit := 64*size + 4<<20; work > limit {
				t.Errorf("the work is %d for %d bytes, more than %d", work, size, limit)
			}
			if limit := 64*size + 4<<20; allocated > limit {
				t.Errorf("%d bytes were allocated for %d, more than %d", allocated, size, limit)
			}
			checkPatch(t, from, to, patch)
		})
	}
}

// checkPatch checks that a patch of Diff is short, and makes to of from.
func checkPatch(t *testing.T, from, to, patch []byte) {
	t.Helper()
	if limit := len(to) + jsonpatch.MaxExcess; len(patch) > limit {
		t.Errorf("the patch has %d bytes, more than %d", len(patch), limit)
	}
	got := from
	if patch != nil {
		var err error
		if got, err = jsonpatch.Apply(from, patch); err != nil {
			t.Fatalf("patch %.200s: %v", patch, err)
		}
	}
	if !jsonpatch.Equal(got, to) {
		t.Errorf("patch %.200s\nmakes %.200s\nwant %.200s", patch, got, to)
	}
}

func TestDiffReplacesMembersOfTheRootWhenDetailsAreTooMany(t *testing.T) {
	from := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":` + zeros(10_001) + `}`
	to := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{}},"data":` + strings.ReplaceAll(zeros(10_001), "0", "1") + `}`
	want := `[{"op":"replace","path":"/metadata","value":{"name":"a","labels":{}}},{"op":"replace","path":"/data","value":` + strings.ReplaceAll(zeros(10_001), "0", "1") + `}]`
	if got := jsonpatch.Diff([]byte(from), []byte(to)); string(got) != want {
		t.Errorf("Diff = %.300s\nwant %.300s", got, want)
	}
}

func TestEqualIsBoundedByItsValues(t *testing.T) {
	for _, pair := range hostilePairs {
		t.Run(pair.name, func(t *testing.T) {
			work, allocated := spent(func(pay jsonpatch.Pay) {
				// A value is itself, however long it takes to see.
				if equal, err := pay.Equal(json.Value(pair.from), json.Value(pair.from)); !equal || err != nil {
					t.Errorf("Equal = %t, %v", equal, err)
				}
				if _, err := pay.Equal(json.Value(pair.from), json.Value(pair.to)); err != nil {
					t.Error(err)
				}
			})
			if limit := 64*(len(pair.from)+len(pair.to)) + 4<<20; work > limit || allocated > limit {
				t.Errorf("the work is %d, and %d bytes were allocated: more than %d", work, allocated, limit)
			}
		})
	}
}

// hostilePatches cost far more than they are long, unless that is bounded.
var hostilePatches = []struct{ name, document, patch, want string }{
	{"copies of copies", `{"a":["` + strings.Repeat("x", 1<<20) + `"]}`, operations(100, `{"op":"copy","from":"/a","path":"/a/-"}`), "copies more than 3145728 bytes"},
	{"copies of text that HTML escapes", `{"a":"` + strings.Repeat("<", 1<<20) + `"}`, operations(100, `{"op":"copy","from":"/a","path":"/b"}`), "copies more than 3145728 bytes"},
	{"elements at the head of a long list", zeros(300_000), operations(10_000, `{"op":"add","path":"/0","value":1}`), "too much work"},
	{"elements that leave the head of a long list", zeros(300_000), operations(10_000, `{"op":"remove","path":"/0"}`), "too much work"},
	{"elements that move from end to end", zeros(300_000), operations(10_000, `{"op":"move","from":"/299999","path":"/0"}`), "too much work"},
	{"tests of a long document that was taken apart", `{"a":` + zeros(1<<20) + `,"b":0}`, operations(10_000, `{"op":"replace","path":"/b","value":0},{"op":"test","path":"/b","value":0},{"op":"test","path":"","value":{}}`), "value is another one"},
	{
		"tests that hold, of a long document that was taken apart", `{"a":"` + strings.Repeat("x", 1<<18) + `","b":0}`,
		operations(20, `{"op":"replace","path":"/b","value":0},{"op":"test","path":"","value":{"a":"`+strings.Repeat("x", 1<<18)+`","b":0}}`), "",
	},
	{"tests of deep values", nested(9000, zeros(1<<15)), `[{"op":"test","path":"/a","value":` + nested(8999, strings.ReplaceAll(zeros(1<<15), ",", ", ")) + `}]`, "too much work"},
	{"a path to the bottom of a deep document", nested(9900, `"`+strings.Repeat("x", 1<<18)+`"`), `[{"op":"add","path":"` + strings.Repeat("/a", 9900) + `","value":1}]`, "too much work"},
	{"a document of many small values", zeros(3 << 20), `[{"op":"add","path":"/0","value":1}]`, "too much work"},
	{"many such lists, one after the other", "[" + strings.Repeat(zeros(1<<16)+",", 40) + "0]", everyList(40), "too much work"},
	{"an operation with a long name", `{}`, `[{"op":"` + strings.Repeat("x", 1<<20) + `","path":"/a"}]`, "op is none of RFC 6902"},
	{"a long place to take from", `{}`, `[{"op":"move","from":"/` + strings.Repeat("x", 1<<20) + `","path":"/a"}]`, "no such value"},
	{"a document that becomes too long", `{"a":"` + strings.Repeat("x", 5<<20) + `"}`, `[{"op":"add","path":"/b","value":"` + strings.Repeat("x", 4<<20) + `"}]`, "bytes, more than 8388608"},
	{"a document that becomes too deep", nested(6000, "0"), `[{"op":"add","path":"` + strings.Repeat("/a", 20) + `","value":` + nested(9990, "0") + `}]`, "nested too deeply"},
}

// operations returns a patch of one operation n times.
func operations(n int, operation string) string {
	return "[" + strings.Repeat(operation+",", n-1) + operation + "]"
}

func everyList(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"op":"replace","path":"/%d/0","value":1}`, i)
	}
	return "[" + strings.Join(list, ",") + "]"
}

// Whatever a patch asks for, it takes work and memory within a bound, and what it
// says of itself is short.
func TestApplyIsBounded(t *testing.T) {
	for _, test := range hostilePatches {
		t.Run(test.name, func(t *testing.T) {
			var got []byte
			var err error
			work, allocated := spent(func(pay jsonpatch.Pay) { got, err = pay.Apply([]byte(test.document), []byte(test.patch)) })
			if err == nil && test.want != "" || err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Apply = %.100s, %.300v\nwant %q", got, err, test.want)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if len(got) > jsonpatch.MaxBytes {
				t.Errorf("the document has %d bytes", len(got))
			}
			// The last operation may go beyond what is left, by what it is about.
			if limit := 1_000_000_000 + 600*len(test.document); work > limit {
				t.Errorf("the work is %d, more than %d", work, limit)
			}
			if limit := 400 << 20; allocated > limit {
				t.Errorf("%d bytes were allocated, more than %d", allocated, limit)
			}
		})
	}
}

func TestOperationsEndWhenTheirPayDoes(t *testing.T) {
	stop := errors.New("no more")
	a, b := []byte(nested(2000, zeros(1<<12))), []byte(nested(2000, strings.ReplaceAll(zeros(1<<12), "0", "1")))
	for name, f := range map[string]func(pay jsonpatch.Pay) error{
		"apply": func(pay jsonpatch.Pay) error {
			_, err := pay.Apply(a, []byte(`[{"op":"remove","path":"`+strings.Repeat("/a", 2000)+`"}]`))
			return err
		},
		"diff":  func(pay jsonpatch.Pay) error { _, err := pay.Diff(a, b); return err },
		"equal": func(pay jsonpatch.Pay) error { _, err := pay.Equal(a, b); return err },
	} {
		calls := 0
		err := f(func(int) error { calls++; return stop })
		if !errors.Is(err, stop) || calls != 1 {
			t.Errorf("%s = %v after %d calls, want %v after one", name, err, calls, stop)
		}
	}
}

// FuzzDiff: a patch leads from the one document to the other, and is not much longer
// than that.
func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"d"}`), []byte(`{"c":"d","a":[{"b":[]},2,1]}`))
	f.Add([]byte(`{"":{"~":1,"/":2}}`), []byte(`{"":{"~":"\u0000","\u002f":2.0}}`))
	f.Add([]byte(`[[[0]],[1],2]`), []byte(`[[1],2,{"a":3}]`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2}`))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		if !json.Valid(from) || !json.Valid(to) {
			return
		}
		work, _ := spent(func(pay jsonpatch.Pay) {
			patch, err := pay.Diff(from, to)
			if err != nil {
				t.Fatal(err)
			}
			checkPatch(t, from, to, patch)
		})
		if limit := 64*(len(from)+len(to)) + 4<<20; work > limit {
			t.Errorf("the work is %d for %d and %d bytes", work, len(from), len(to))
		}
	})
}
