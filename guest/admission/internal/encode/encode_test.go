package encode

import (
	stdjson "encoding/json"
	"math"
	"testing"

	"github.com/kubewasm/kubewasm/internal/json"
)

type zone string

type celsius int

func (c celsius) String() string { return "warm" }

type level int

func (l *level) String() string { return "high" }

type stringer interface{ String() string }

// rest is an interface with another method.
type rest interface{ Rest() }

type pause struct{ N int }

func (pause) Rest() {}

func TestAppend(t *testing.T) {
	n, deep := 7, new(*int)
	*deep = &n
	raw, high, text := []byte(`{"a":1}`), level(1), any("x")
	tests := map[string]struct {
		value any
		want  string
	}{
		"nil":                             {nil, `null`},
		"string":                          {"a\"b", `"a\"b"`},
		"named string":                    {zone("a"), `"a"`},
		"bool":                            {true, `true`},
		"numbers":                         {[]any{int8(-1), uint64(math.MaxUint64), float32(0.1), 1e300}, `[-1,18446744073709551615,0.1,1e+300]`},
		"no numbers":                      {[]float64{math.NaN(), math.Inf(1)}, `[null,null]`},
		"raw JSON":                        {raw, `{"a":1}`},
		"value":                           {json.Value(raw), `{"a":1}`},
		"bytes that are no JSON":          {[]byte("{"), `"{"`},
		"pointer to raw JSON":             {&raw, `{"a":1}`},
		"list with raw JSON":              {[]any{raw, json.Value(raw), &raw}, `[{"a":1},{"a":1},{"a":1}]`},
		"pointers":                        {[]any{&n, deep, (*int)(nil)}, `[7,7,null]`},
		"pointer to an interface":         {&text, `"x"`},
		"what has a method String":        {celsius(3), `"warm"`},
		"what has one on its pointer":     {&high, `"high"`},
		"list of what has one":            {[]any{celsius(3), &high, []stringer{celsius(1), &high, nil}}, `["warm","high",["warm","high",null]]`},
		"pointers to what has one":        {[]*level{&high, nil}, `["high",null]`},
		"interfaces with other methods":   {[]rest{pause{}, nil}, `[null,null]`},
		"map":                             {map[string]int{"b": 2, "": 0, "a": 1}, `{"":0,"a":1,"b":2}`},
		"map with named keys":             {map[zone][]string{"b": nil, "a": {"x"}}, `{"a":["x"],"b":[]}`},
		"map of anything":                 {map[string]any{"b": celsius(3), "a": raw, "c": map[string]any{"d": nil}}, `{"a":{"a":1},"b":"warm","c":{"d":null}}`},
		"map of anything with named keys": {map[zone]any{"b": celsius(3), "a": &high}, `{"a":"high","b":"warm"}`},
		"map of interfaces with methods":  {map[string]stringer{"b": celsius(3), "a": &high, "c": nil}, `{"a":"high","b":"warm","c":null}`},
		"list of maps of anything":        {[]map[string]any{{"a": celsius(3)}}, `[{"a":"warm"}]`},
		"array":                           {[2]string{"a", "b"}, `["a","b"]`},
		"pointer to an array of anything": {&[2]any{celsius(3), 1}, `["warm",1]`},
		"array of anything":               {[2]any{"a", []any{celsius(3)}}, `["a",["warm"]]`},
		"nil map and nil list":            {[]any{map[string]string(nil), []string(nil)}, `[{},[]]`},
		"what fields of objects are not":  {[]any{struct{ A int }{1}, map[int]string{1: "a"}, func() {}, complex(1, 1)}, `[null,null,null,null]`},
		"list of lists":                   {[][]string{{"a"}, {}}, `[["a"],[]]`},
		"list of small numbers":           {[]uint16{1, 2}, `[1,2]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := string(Append([]byte("x"), test.value))
			if got != "x"+test.want || !stdjson.Valid([]byte(got[1:])) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
