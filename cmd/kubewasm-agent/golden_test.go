package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var addGolden = flag.String("golden", "", "make testdata/golden/next the set of the version `vX.Y`, and write what is read from files without a .json, before the tests")

// TestGoldenConfigurations reads the golden files of the agent: nothing is refused, and each member has the
// value that it had when the file was added. Plugins and registries have golden files in
// internal/testkit/schemas. Together the files have all members. What is in git stays:
// TestGoldenFilesStay of internal/testkit/layout.
func TestGoldenConfigurations(t *testing.T) {
	if *addGolden != "" {
		if err := os.Rename("testdata/golden/next", "testdata/golden/"+*addGolden); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/golden/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	zero := map[string]bool{}
	for _, file := range files {
		cfg, err := readConfig(file)
		if err == nil {
			err = cfg.checkNodes()
		}
		if err != nil {
			t.Errorf("it is refused: %v", err)
			continue
		}
		unset(reflect.ValueOf(cfg).Elem(), "", zero)
		// With the defaults of the agent.
		for i, p := range cfg.plugins() {
			cfg.Plugins[i].PluginConfig = p
		}
		now := parsed(t, cfg)
		name := strings.TrimSuffix(file, ".yaml") + ".json"
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) && *addGolden != "" {
			if text, err = json.MarshalIndent(now, "", " "); err == nil {
				err = os.WriteFile(name, append(text, '\n'), 0o644)
			}
		}
		if err != nil {
			t.Fatalf("%v: write it by -golden next", err)
		}
		before := parsed(t, json.RawMessage(text))
		if diff := cmp.Diff(before, known(before, now)); diff != "" {
			t.Errorf("%s (-before +now):\n%s", file, diff)
		}
	}
	for path, is := range zero {
		if is {
			t.Errorf("no golden file has %s: add one to testdata/golden/next", path)
		}
	}
}

// parsed returns a value in the types of JSON.
func parsed(t *testing.T, v any) (document any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&document); err != nil {
		t.Fatal(err)
	}
	return document
}

// known returns a document without the members of mappings that another document does not have.
func known(before, now any) any {
	switch now := now.(type) {
	case map[string]any:
		members, _ := before.(map[string]any)
		for name := range now {
			if of, ok := members[name]; ok {
				now[name] = known(of, now[name])
			} else if members != nil {
				delete(now, name)
			}
		}
	case []any:
		items, _ := before.([]any)
		for i := range now {
			if i < len(items) {
				now[i] = known(items[i], now[i])
			}
		}
	}
	return now
}

// unset sets zero[path] for each member that is zero, unless a file has it.
func unset(v reflect.Value, path string, zero map[string]bool) {
	is := v.IsZero()
	if before, ok := zero[path]; !ok || before {
		zero[path] = is
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	// The rooms of plugins and registries have their own golden files.
	if is || v.Kind() != reflect.Struct || strings.HasPrefix(v.Type().PkgPath(), "github.com/kubewasm/kubewasm/host") {
		if v.Kind() == reflect.Slice && v.Len() != 0 && v.Type().Elem() == reflect.TypeFor[pluginConfig]() {
			for i := range v.Len() {
				unset(v.Index(i).FieldByName("NodeSelector"), path+"[].nodeSelector", zero)
			}
		}
		return
	}
	for f, of := range v.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() {
			unset(of, path+"."+name, zero)
		}
	}
}
