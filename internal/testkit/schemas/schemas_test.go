package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

const dir = "../../../docs/schemas"

// TestSchemasAreUpToDate holds that the schemas are those of the types, and that there are no
// others.
func TestSchemasAreUpToDate(t *testing.T) {
	texts, err := write()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(texts) {
		t.Errorf("there are %d files, want %d", len(entries), len(texts))
	}
	for name, text := range texts {
		got, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil || string(got) != string(text) {
			t.Errorf("%s.json is out of date: run make generate (%v)", name, err)
		}
	}
}

// right returns a value that a schema allows.
func right(s map[string]any) any {
	if either, ok := s["anyOf"].([]any); ok {
		return right(either[len(either)-1].(map[string]any))
	}
	if enum, ok := s["enum"].([]any); ok {
		return enum[0]
	}
	switch s["type"] {
	case "object":
		return map[string]any{}
	case "array":
		return []any{right(s["items"].(map[string]any))}
	case "string":
		switch {
		case s["pattern"] == duration:
			return "1m30s"
		case s["pattern"] == quantity:
			return "64Mi"
		case s["format"] == "date-time":
			return "2026-01-31T18:00:00Z"
		case s["contentEncoding"] == "base64":
			return "AGFzbQ=="
		}
		return "text"
	case "boolean":
		return true
	case "integer":
		return 7
	case "number":
		return 0.5
	}
	return "any"
}

// wrong returns a value that a schema does not allow, nil if it allows all.
func wrong(s map[string]any) any {
	if either, ok := s["anyOf"].([]any); ok {
		return wrong(either[0].(map[string]any))
	}
	switch s["type"] {
	case "object", "array":
		return 5
	case "string":
		if s["pattern"] != nil || s["contentEncoding"] != nil {
			return "%"
		}
		return 5
	case "boolean", "integer", "number":
		return []any{}
	}
	return nil
}

// values calls each with every value that a schema describes: its schema, its path in messages, and
// a function that puts it into a document.
func values(s map[string]any, path string, put func(any) any, each func(s map[string]any, path string, put func(any) any)) {
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	if path != "" {
		each(s, path, put)
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			values(properties[name].(map[string]any), join(name), func(v any) any { return put(map[string]any{name: v}) }, each)
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		values(items, path+"[0]", func(v any) any { return put([]any{v}) }, each)
	}
	if entries, ok := s["additionalProperties"].(map[string]any); ok {
		values(entries, join("key"), func(v any) any { return put(map[string]any{"key": v}) }, each)
	}
}

// TestSchemasAreWhatIsDecoded decodes documents with each value of each schema: one that it allows,
// and one that it does not, and a member that it does not know.
func TestSchemasAreWhatIsDecoded(t *testing.T) {
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var s map[string]any
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			decode := func(v any) error {
				document, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				to := reflect.New(f.of).Interface()
				if err := configfile.JSON(document, to); err != nil {
					return err
				}
				if file, ok := to.(*manage.File); ok {
					return ownMembers(file)
				}
				return nil
			}
			tried := 0
			values(s, "", func(v any) any { return v }, func(s map[string]any, path string, put func(any) any) {
				tried++
				if err := decode(put(right(s))); err != nil {
					t.Errorf("%s: %v is refused: %v", path, right(s), err)
				}
				if no := wrong(s); no != nil {
					if err := decode(put(no)); err == nil || !strings.Contains(err.Error(), path+" is ") {
						t.Errorf("%s: %v: %v, want an error of the path", path, no, err)
					}
				}
				if s["additionalProperties"] == false {
					if err := decode(put(map[string]any{"no-such-member": 1})); err == nil || !strings.Contains(err.Error(), `unknown field "`+path+`.no-such-member"`) {
						t.Errorf("%s: a member that there is not: %v", path, err)
					}
				}
			})
			if tried < 20 {
				t.Errorf("only %d values were tried", tried)
			}
		})
	}
}

// ownMembers decodes the members of plugins that a dialect decodes.
func ownMembers(file *manage.File) error {
	decode := func(path string, p *manage.PluginSpec) error {
		for member, raw := range p.Dialect {
			of, ok := dialects[member]
			if !ok {
				return fmt.Errorf("unknown field %q", path+".dialect."+member)
			}
			if err := configfile.JSON(raw, reflect.New(of).Interface()); err != nil {
				return errors.New(below(path+".dialect."+member, err))
			}
		}
		return nil
	}
	for i := range file.Plugins {
		if err := decode(fmt.Sprintf("plugins[%d]", i), &file.Plugins[i]); err != nil {
			return err
		}
	}
	for i := range file.Groups {
		for name, member := range file.Groups[i].Members {
			if err := decode(fmt.Sprintf("groups[%d].members.%s", i, name), &member); err != nil {
				return err
			}
		}
	}
	return nil
}

// below returns the text of err with a path before those of its mistakes.
func below(path string, err error) string {
	var of *configfile.Error
	if !errors.As(err, &of) {
		return path + ": " + err.Error()
	}
	mistakes := slices.Clone(of.Mistakes)
	for i := range mistakes {
		mistakes[i].Path = strings.TrimSuffix(path+"."+mistakes[i].Path, ".")
	}
	return (&configfile.Error{Mistakes: mistakes}).Error()
}

// TestOneGrammar reads one text as a plugin of each kind: what all have, they have in the same
// words and with the same meaning.
func TestOneGrammar(t *testing.T) {
	const text = `
name: zone
module: {oci: "ghcr.io/acme/zone:1.2", follow: true}
guestConfig: {zones: [a, b]}
args: [zone]
limits: {memoryBytes: 64Mi, timeout: 100ms, fuel: 1000000}
reset: PerCall
circuitBreaker: {after: 10, maxBackoff: 1m}
confidential: {kinds: [Certificate]}
record: {path: /var/log/zone, maxBytes: 1Gi, maxAge: 24h}
grants: [clock]
failurePolicy: Ignore
`
	var want host.Config
	first := ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		of, document := files[name].of, text
		switch name {
		case "registries":
			continue
		case "policies":
			document = "plugins:\n- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
		}
		v := reflect.New(of)
		if err := configfile.YAML([]byte(document), v.Interface()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		plugin := v.Elem()
		if name == "policies" {
			plugin = plugin.FieldByName("Plugins").Index(0)
		}
		got := plugin.FieldByName("Config").Interface().(host.Config)
		if policy := plugin.FieldByName("FailurePolicy").Interface(); policy != host.Ignore {
			t.Errorf("%s: failurePolicy is %v", name, policy)
		}
		if first == "" {
			first, want = name, got
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-%s +%s):\n%s", name, first, name, diff)
		}
	}
	if want.Limits.MemoryBytes != 64<<20 || !want.Module.Follow || want.Record.MaxBytes != 1<<30 {
		t.Errorf("got %+v", want)
	}
	// Beside them schedulers and hooks have objects and a shadow in one text, policies in theirs.
	const more = "objects: [{resource: v1/nodes}]\nshadow: {module: {file: next.wasm}, rate: 0.5}\n"
	for _, name := range []string{"scheduler", "hook"} {
		if err := configfile.YAML([]byte(text+more), reflect.New(files[name].of).Interface()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
