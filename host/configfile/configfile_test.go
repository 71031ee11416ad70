package configfile_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/configfile"
)

type base struct {
	Order int `json:"order"`
}

// stage is decoded from its name.
type stage int

func (s *stage) UnmarshalText(text []byte) error {
	if string(text) != "Reconcile" {
		return fmt.Errorf("want Reconcile")
	}
	*s = 1
	return nil
}

type plugin struct {
	base     `json:",inline"`
	Name     string            `json:"name"`
	Plain    string            //nolint:tagliatelle // A field without a tag.
	Hidden   string            `json:"-"`
	Limits   *limits           `json:"limits"`
	Zones    map[string]limits `json:"zones"`
	List     []limits          `json:"list"`
	Stages   []stage           `json:"stages"`
	Names    []string          `json:"names"`
	Small    int8              `json:"small"`
	Count    uint32            `json:"count"`
	Rate     float64           `json:"rate"`
	On       *bool             `json:"enabled"`
	Module   []byte            `json:"module"`
	Raw      json.RawMessage   `json:"raw"`
	Any      any               `json:"any"`
	Resync   time.Duration     `json:"resync"`
	LogBytes int               `json:"logBytes"`
}

// limits decode themselves, as those of a plugin do, so that package json reads them as well.
type limits struct {
	Fuel        int64         `json:"fuel,omitempty"`
	Timeout     time.Duration `json:"timeout,omitzero"`
	MemoryBytes uint64        `json:"memoryBytes,omitempty"`
}

func (l *limits) UnmarshalJSON(data []byte) error {
	type fields limits
	return configfile.JSON(data, (*fields)(l))
}

func (l limits) MarshalJSON() ([]byte, error) {
	type fields limits
	return configfile.Marshal(fields(l))
}

