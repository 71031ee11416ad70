package json_test

import (
	stdjson "encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/json"
)

type pools struct {
	CPUSet string                     `json:"cpuset"`
	Nodes  []node                     `json:"nodes"`
	Raw    map[string]json.RawMessage `json:"raw"`
}

type node struct {
	Node int64 `json:"node"`
}

func Example() {
	var status struct {
		CPUSet string `json:"cpuset"`
	}
	err := json.Unmarshal([]byte(`{"cpuset": "0-3", "policy": "static"}`), &status)
	fmt.Println(status.CPUSet, err)
	// Output: 0-3 <nil>
}

func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		``:     "",
		`null`: "",
		`{"cpuset": "0-3", "more": [{}], "nodes": [{"node": 1, "x": null}], "raw": {"a": "1", "b": [2, {"c": 3}]}}`: "",
		`{"cpuset": 3, "nodes": {}}`:     "cpuset: want string, got number; nodes: want array, got object",
		`{"cpuset": "a", "cpuset": "b"}`: "cpuset: field occurs twice",
		`{"cpuset": "0"`:                 "not valid JSON",
		`[]`:                             "want object, got array",
		`{"CPUSet": "0", "nodes": [{"node": 1.5}]}`: "nodes[0].node: want int64, got 1.5",
	} {
		var got, plain pools
		err := json.Unmarshal([]byte(text), &got)
		if want != "" {
			if err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", text, err, want)
			}
			continue
		}
		if text != "" {
			if err := stdjson.Unmarshal([]byte(text), &plain); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(plain, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, differs from encoding/json (-want +got):\n%s", text, err, diff)
		}
	}
}

// What is no struct is decoded as encoding/json decodes it.
func TestUnmarshalIntoOtherTypes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		ours, std  any // Pointers to equal variables.
		want       string
	}{
		{"a map of numbers", `{"a": 1, "b": -2}`, new(map[string]int64), new(map[string]int64), ""},
		{"a map that has entries", `{"a": 1}`, &map[string]int{"a": 0, "z": 3}, &map[string]int{"a": 0, "z": 3}, ""},
		{"a map of structs", `{"a": {"node": 1, "more": 2}}`, new(map[string]node), new(map[string]node), ""},
		{"a map of maps", `{"a": {"b": ["c"]}, "d": null}`, new(map[string]map[string][]string), new(map[string]map[string][]string), ""},
		{"an empty map", `{}`, new(map[string]string), new(map[string]string), ""},
		{"null for a map", `null`, &map[string]int{"a": 1}, &map[string]int{"a": 1}, ""},
		{"null for a slice", ` null `, &[]int{1}, &[]int{1}, ""},
		{"null for a struct", `null`, &node{Node: 1}, &node{Node: 1}, ""},
		{"a slice", `[{"node": 1}, {}]`, new([]node), new([]node), ""},
		{"a string", `"a"`, new(string), new(string), ""},
		{"a number", `-7`, new(int64), new(int64), ""},
		{"anything", `{"a": [1, "b", null]}`, new(any), new(any), ""},
		{"a pointer to a map", `{"a": "b"}`, new(*map[string]string), new(*map[string]string), ""},
		{"a map with a value of another type", `{"a": "x", "b": 2}`, new(map[string]int), nil, "[a]: want number, got string"},
		{"a map with a key twice", `{"a": 1, "a": 2}`, new(map[string]int), nil, "[a]: key occurs twice"},
		{"a list for a map", `[]`, new(map[string]int), nil, "want object, got array"},
		{"no JSON", `{"a"`, new(map[string]int), nil, "not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := json.Unmarshal([]byte(c.text), c.ours)
			if c.want != "" {
				if err == nil || err.Error() != c.want {
					t.Errorf("got error %v, want %s", err, c.want)
				}
				return
			}
			if err := stdjson.Unmarshal([]byte(c.text), c.std); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.std, c.ours); err != nil || diff != "" {
				t.Errorf("error %v, differs from encoding/json (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestUnmarshalNeedsAPointer(t *testing.T) {
	for _, out := range []any{nil, pools{}, map[string]int{}, (*pools)(nil), (*map[string]int)(nil)} {
		if err := json.Unmarshal([]byte(`{}`), out); err == nil {
			t.Errorf("%T: no error", out)
		}
	}
	if err := json.Unmarshal([]byte(`{}`), new(int)); err == nil {
		t.Error("an object is taken for a number")
	}
}
