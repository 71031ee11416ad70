package strict_test

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/strict"
)

// config has a field of each type.
type config struct {
	Limits struct {
		MemoryBytes uint64   `json:"memoryBytes"`
		Timeout     duration `json:"timeout"`
	} `json:"limits"`
	Match struct {
		Rules []struct {
			APIVersions []string `json:"apiVersions"`
			Operations  []string `json:"operations"`
		} `json:"rules"`
	} `json:"match"`
	Source *struct {
		ConfigMap struct {
			Name string `json:"name"`
		} `json:"configMap"`
	} `json:"source"`
	Order           int      `json:"order"`
	Grants          []string `json:"grants"`
	AllowedToMutate bool     `json:"allowedToMutate"`
	CircuitBreaker  struct {
		After int `json:"after"`
	} `json:"circuitBreaker"`
	Description string `json:"description"`
	Objects     []struct {
		Resource string `json:"resource"`
	} `json:"objects"`
}

// duration is decoded from a text.
type duration int64

func (d *duration) UnmarshalText([]byte) error { return nil }

// TestReadable decodes values of other types than those of their fields, by both packages that
// decode configuration.
func TestReadable(t *testing.T) {
	for text, want := range map[string]string{
		`{"limits": {"memoryBytes": "64Mi"}}`:              "limits.memoryBytes is a text, want a whole number of bytes, such as 67108864 for 64Mi",
		`{"limits": {"memoryBytes": 1.5}}`:                 "limits.memoryBytes is the number 1.5, want a whole number",
		`{"limits": {"memoryBytes": -1}}`:                  "limits.memoryBytes is the number -1, want a whole number",
		`{"limits": {"timeout": 100}}`:                     "limits.timeout is a number, want a duration such as 100ms",
		`{"limits": "small"}`:                              "limits is a text, want a mapping",
		`{"limits": ["small"]}`:                            "limits is a list, want a mapping",
		`{"match": {"rules": [{"apiVersions": "v1"}]}}`:    "match.rules.apiVersions is a text, want a list of texts",
		`{"match": {"rules": {"operations": ["CREATE"]}}}`: "match.rules is a mapping, want a list",
		`{"match": ["pods"]}`:                              "match is a list, want a mapping",
		`{"source": "p.wasm"}`:                             "source is a text, want a mapping",
		`{"order": "first"}`:                               "order is a text, want a whole number",
		`{"grants": "clock"}`:                              "grants is a text, want a list of texts",
		`{"allowedToMutate": "yes"}`:                       "allowedToMutate is a text, want true or false",
		`{"circuitBreaker": {"after": "1s"}}`:              "circuitBreaker.after is a text, want a whole number",
		`{"description": true}`:                            "description is true or false, want a text; YAML reads y, n, yes, no, on and off without quotes as true or false",
		`{"source": {"configMap": {"name": {"a": "b"}}}}`:  "source.configMap.name is a mapping, want a text",
		`{"objects": [{"resource": ["v1/pods"]}]}`:         "objects.resource is a list, want a text",
		`["p"]`: "it is a list, want a mapping",
	} {
		by := map[string]error{"json": json.Unmarshal([]byte(text), new(config))}
		if want != "description is true or false, want a text; YAML reads y, n, yes, no, on and off without quotes as true or false" { // It is "true" there.
			by["yaml"] = yaml.UnmarshalStrict([]byte(text), new(config))
		}
		for name, err := range by {
			if got := strict.Readable(err); got == nil || got.Error() != want {
				t.Errorf("%s: %s: %v\ngot  %v\nwant %s", name, text, err, got, want)
			}
		}
	}
	if got := strict.Readable(nil); got != nil {
		t.Error(got)
	}
}