func TestMistakes(t *testing.T) {
	tests := map[string]struct{ data, want string }{
		"nothing is wrong":       {`{"name": "a", "order": 1, "Plain": "x", "zones": {"a": {"fuel": 1}}, "raw": {"a": 1}, "enabled": null}`, ""},
		"a letter too many":      {`name_: a`, `unknown field "name_", did you mean "name"?`},
		"the wrong case":         {`Name: a`, `unknown field "Name", did you mean "name"?`},
		"an embedded field":      {`oder: 1`, `unknown field "oder", did you mean "order"?`},
		"a pointer":              {`limits: {feul: 1}`, `unknown field "limits.feul", did you mean "fuel"?`},
		"an entry of a map":      {`zones: {a: {time: 1}}`, `unknown field "zones.a.time", there are fuel, memoryBytes, timeout`},
		"an item of a list":      {`list: [{}, {timeuot: 1}]`, `unknown field "list[1].timeuot", did you mean "timeout"?`},
		"a percent sign":         {`"%d%s": 1`, `unknown field "%d%s", there are Plain, any, count, enabled, limits, list, logBytes, module, name, names, order, rate, raw, resync, small, stages, zones`},
		"twice":                  {"name: a\nname: b", `name occurs twice in one mapping, at line 2`},
		"twice in JSON":          {`{"name": "a", "name": "b"}`, "name occurs twice"},
		"a text for a number":    {`limits: {fuel: x}`, "limits.fuel is a text, want a whole number"},
		"a text for a mapping":   {`limits: small`, "limits is a text, want a mapping"},
		"a list for a mapping":   {`limits: [small]`, "limits is a list, want a mapping"},
		"a mapping for a list":   {`list: {fuel: 1}`, "list is a mapping, want a list"},
		"a text for a list":      {`names: a`, "names is a text, want a list of texts"},
		"a number for a text":    {`name: 1`, "name is the number 1, want a text"},
		"a boolean for a text":   {`name: no`, "name is true or false, want a text; YAML reads y, n, yes, no, on and off without quotes as true or false"},
		"a text for a boolean":   {`enabled: "yes"`, "enabled is a text, want true or false"},
		"a number of a duration": {`limits: {timeout: 100}`, "limits.timeout is the number 100, want a duration such as 100ms"},
		"a duration of no unit":  {`resync: "100"`, `resync is "100", want a duration such as 100ms`},
		"a fraction of bytes":    {`limits: {memoryBytes: 1.5}`, "limits.memoryBytes is the number 1.5, want a whole number of bytes or a quantity such as 64Mi"},
		"a negative size":        {`limits: {memoryBytes: -1}`, "limits.memoryBytes is the number -1, want a whole number of bytes or a quantity such as 64Mi"},
		"no quantity":            {`limits: {memoryBytes: 64MB}`, `limits.memoryBytes is "64MB", want a whole number of bytes or a quantity such as 64Mi`},
		"a quantity too large":   {`limits: {memoryBytes: 16Ei}`, `limits.memoryBytes is "16Ei", want a whole number of bytes or a quantity such as 64Mi`},
		"a number too large":     {`small: 128`, "small is 128, want a number of at most 8 bits"},
		"a count too large":      {`count: 4294967296`, "count is 4294967296, want at most 4294967295"},
		"a negative count":       {`count: -1`, "count is the number -1, want a whole number that is not negative"},
		"a text for a rate":      {`rate: half`, "rate is a text, want a number"},
		"an infinite rate":       {"rate: .inf\nlist: [{fuel: -.inf}]\nzones: {a: {b: .nan}}", "rate is +Inf, which JSON has no form for\nlist[0].fuel is -Inf, which JSON has no form for\nzones.a.b is NaN, which JSON has no form for"},
		"no base64":              {`module: "%"`, "module is not base64: illegal base64 data at input byte 0"},
		"a name of an enum":      {`stages: [Reconcile, Recnocile]`, `stages[1] is "Recnocile": want Reconcile`},
		"a number for a name":    {`stages: [1]`, "stages[0] is the number 1, want a text"},
		"a list of mappings":     {`[{a: 1}]`, "the document is a list, want a mapping"},
		"a list as a document":   {`[a]`, "the document is a list, want a mapping"},
		"no YAML":                {`name: [`, "yaml: line 1: did not find expected node content"},
		"many":                   {"nam: a\nlimits: {timeout: 5, feul: 1}\nnames: a\nenabled: 3", "unknown field \"nam\", did you mean \"name\"?\nlimits.timeout is the number 5, want a duration such as 100ms\nunknown field \"limits.feul\", did you mean \"fuel\"?\nnames is a text, want a list of texts\nenabled is the number 3, want true or false"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := configfile.YAML([]byte(test.data), new(plugin)); err != nil {
				got = err.Error()
			}
			lines := func(text string) []string { return strings.Split(text, "\n") }
			sorted := cmp.Transformer("set", func(l []string) map[string]bool {
				set := map[string]bool{}
				for _, line := range l {
					set[line] = true
				}
				return set
			})
			if diff := cmp.Diff(lines(test.want), lines(got), sorted); diff != "" && !(test.want != "" && strings.HasPrefix(got, test.want)) {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValues(t *testing.T) {
	const text = `
name: a
order: 3
limits: {timeout: 1m30s, memoryBytes: 64Mi}
list: [{memoryBytes: 1.5k}, {memoryBytes: 5}]
stages: [Reconcile]
module: AGFzbQ==
raw: {b: 1.10, a: [x]}
any: {c: 1}
resync: 10s
logBytes: 2Ki
rate: 0.5
enabled: true
`
	var got plugin
	if err := configfile.YAML([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	on := true
	want := plugin{
		base: base{3}, Name: "a", Limits: &limits{Timeout: 90 * time.Second, MemoryBytes: 64 << 20},
		List: []limits{{MemoryBytes: 1500}, {MemoryBytes: 5}}, Stages: []stage{1}, Module: []byte("\x00asm"),
		Raw: json.RawMessage(`{"b":1.1,"a":["x"]}`), Any: map[string]any{"c": 1.0}, Resync: 10 * time.Second, LogBytes: 2048, Rate: 0.5, On: &on,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(plugin{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Package json reads and writes the same form.
	data, err := json.Marshal(want.Limits)
	if err != nil || string(data) != `{"timeout":"1m30s","memoryBytes":67108864}` {
		t.Errorf("got %s, %v", data, err)
	}
	var again limits
	if err := json.Unmarshal(data, &again); err != nil || again != *want.Limits {
		t.Errorf("got %+v, %v", again, err)
	}
}

// TestHostile decodes documents that would take a decoder down.
func TestHostile(t *testing.T) {
	deep := strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20)
	var bomb strings.Builder
	fmt.Fprintf(&bomb, "a: &a %s\nnames: [", strings.Repeat("x", 1<<20))
	for range 1000 {
		bomb.WriteString("*a,")
	}
	bomb.WriteString("]")
	for name, data := range map[string]string{"deep": deep, "deep, of a field": `{"any": ` + deep + `}`, "aliases": bomb.String()} {
		var p plugin
		if err := configfile.YAML([]byte(data), &p); err == nil {
			t.Errorf("%s: it is decoded", name)
		}
		if err := configfile.JSON([]byte(data), &p); err == nil {
			t.Errorf("%s: it is decoded as JSON", name)
		}
	}
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte("name: a\nlimits: {timeout: 1s}"))
	f.Add([]byte(`{"list": [{"memoryBytes": "64Mi"}], "raw": {"a": 1}}`))
	f.Add([]byte("a: &a [1]\nany: *a\nenabled: 3"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = configfile.YAML(data, new(plugin))
		_ = configfile.JSON(data, new(plugin))
	})
}
