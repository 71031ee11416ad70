package yaml12_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/yaml12"
	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

func TestToJSON(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"texts that YAML 1.1 takes for booleans": {"[NO, no, yes, On, off, y, n, true, False]", `["NO","no","yes","On","off","y","n",true,false]`},
		"octal and sexagesimal numbers of 1.1":   {"[012, 1:30, 0o17, 0x1F, 0b11, 1_000]", `["012","1:30",15,31,3,"1_000"]`},
		"numbers keep their digits":              {"[1.0, 1e3, +5, .5, 5., 123456789012345678901234567890, -0, 00.5]", `[1.0,1e3,5,0.5,5,123456789012345678901234567890,-0,0.5]`},
		"a number that is too large is a text":   {"[1e999]", `["1e999"]`},
		"dates are texts":                        {"[2026-01-02, 2026-01-02T03:04:05Z]", `["2026-01-02","2026-01-02T03:04:05Z"]`},
		"nothing":                                {"[~, null, Null, '']", `[null,null,null,""]`},
		"quotes and blocks":                      {"[\"5\", 'true', \"a\\tb<\"]", `["5","true","a\tb<"]`},
		"a block":                                {"|\n  1\n", `"1\n"`},
		"tags":                                   {"[!!str 5, !!int 0x10, !!float 3, !!bool true]", `["5",16,3,true]`},
		"keys that are no texts":                 {"{1: a, true: b, no: c}", `{"1":"a","no":"c","true":"b"}`},
		"aliases":                                {"{a: &x [NO], b: *x}", `{"a":["NO"],"b":["NO"]}`},
		"what is merged":                         {"{a: &x {b: 1, c: 2}, d: {<<: *x, b: NO}}", `{"a":{"b":1,"c":2},"d":{"b":"NO","c":2}}`},
		"several that are merged":                {"{a: &x {b: 1}, c: &y {b: 2, d: 3}, e: {<<: [*x, *y]}}", `{"a":{"b":1},"c":{"b":2,"d":3},"e":{"b":1,"d":3}}`},
		"an empty text":                          {"", "null"},
		"JSON":                                   {`{"a": [1.50, "x\u0000", {}]}`, `{"a":[1.50,"x\u0000",{}]}`},
	} {
		got, unfit, err := yaml12.ToJSON([]byte(tt.text), 1<<20)
		if string(got) != tt.want || len(unfit) != 0 || err != nil {
			t.Errorf("%s: %s, %v, %v, want %s", name, got, unfit, err, tt.want)
		}
	}
}

func TestToJSONNamesWhatIsUnfit(t *testing.T) {
	got, unfit, err := yaml12.ToJSON([]byte("{a: {settings: {max: .inf, list: [1, -.Inf]}}, b: .nan, c: 1}"), 1<<20)
	if err != nil || string(got) != `{"a":{"settings":{"list":[1,null],"max":null}},"b":null,"c":1}` {
		t.Errorf("%s, %v", got, err)
	}
	var texts []string
	for _, u := range unfit {
		texts = append(texts, u.Error())
	}
	want := []string{
		"a.settings.list.1 is -.Inf, which JSON has no form for", "a.settings.max is .inf, which JSON has no form for", "b is .nan, which JSON has no form for",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("unfit (-want +got)\n%s", diff)
	}
}

func TestToJSONRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a key twice":              {"a: 1\na: 2", `key "a" already set in map`},
		"a key twice, spelt apart": {"1: a\n'1': b", `key "1" already set in map`},
		"two documents":            {"a: 1\n---\nb: 2", "more than one document"},
		"no YAML":                  {"{", "yaml: "},
		"a key that is a list":     {"[1]: a", "a key is no text"},
		"a key that is nothing":    {"~: a", `is no text`},
		"a tag of its own":         {"a: !secret x", `"x" is no !secret`},
		"a tag that lies":          {"a: !!int x", `"x" is no !!int`},
		"a circle":                 {"a: &x [*x]", "contains itself"},
		"a circle that is merged":  {"a: &x {<<: *x}", ""},
		"values that are too deep": {strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "deep"},
	} {
		if got, _, err := yaml12.ToJSON([]byte(tt.text), 1<<20); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s, %v, want %q", name, got, err, tt.want)
		}
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	if _, _, err := yaml12.ToJSON([]byte(bomb), 1<<20); !errors.Is(err, yamlsize.ErrTooLong) {
		t.Errorf("aliases of aliases: %v, want ErrTooLong", err)
	}
}

// FuzzToJSON holds that what is made is JSON, and that JSON is taken as sigs.k8s.io/yaml takes
// it, in which 1.1 and 1.2 agree.
func FuzzToJSON(f *testing.F) {
	f.Add([]byte(`{"a": [1.50, "x", true, null, {"b": -1e3}]}`))
	f.Add([]byte("a: &x {b: NO}\nc: {<<: *x, d: .inf}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _, err := yaml12.ToJSON(text, 1<<16)
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q is no JSON, from %q", got, text)
		}
		if !json.Valid(text) {
			return
		}
		other, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(other, &b) != nil || !cmp.Equal(a, b) {
			t.Errorf("%q became %s, and %s by YAML 1.1", text, got, other)
		}
	})
}
