package jsonpatch_test

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	upstream "gopkg.in/evanphx/json-patch.v4"

	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// value decodes JSON, so that documents are compared by what they say.
func value(t testing.TB, raw []byte) any {
	t.Helper()
	var v any
	d := stdjson.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func TestApply(t *testing.T) {
	const document = `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":"y"}`
	tests := []struct{ name, patch, want string }{
		{"an empty patch changes nothing", `[]`, document},
		{"add a member", `[{"op":"add","path":"/a/z","value":[ 1 ]}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true,"z":[ 1 ]},"x":"y"}`},
		{"add replaces a member", `[{"op":"add","path":"/x","value":1}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":1}`},
		{"add puts an element in between", `[{"op":"add","path":"/a/b/1","value":7}]`, `{"a":{"b":[1,7,2,{"c":"d"}],"e/f":null,"m~n":true},"x":"y"}`},
		{"add puts an element at the end", `[{"op":"add","path":"/a/b/-","value":7},{"op":"add","path":"/a/b/4","value":8}]`, `{"a":{"b":[1,2,{"c":"d"},7,8],"e/f":null,"m~n":true},"x":"y"}`},
		{"escaped names", `[{"op":"replace","path":"/a/e~1f","value":1},{"op":"remove","path":"/a/m~0n"}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":1},"x":"y"}`},
		{"remove an element", `[{"op":"remove","path":"/a/b/0"},{"op":"remove","path":"/a/b/0"}]`, `{"a":{"b":[{"c":"d"}],"e/f":null,"m~n":true},"x":"y"}`},
		{"move", `[{"op":"move","from":"/a/b/2/c","path":"/x"}]`, `{"a":{"b":[1,2,{}],"e/f":null,"m~n":true},"x":"d"}`},
		{"copy is a value of its own", `[{"op":"copy","from":"/a/b/2","path":"/x"},{"op":"add","path":"/x/n","value":0}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":{"c":"d","n":0}}`},
		{"a test that holds", `[{"op":"test","path":"/a/b","value":[ 1, 2, {"c": "d"}]},{"op":"remove","path":"/a"}]`, `{"x":"y"}`},
		{"replace adds a missing member", `[{"op":"replace","path":"/a/z","value":1}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true,"z":1},"x":"y"}`},
		{"an index from the end", `[{"op":"remove","path":"/a/b/-1"},{"op":"replace","path":"/a/b/-1","value":9},{"op":"add","path":"/a/b/-1","value":8}]`, `{"a":{"b":[1,9,8],"e/f":null,"m~n":true},"x":"y"}`},
		{"an index with a leading zero", `[{"op":"add","path":"/a/b/00","value":0}]`, `{"a":{"b":[0,1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":"y"}`},
		{"a copy of a missing member is null", `[{"op":"copy","from":"/a/z","path":"/x"}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":null}`},
		{"add without a value adds null", `[{"op":"add","path":"/x"}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":null}`},
		{"replace of the whole document", `[{"op":"replace","path":"","value":{"n":1}}]`, `{"n":1}`},
		{"a test of null where a member is missing", `[{"op":"test","path":"/a/z","value":null}]`, document},
		{"a path whose text in front of the slash is ignored", `[{"op":"add","path":"data/x","value":1}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":1}`},
		{"of two members of an operation the last", `[{"op":"add","path":"/z","path":"/x","value":1}]`, `{"a":{"b":[1,2,{"c":"d"}],"e/f":null,"m~n":true},"x":1}`},
		{"no patch", `null`, document},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := jsonpatch.Apply([]byte(document), []byte(test.patch))
			if err != nil || string(got) != test.want {
				t.Errorf("Apply = %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	double := func(n int) string {
		var ops []string
		for range n {
			ops = append(ops, `{"op":"copy","from":"/a","path":"/a/-"}`)
		}
		return "[" + strings.Join(ops, ",") + "]"
	}
	tests := []struct{ name, patch, want string }{
		{"what is no JSON", `[`, "patch is not valid JSON"},
		{"what is no array", `{}`, "patch is object, want array of operations"},
		{"what is no operation", `[1]`, "operations[0]: operation is number, want object"},
		{"an operation without a name", `[{"path":"/a"}]`, "operations[0]: op is missing"},
		{"an unknown operation", `[{"op":"merge","path":"/a"}]`, "operations[0]: merge /a: op is none of RFC 6902"},
		{"an operation without a path", `[{"op":"remove"}]`, "operations[0]: remove : path is missing"},
		{"a path without a slash", `[{"op":"remove","path":"a"}]`, "operations[0]: remove a: a path begins with /"},
		{"a parent that is missing", `[{"op":"add","path":"/x","value":1},{"op":"add","path":"/n/m","value":1}]`, "operations[1]: add /n/m: no such object or array, or no such index"},
		{"an index beyond the end", `[{"op":"add","path":"/a/2","value":1}]`, "operations[0]: add /a/2: no such object or array, or no such index"},
		{"a huge index", `[{"op":"add","path":"/a/99999999999999999999","value":1}]`, "operations[0]: add /a/99999999999999999999: no such object or array, or no such index"},
		{"remove what is not there", `[{"op":"remove","path":"/n"}]`, "operations[0]: remove /n: no such value"},
		{"a value that moves into itself", `[{"op":"move","from":"/a","path":"/a/0"}]`, "operations[0]: move /a/0: no such object or array, or no such index"},
		{"add of the whole document", `[{"op":"add","path":"","value":{}}]`, "operations[0]: add : a path begins with /"},
		{"a copy of the whole document", `[{"op":"copy","from":"","path":"/b"}]`, "operations[0]: copy /b: from : a path begins with /"},
		{"a move of the whole document", `[{"op":"move","from":"","path":"/b"}]`, "operations[0]: move /b: from : a path begins with /"},
		{"a whole document that is text", `[{"op":"replace","path":"","value":"a"}]`, "operations[0]: replace : the whole document becomes string, want object or array"},
		{"replace below a missing parent", `[{"op":"replace","path":"/n/m","value":1}]`, "operations[0]: replace /n/m: no such object or array, or no such index"},
		{"a test of null below a missing parent", `[{"op":"test","path":"/n/m","value":null}]`, "operations[0]: test /n/m: no such object or array, or no such index"},
		{"a test of 1.0 where 1 is", `[{"op":"test","path":"/a/0","value":1.0}]`, "operations[0]: test /a/0: value is another one"},
		{"a test of an array with null", `[{"op":"add","path":"/a/0"},{"op":"test","path":"/a","value":[null,1]}]`, "operations[1]: test /a: value is another one"},
		{"a member of a copied null", `[{"op":"add","path":"/b","value":null},{"op":"copy","from":"/b","path":"/c"},{"op":"add","path":"/c/d","value":1}]`, "operations[2]: add /c/d: no such object or array, or no such index"},
		{"a test that does not hold", `[{"op":"test","path":"/a","value":[2]}]`, "operations[0]: test /a: value is another one"},
		{"a document that doubles for ever", double(60), "operations[19]: copy /a/-: the patch copies more than 3145728 bytes"},
		{"too many operations", "[" + strings.Repeat(`{"op":"add","path":"/z","value":1},`, 10000) + `{"op":"add","path":"/z","value":1}]`, "patch has more than 10000 operations"},
		{"a path that is too deep", `[{"op":"add","path":"` + strings.Repeat("/a", 10001) + `","value":1}]`, "operations[0]: add " + strings.Repeat("/a", 98) + "/…: path is too deep"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := jsonpatch.Apply([]byte(`{"a":[1]}`), []byte(test.patch))
			if err == nil || err.Error() != test.want {
				t.Errorf("Apply = %.100s, %v\nwant %s", got, err, test.want)
			}
		})
	}
	if _, err := jsonpatch.Apply([]byte(`{}`), []byte(`[{"op":"test","path":"/a","value":1}]`)); !errors.Is(err, jsonpatch.ErrTest) {
		t.Errorf("error is %v, want ErrTest", err)
	}
}

func TestDiff(t *testing.T) {
	tests := []struct{ name, from, to, want string }{
		{"equal documents", `{"a": [1, {"b":"c"}]}`, `{"a":[1,{"b":"\u0063"}]}`, ``},
		{"other order of members", `{"a":1,"b":2}`, `{"b":2,"a":1}`, ``},
		{"a member that is new", `{"a":{}}`, `{"a":{"b/c":1}}`, `[{"op":"add","path":"/a/b~1c","value":1}]`},
		{"a member that is gone", `{"a":{"b":1}}`, `{"a":{}}`, `[{"op":"remove","path":"/a/b"}]`},
		{"a member that is another", `{"a":{"b":1}}`, `{"a":{"b":[]}}`, `[{"op":"replace","path":"/a/b","value":[]}]`},
		{"null is a value", `{"a":null}`, `{}`, `[{"op":"remove","path":"/a"}]`},
		{"an element in between", `[1,2,3]`, `[1,9,2,3]`, `[{"op":"add","path":"/1","value":9}]`},
		{"elements that are gone", `[1,2,3,4]`, `[1,4]`, `[{"op":"remove","path":"/2"},{"op":"remove","path":"/1"}]`},
		{"a member of an element", `[{"n":1,"i":"a"},{"n":2}]`, `[{"n":1,"i":"b"},{"n":2}]`, `[{"op":"replace","path":"/0/i","value":"b"}]`},
		{"another root", `{}`, `[]`, `[{"op":"replace","path":"","value":[]}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := jsonpatch.Diff([]byte(test.from), []byte(test.to)); string(got) != test.want {
				t.Errorf("Diff = %s\nwant %s", got, test.want)
			}
		})
	}
}

// agree checks that Apply takes what the library of the API server takes, with the same
// result, and refuses what it refuses or panics at. What Diff finds leads from the one
// document to the other in both.
func agree(t *testing.T, document, patch []byte) {
	t.Helper()
	got, err := jsonpatch.Apply(document, patch)
	want, wantErr := applyUpstream(document, patch)
	if errors.Is(err, jsonpatch.ErrTooMuch) && len(document)+len(patch) > 1<<14 {
		return
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("document %s\npatch %s\nlibrary: %s, %v\nApply: %s, %v", document, patch, want, wantErr, got, err)
	}
	if err != nil {
		return
	}
	if diff := cmp.Diff(value(t, want), value(t, got)); diff != "" {
		t.Fatalf("document %s\npatch %s\n(-library +Apply):\n%s", document, patch, diff)
	}
	found := jsonpatch.Diff(document, got)
	if found == nil {
		return
	}
	for name, apply := range map[string]func(document, patch []byte) ([]byte, error){"Apply": jsonpatch.Apply, "library": applyUpstream} {
		if again, err := apply(document, found); err != nil || !jsonpatch.Equal(again, got) {
			t.Fatalf("patch %s leads from %s to %s, %v by %s, want %s", found, document, again, err, name, got)
		}
	}
}

// FuzzApply: see agree. An API server applies patches to objects that it has encoded:
// nothing is in front of their brace.
func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"d"}`), []byte(`[{"op":"add","path":"/a/1/x","value":{}},{"op":"move","from":"/c","path":"/a/-"}]`))
	f.Add([]byte(`[[],{}]`), []byte(`[{"op":"copy","from":"/1","path":"/0/0"},{"op":"test","path":"/0","value":[{}]},{"op":"remove","path":"/1"}]`))
	f.Add([]byte(`{"":{"~":1,"/":2}}`), []byte(`[{"op":"replace","path":"//~01","value":1},{"op":"replace","path":"//~1","value":3}]`))
	f.Add([]byte(`"text"`), []byte(`[]`))
	f.Add([]byte(`{"a":"<"}`), []byte(`[{"op":"copy","from":"/a","path":"/b"},{"op":"test","path":"/b","value":"<"}]`))
	f.Fuzz(func(t *testing.T, document, patch []byte) {
		if document = []byte(strings.TrimSpace(string(document))); stdjson.Valid(document) {
			agree(t, document, patch)
		}
	})
}

// edges are documents, and operations upon them, at the edges: few names, so that paths meet,
// all forms of null, indices of all spellings, operations that lack something.
var edges = struct{ documents, paths, values, names []string }{
	documents: []string{`{"a":[1,{"b":null},null,[]],"b":{"a":"<","b":{"a":1.0}},"0":null}`, `{"a":{"a":[[0],{"0":"x"}]},"b":null}`, `[{"a":1},[null,2],null]`, `{}`, `null`},
	paths:     []string{"", "/", "/a", "/b", "/0", "/a/0", "/a/-1", "/a/-", "/a/b", "/b/a", "/b/0", "/a/1", "/a/1/b", "/a/+1", "/a/00", "/a/-9", "/a/2/a", "/b/b/a", "/c", "/c/a", "/c/0", "c", "x/c", "/a/99999999999999999999", "/c/a/b", "/0/a", "/1/0"},
	values:    []string{"", `,"value":null`, `,"value":{}`, `,"value":[]`, `,"value":{"a":null,"b":{}}`, `,"value":[null]`, `,"value":1`, `,"value":1.0`, `,"value":"<"`, `,"value":"\u003c"`, `,"value":[1,{"b":null},null,[]]`, `,"value":[{"a":1,"a":"\u2028"}]`, `,"value":{"b":1,"a":[0]}`, `,"value":1,"value":null`, `,"value": [ 0 ]`},
	names:     []string{"add", "add", "replace", "replace", "copy", "copy", "copy", "move", "test", "test", "remove", "bad"},
}

// agreeAtTheEdges checks a document and a patch of them, of which choose decides everything: it
// returns a number below its argument. A patch grows for as long as it applies, so that long
// ones are reached.
func agreeAtTheEdges(t *testing.T, choose func(n int) int) {
	pick := func(list []string) string { return list[choose(len(list))] }
	operation := func() string {
		op := `{"op":"` + pick(edges.names) + `","path":"` + pick(edges.paths) + `"` + pick(edges.values)
		if choose(3) > 0 {
			op += `,"from":"` + pick(edges.paths) + `"`
		}
		switch choose(60) {
		case 0:
			op += `,"path":null`
		case 1:
			op += `,"op":null`
		case 2:
			op += `,"from":1`
		case 3:
			return "null"
		}
		return op + "}"
	}
	document, patch := []byte(pick(edges.documents)), "["+operation()
	for range 6 {
		agree(t, document, []byte(patch+"]"))
		next := operation()
		if _, err := jsonpatch.Apply(document, []byte(patch+","+next+"]")); err == nil {
			patch += "," + next
		} else {
			agree(t, document, []byte(patch+","+next+"]"))
		}
	}
}

func TestApplyAgreesWithTheLibraryAtTheEdges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		agreeAtTheEdges(t, random.IntN)
	}
}

// FuzzEdges: see agreeAtTheEdges, which the bytes decide on, one after the other.
func FuzzEdges(f *testing.F) {
	f.Add([]byte{0, 4, 7, 2, 1, 4, 9, 2, 5, 3, 1, 2, 9, 5, 10, 20, 30, 40})
	f.Fuzz(func(t *testing.T, choices []byte) {
		agreeAtTheEdges(t, func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0]) % n
			choices = choices[1:]
			return c
		})
	})
}

// applyUpstream applies a patch as k8s.io/apiserver does. The library panics now and then,
// which fails the request.
func applyUpstream(document, patch []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	operations, err := upstream.DecodePatch(patch)
	if err != nil || len(operations) == 0 {
		return document, err
	}
	return operations.Apply(document)
}

// The API server bounds the copies of a patch (GenericAPIServer.JSONPatchMaxCopyBytes).
func init() { upstream.AccumulatedCopySizeLimit = jsonpatch.MaxCopied }
