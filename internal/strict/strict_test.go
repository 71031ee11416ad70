package strict_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/strict"
)

type base struct {
	Order int `json:"order"`
}

type plugin struct {
	base   `json:",inline"`
	Name   string `json:"name"`
	Plain  string
	Hidden string             `json:"-"`
	Limits *limits            `json:"limits"`
	Zones  map[string]*limits `json:"zones"`
	List   []limits           `json:"list"`
}

type limits struct {
	Fuel    int64 `json:"fuel"`
	Timeout int64 `json:"timeout,omitempty"`
}

func TestUnmarshal(t *testing.T) {
	tests := map[string]struct {
		data string
		want []string
	}{
		"nothing is wrong":               {`{"name": "a", "order": 1, "Plain": "x", "zones": {"a": {"fuel": 1}}}`, nil},
		"a letter too many":              {`{"names": "a"}`, []string{`unknown field "names", did you mean "name"?`}},
		"the wrong case":                 {`{"Name": "a"}`, []string{`unknown field "Name", did you mean "name"?`}},
		"that of an embedded struct":     {`{"oder": 1}`, []string{`unknown field "oder", did you mean "order"?`}},
		"in a struct that is pointed to": {`{"limits": {"feul": 1}}`, []string{`unknown field "limits.feul", did you mean "fuel"?`}},
		"in an entry of a map":           {`{"zones": {"a": {"time": 1}}}`, []string{`unknown field "zones.a.time", there are fuel, timeout`}},
		"in a list":                      {`{"list": [{}, {"timeuot": 1}]}`, []string{`unknown field "list[1].timeuot", did you mean "timeout"?`}},
		"nothing near":                   {`{"x": {"y": 1}}`, []string{`unknown field "x", there are Plain, limits, list, name, order, zones`}},
		"twice":                          {`{"name": "a", "name": "b"}`, []string{`duplicate field "name"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var p plugin
			mistakes, err := strict.Unmarshal([]byte(test.data), &p)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, mistake := range mistakes {
				got = append(got, fmt.Sprint(mistake))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := strict.Unmarshal([]byte(`{"name": 1, "nam": 2}`), &plugin{}); err == nil {
		t.Error("a number is a name")
	}
}
