package json_test

import (
	stdjson "encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/testkit/documents"
)

// decode reads a whole document with this package, into what encoding/json
// makes of it with UseNumber.
func decode(v json.Value, depth int) (any, error) {
	malformed := errors.New("malformed")
	if depth > json.MaxDepth {
		return nil, malformed
	}
	switch v.Kind() {
	case json.KindNull:
		if !v.IsNull() {
			return nil, malformed
		}
		return nil, nil
	case json.KindBool:
		b, ok := v.Bool()
		if !ok {
			return nil, malformed
		}
		return b, nil
	case json.KindNumber:
		f, ok := v.Float64()
		if !ok && !math.IsInf(f, 0) {
			return nil, malformed
		}
		return stdjson.Number(strings.TrimSpace(string(v))), nil
	case json.KindString:
		s, ok := v.Text()
		if !ok {
			return nil, malformed
		}
		return s, nil
	case json.KindArray:
		list := []any{}
		it := json.Array(v)
		for it.Next() {
			x, err := decode(it.Value(), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		if it.Malformed() {
			return nil, malformed
		}
		return list, nil
	case json.KindObject:
		object := map[string]any{}
		it := json.Object(v)
		for it.Next() {
			x, err := decode(it.Value(), depth+1)
			if err != nil {
				return nil, err
			}
			object[it.Key()] = x
		}
		if it.Malformed() {
			return nil, malformed
		}
		return object, nil
	}
	return nil, malformed
}

func pod(tb testing.TB) []byte {
	b, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestReadsWhatEncodingJSONReads(t *testing.T) {
	for _, doc := range append(documents.JSON(), string(pod(t)), strings.Repeat("[", 100), strings.Repeat("[", 100)+strings.Repeat("]", 100)) {
		check(t, []byte(doc))
	}
}

func FuzzRead(f *testing.F) {
	for _, doc := range documents.JSON() {
		f.Add([]byte(doc))
	}
	f.Add(pod(f))
	f.Fuzz(func(t *testing.T, doc []byte) { check(t, doc) })
}

func check(t *testing.T, doc []byte) {
	t.Helper()
	valid := stdjson.Valid(doc)
	if got := json.Valid(doc); got != valid {
		t.Fatalf("Valid(%q) = %v, encoding/json: %v", doc, got, valid)
	}
	got, err := decode(doc, 1)
	if (err == nil) != valid {
		t.Fatalf("walk over %q: error %v, encoding/json says valid: %v", doc, err, valid)
	}
	if !valid {
		return
	}
	var want any
	d := stdjson.NewDecoder(strings.NewReader(string(doc)))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	// Not cmp, whose time doubles with each level of nesting.
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("walk over %q:\nwant %#v\ngot  %#v", doc, want, got)
	}
	var (
		wantInt   int64
		wantUint  uint64
		wantFloat float64
		wantText  string
		wantBool  bool
	)
	v := json.Value(doc)
	isNull := v.IsNull()
	agree(t, doc, "Int64", stdjson.Unmarshal(doc, &wantInt) == nil && !isNull, wantInt, v.Int64)
	agree(t, doc, "Uint64", stdjson.Unmarshal(doc, &wantUint) == nil && !isNull, wantUint, v.Uint64)
	agree(t, doc, "Float64", stdjson.Unmarshal(doc, &wantFloat) == nil && !isNull, wantFloat, v.Float64)
	agree(t, doc, "Text", stdjson.Unmarshal(doc, &wantText) == nil && !isNull, wantText, v.Text)
	agree(t, doc, "Bool", stdjson.Unmarshal(doc, &wantBool) == nil && !isNull, wantBool, v.Bool)
}

func agree[T comparable](t *testing.T, doc []byte, method string, wantOK bool, want T, read func() (T, bool)) {
	t.Helper()
	got, ok := read()
	if ok != wantOK || ok && got != want {
		t.Fatalf("%s of %q = %v, %v; encoding/json: %v, %v", method, doc, got, ok, want, wantOK)
	}
}

// A view walks over a part only, and so may be given anything in between.
func FuzzHostile(f *testing.F) {
	for _, doc := range documents.JSON() {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		// A copy without spare capacity, so that a read beyond the end panics.
		doc = append(make([]byte, 0, len(doc)), doc...)
		m := json.Object(doc)
		for n := 0; m.Next(); n++ {
			if n > len(doc) {
				t.Fatal("more members than bytes")
			}
			if len(m.Value()) == 0 {
				t.Fatalf("member %q of %q has an empty value", m.Key(), doc)
			}
			m.Value().IsNull()
		}
		if m.Next() || m.Value() != nil {
			t.Fatal("the walk goes on after its end")
		}
		e := json.Array(doc)
		for e.Next() {
			_ = e.Value().String()
		}
		json.Value(doc).Float64()
		compareWalker(t, doc)
	})
}

func TestDeepNestingIsSkippedInALoop(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	closed := deep + strings.Repeat("]", 100_000)

	m := json.Object([]byte(`{"deep":` + closed + `,"after":1}`))
	var keys []string
	for m.Next() {
		keys = append(keys, m.Key())
	}
	if diff := cmp.Diff([]string{"deep", "after"}, keys); diff != "" || m.Malformed() {
		t.Errorf("keys (-want +got), malformed %v:\n%s", m.Malformed(), diff)
	}
	for _, doc := range []string{deep, `{"a":` + deep, strings.Repeat(`{"a":`, 100_000)} {
		m := json.Object([]byte(doc))
		e := json.Array([]byte(doc))
		if m.Next() || !m.Malformed() || e.Next() || !e.Malformed() {
			t.Errorf("%.10q… of %d bytes is not malformed", doc, len(doc))
		}
	}
	if json.Valid([]byte(closed)) {
		t.Error("100,000 levels are valid")
	}
}

func TestNothingAndNullHaveNoMembers(t *testing.T) {
	for _, doc := range []string{"", "  ", "null", " null\n"} {
		m, e := json.Object([]byte(doc)), json.Array([]byte(doc))
		if m.Next() || m.Malformed() || e.Next() || e.Malformed() {
			t.Errorf("%q has members or is malformed", doc)
		}
		if !json.Value(doc).IsNull() {
			t.Errorf("%q is not null", doc)
		}
	}
	for _, doc := range []string{"1", `"x"`, "true", "nul", "x"} {
		m, e := json.Object([]byte(doc)), json.Array([]byte(doc))
		if m.Next() || !m.Malformed() || e.Next() || !e.Malformed() {
			t.Errorf("%q is an object or an array", doc)
		}
	}
}

func TestPlainStringsShareTheDocument(t *testing.T) {
	doc := []byte(`{"key":"value","ö":"Grüße"}`)
	if n := testing.AllocsPerRun(100, func() {
		for m := json.Object(doc); m.Next(); {
			if m.Key() == "" || m.Value().String() == "" {
				t.Fatal("empty")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestKindNames(t *testing.T) {
	got := map[string]string{}
	for _, doc := range []string{"", "null", "true", "-1", `"s"`, "[1]", "{}", "?"} {
		got[doc] = json.Value(" " + doc).Kind().String()
	}
	want := map[string]string{"": "nothing", "null": "null", "true": "bool", "-1": "number", `"s"`: "string", "[1]": "array", "{}": "object", "?": "nothing"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if got := json.Kind(9).String(); got != "kind(9)" {
		t.Errorf("Kind(9) is %q", got)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x1f", "äöü€😀", "\xff\xc3", "\u2028\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc := json.AppendString([]byte("x"), s)[1:]
		if other := json.AppendString(nil, []byte(s)); string(other) != string(doc) {
			t.Fatalf("of a string %q, of bytes %q", doc, other)
		}
		var got string
		if err := stdjson.Unmarshal(doc, &got); err != nil {
			t.Fatalf("AppendString(%q) = %q: %v", s, doc, err)
		}
		if want := strings.ToValidUTF8(s, "\x00"); strings.Count(want, "\x00") == strings.Count(s, "\x00") && got != s {
			t.Fatalf("AppendString(%q) = %q, which reads as %q", s, doc, got)
		}
		if !utf8.Valid(doc) {
			t.Fatalf("AppendString(%q) = %q is not UTF-8", s, doc)
		}
		if back, ok := json.Value(doc).Text(); !ok || back != got {
			t.Fatalf("Text of %q = %q, %v; encoding/json: %q", doc, back, ok, got)
		}
	})
}

func BenchmarkSkip(b *testing.B) {
	doc := pod(b)
	list := append(append([]byte("["), doc...), ']')
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		e := json.Array(list)
		for e.Next() {
		}
		if e.Malformed() {
			b.Fatal("malformed")
		}
	}
}

// BenchmarkPodFields reads what a policy reads: the name, a label, every image.
func BenchmarkPodFields(b *testing.B) {
	doc := pod(b)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		var metadata, spec, labels, containers json.Value
		for m := json.Object(doc); m.Next(); {
			switch m.Key() {
			case "metadata":
				metadata = m.Value()
			case "spec":
				spec = m.Value()
			}
		}
		for m := json.Object(metadata); m.Next(); {
			if m.Key() == "labels" {
				labels = m.Value()
			}
		}
		found := 0
		for m := json.Object(labels); m.Next(); {
			if m.Key() == "app" {
				found++
			}
		}
		for m := json.Object(spec); m.Next(); {
			if m.Key() == "containers" {
				containers = m.Value()
			}
		}
		for c := json.Array(containers); c.Next(); {
			for m := json.Object(c.Value()); m.Next(); {
				if m.Key() == "image" && m.Value().String() != "" {
					found++
				}
			}
		}
		if found != 3 {
			b.Fatal(found)
		}
	}
}

func BenchmarkValid(b *testing.B) {
	doc := pod(b)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if !json.Valid(doc) {
			b.Fatal("invalid")
		}
	}
}

func BenchmarkValidIndex(b *testing.B) {
	doc := pod(b)
	index := make([]uint64, 512)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if ok, n := json.ValidIndex(doc, index, 0); !ok || n == 0 {
			b.Fatal("invalid, or without index")
		}
	}
}
