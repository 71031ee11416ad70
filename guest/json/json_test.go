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

func TestUnmarshalNeedsAStruct(t *testing.T) {
	for _, out := range []any{nil, pools{}, new(int), (*pools)(nil)} {
		if err := json.Unmarshal([]byte(`{}`), out); err == nil {
			t.Errorf("%T: no error", out)
		}
	}
}
