package jsonpatch_test

import (
	stdjson "encoding/json"
	"errors"
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
		{"a test that holds", `[{"op":"test","path":"/a/b","value":[1.0,2,{"c":"\u0064"}]},{"op":"remove","path":"/a"}]`, `{"x":"y"}`},
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
		{"add without a value", `[{"op":"add","path":"/z"}]`, "operations[0]: add /z: value is missing"},
		{"a member that occurs twice", `[{"op":"add","path":"/z","path":"/y","value":1}]`, "operations[0]: add /z: path occurs twice"},
		{"a path without a slash", `[{"op":"remove","path":"a"}]`, "operations[0]: remove a: a path begins with /"},
		{"a parent that is missing", `[{"op":"add","path":"/x","value":1},{"op":"add","path":"/n/m","value":1}]`, "operations[1]: add /n/m: no such object or array, or no such index"},
		{"an index beyond the end", `[{"op":"add","path":"/a/2","value":1}]`, "operations[0]: add /a/2: no such object or array, or no such index"},
		{"an index with a leading zero", `[{"op":"add","path":"/a/00","value":1}]`, "operations[0]: add /a/00: no such object or array, or no such index"},
		{"a huge index", `[{"op":"add","path":"/a/99999999999999999999","value":1}]`, "operations[0]: add /a/99999999999999999999: no such object or array, or no such index"},
		{"remove what is not there", `[{"op":"remove","path":"/n"}]`, "operations[0]: remove /n: no such value"},
		{"replace what is not there", `[{"op":"replace","path":"/n","value":1}]`, "operations[0]: replace /n: no such value"},
		{"a value that moves into itself", `[{"op":"move","from":"/a","path":"/a/0"}]`, "operations[0]: move /a/0: from /a: a value cannot move into itself"},
		{"a test that does not hold", `[{"op":"test","path":"/a","value":[2]}]`, "operations[0]: test /a: value is another one"},
		{"a document that doubles for ever", double(60), "operations[21]: copy /a/-: the patch copies more than 8388608 bytes"},
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

// What the API server's library takes, Apply takes with the same result, and
// what Diff finds leads from the one document to the other in both.
func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"d"}`), []byte(`[{"op":"add","path":"/a/1/x","value":{}},{"op":"move","from":"/c","path":"/a/-"}]`))
	f.Add([]byte(`[[],{}]`), []byte(`[{"op":"copy","from":"/1","path":"/0/0"},{"op":"test","path":"/0","value":[{}]},{"op":"remove","path":"/1"}]`))
	f.Add([]byte(`{"":{"~":1,"/":2}}`), []byte(`[{"op":"replace","path":"//~01","value":1},{"op":"replace","path":"//~1","value":3}]`))
	f.Fuzz(func(t *testing.T, document, patch []byte) {
		if !stdjson.Valid(document) || len(document) == 0 || hasDuplicates(document) || hasDuplicates(patch) {
			return // The library keeps other duplicates; an API server sends none.
		}
		switch strings.TrimSpace(string(document))[0] {
		case '{', '[':
		default:
			return // The library knows objects and arrays only.
		}
		got, err := jsonpatch.Apply(document, patch)
		if err == nil {
			if !stdjson.Valid(got) {
				t.Fatalf("result is no JSON: %s", got)
			}
			diff := jsonpatch.Diff(document, got)
			again := document
			if diff != nil {
				if again, err = jsonpatch.Apply(document, diff); err != nil {
					t.Fatalf("patch %s from %s to %s: %v", diff, document, got, err)
				}
			}
			if !jsonpatch.Equal(again, got) {
				t.Fatalf("patch %s leads from %s to %s, want %s", diff, document, again, got)
			}
		}
		ops, decodeErr := upstream.DecodePatch(patch)
		if decodeErr != nil {
			return
		}
		want, wantErr := applyUpstream(ops, document)
		if err != nil || wantErr != nil {
			return // What is refused differs at the edges: see the doc of Apply.
		}
		if diff := cmp.Diff(value(t, want), value(t, got)); diff != "" {
			t.Fatalf("document %s\npatch %s\n(-upstream +got):\n%s", document, patch, diff)
		}
	})
}

// applyUpstream calls the library, which panics now and then.
func applyUpstream(ops upstream.Patch, document []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("panic")
		}
	}()
	return ops.Apply(document)
}

// hasDuplicates reports whether some object has two members of one name.
func hasDuplicates(raw []byte) bool {
	d := stdjson.NewDecoder(strings.NewReader(string(raw)))
	type level struct {
		object, key bool
		seen        map[string]bool
	}
	var stack []level
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		delim, isDelim := token.(stdjson.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].object {
			top := &stack[n-1]
			if top.key = !top.key; top.key {
				if top.seen[token.(string)] {
					return true
				}
				top.seen[token.(string)] = true
				continue
			}
		}
		if isDelim {
			stack = append(stack, level{object: delim == '{', seen: map[string]bool{}})
		}
	}
}
