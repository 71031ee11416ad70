package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/jsonfields"
	"github.com/kubewasm/kubewasm/internal/management"
	"github.com/kubewasm/kubewasm/sched"
)

var addGolden = flag.String("golden", "", "make testdata/golden/next the set of the version `vX.Y`, and write what is read from files without a .json, before the tests")

const (
	golden = "testdata/golden"
	// next is the set of the next release: the files with members that no earlier version has. They may
	// change until -golden gives the set a name. Those of other sets stay as they are: TestGoldenFilesStay of
	// internal/testkit/layout.
	next = "next"
)

// forms are the forms of configuration of the golden files, by the beginnings of their names, and the
// functions that programs read them with. Those of programs alone are beside the programs.
var forms = map[string]struct {
	of   reflect.Type
	read func(file string, text []byte) (any, error)
}{
	"policies":     {reflect.TypeFor[manage.File](), func(_ string, text []byte) (any, error) { return manage.ParseFile(text) }},
	"scheduler":    {reflect.TypeFor[sched.PluginConfig](), decoded[sched.PluginConfig]},
	"hook":         {reflect.TypeFor[hooks.PluginConfig](), decoded[hooks.PluginConfig]},
	"service":      {reflect.TypeFor[service.Config](), decoded[service.Config]},
	"registries":   {reflect.TypeFor[oci.Config](), func(file string, _ []byte) (any, error) { return oci.ReadConfig(file) }},
	"guests":       {reflect.TypeFor[policyserver.Guests](), func(_ string, text []byte) (any, error) { return policyserver.ReadGuests(text) }},
	"policyserver": {reflect.TypeFor[map[string]policyserver.Policy](), func(_ string, text []byte) (any, error) { return policyserver.ParseFile(text) }},
	"management": {reflect.TypeFor[management.Config](), func(file string, text []byte) (any, error) {
		cfg, err := decoded[management.Config](file, text)
		return cfg, errors.Join(err, cfg.(*management.Config).Check())
	}},
}

// decoded decodes a text as a program does. A value of a type that decodes itself is decoded by that, too.
func decoded[T any](_ string, text []byte) (any, error) {
	v := new(T)
	err := configfile.YAML(text, v)
	if of, ok := any(v).(json.Unmarshaler); ok && err == nil {
		asJSON, convertErr := yaml.YAMLToJSON(text)
		other := new(T)
		of = any(other).(json.Unmarshaler)
		if err = errors.Join(convertErr, of.UnmarshalJSON(asJSON)); err == nil && fmt.Sprint(plain(reflect.ValueOf(v))) != fmt.Sprint(plain(reflect.ValueOf(other))) {
			err = errors.New("UnmarshalJSON reads something else")
		}
	}
	return v, err
}

// plain returns a configuration in the types of JSON, with all members that it may have. A struct without
// any value is null, so that one that gets a default differs.
func plain(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return plain(v.Elem())
	}
	ours := strings.HasPrefix(t.PkgPath(), "github.com/kubewasm/kubewasm/")
	switch of := v.Interface().(type) {
	case time.Duration:
		return of.String()
	case dialect.Config:
		members := map[string]any{}
		for name, raw := range of {
			to := reflect.New(dialects[name])
			if err := configfile.JSON(raw, to.Interface()); err != nil {
				panic(err)
			}
			members[name] = plain(to)
		}
		return members
	case json.Marshaler:
		if ours && t.Kind() == reflect.Struct {
			break
		}
		text, err := json.Marshal(of)
		if err != nil {
			panic(err)
		}
		return parsed(text)
	case fmt.Stringer:
		if t.Kind() == reflect.Int32 {
			return of.String()
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		if v.IsZero() {
			return nil
		}
		members := map[string]any{}
		for _, f := range jsonfields.Of(t) {
			if of, err := v.FieldByIndexErr(f.Index); err == nil && of.Kind() != reflect.Func {
				members[f.Name] = plain(of)
			}
		}
		return members
	case reflect.Map:
		if v.IsNil() {
			return nil
		}
		members := map[string]any{}
		for of := v.MapRange(); of.Next(); {
			members[of.Key().String()] = plain(of.Value())
		}
		return members
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
		if t.Elem().Kind() == reflect.Uint8 {
			return base64.StdEncoding.EncodeToString(v.Bytes())
		}
		items := []any{}
		for i := range v.Len() {
			items = append(items, plain(v.Index(i)))
		}
		return items
	}
	return v.Interface()
}

// parsed returns a document in JSON with the digits of its numbers.
func parsed(text []byte) (document any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&document); err != nil {
		panic(err)
	}
	return document
}

// lost returns what is no longer in a document, or has another value. A document may have more members.
func lost(path string, before, now any) (all []string) {
	switch before := before.(type) {
	case map[string]any:
		members, ok := now.(map[string]any)
		if !ok {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if of, ok := members[name]; ok {
				all = append(all, lost(path+"."+name, before[name], of)...)
			} else {
				all = append(all, path+"."+name+" is gone")
			}
		}
		return all
	case []any:
		items, ok := now.([]any)
		if !ok || len(items) != len(before) {
			break
		}
		for i := range before {
			all = append(all, lost(fmt.Sprintf("%s[%d]", path, i), before[i], items[i])...)
		}
		return all
	}
	if !reflect.DeepEqual(before, now) {
		all = append(all, fmt.Sprintf("%s is %.200v, was %.200v", path, now, before))
	}
	return all
}

// goldenFiles returns the golden files, by their forms.
func goldenFiles(t *testing.T) map[string][]string {
	t.Helper()
	if *addGolden != "" {
		if err := os.Rename(filepath.Join(golden, next), filepath.Join(golden, *addGolden)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(golden + "/*/*.y*ml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, file := range files {
		form, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".yaml"), ".yml"), "-")
		if forms[form].read == nil {
			t.Errorf("%s: no such form", file)
		}
		all[form] = append(all[form], file)
	}
	return all
}

// TestGoldenConfigurations reads the golden files as the programs of today do: nothing is refused, and each
// member has the value that it had when the file was added.
func TestGoldenConfigurations(t *testing.T) {
	for form, files := range goldenFiles(t) {
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				cfg, err := forms[form].read(file, text)
				if err != nil {
					t.Fatalf("it is refused: %v", err)
				}
				now, err := json.MarshalIndent(plain(reflect.ValueOf(cfg)), "", " ")
				if err != nil {
					t.Fatal(err)
				}
				name := strings.TrimSuffix(file, filepath.Ext(file)) + ".json"
				before, err := os.ReadFile(name)
				if errors.Is(err, os.ErrNotExist) && *addGolden != "" {
					before, err = now, os.WriteFile(name, append(now, '\n'), 0o644)
				}
				if err != nil {
					t.Fatalf("%v: write it by -golden %s", err, next)
				}
				for _, mistake := range lost("", parsed(before), parsed(now)) {
					t.Error(mistake)
				}
			})
		}
	}
}

// TestGoldenDefaults holds the default limits of each set: a file without a limit means the same. The number
// of instances depends on the machine.
func TestGoldenDefaults(t *testing.T) {
	sets, err := filepath.Glob(golden + "/*/defaults.json")
	if err != nil || len(sets) == 0 {
		t.Fatalf("%d files, error %v", len(sets), err)
	}
	now, err := json.Marshal(plain(reflect.ValueOf(host.DefaultLimits())))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sets {
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, mistake := range lost("limits", parsed(before), parsed(now)) {
			t.Errorf("%s: %s", file, mistake)
		}
	}
}

// unused are properties that no golden file can have, by their beginnings, and the reasons.
var unused = map[string]string{
	"policies.plugins[].objects[].query":          "only schedulers and services have queries",
	"policies.groups[].members{}.objects[].query": "only schedulers and services have queries",
	"policies.groups[].members{}.match":           "the rules are those of the group",
	"policies.groups[].members{}.order":           "the rules are those of the group",
	"policies.groups[].members{}.mode":            "the rules are those of the group",
	"policies.groups[].members{}.failurePolicy":   "the rules are those of the group",
	"policies.groups[].members{}.enabled":         "the rules are those of the group",
	"hook.objects[].query":                        "only schedulers and services have queries",
	"hook.objects[].namespaces":                   "the objects of a node have no namespaces",
}

// TestGoldenConfigurationsHaveAllMembers finds members of the schemas that no golden file has.
func TestGoldenConfigurationsHaveAllMembers(t *testing.T) {
	for name := range files {
		if forms[name].of != files[name].of {
			t.Errorf("the form %s is not among those of the golden files", name)
		}
	}
	found := goldenFiles(t)
	reasons := maps.Clone(unused)
	w := writer{comments: comments{}}
	for form, f := range forms {
		s, err := w.schema(f.of, "")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		of := parsed(text).(map[string]any)
		missing := map[string]bool{}
		members(of, form, func(path string) { missing[path] = true })
		for _, file := range found[form] {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var document any
			if err := yaml.Unmarshal(text, &document); err != nil {
				t.Fatal(err)
			}
			used(of, document, form, func(path string) { delete(missing, path) })
		}
		for _, path := range slices.Sorted(maps.Keys(missing)) {
			known := false
			for beginning := range unused {
				if path == beginning || strings.HasPrefix(path, beginning+".") {
					known = true
					delete(reasons, beginning)
				}
			}
			if !known {
				t.Errorf("no golden file has %s: add one to %s/%s", path, golden, next)
			}
		}
	}
	for path := range reasons {
		t.Errorf("a golden file has %s, or there is no such member", path)
	}
}

// members calls each with every property of a schema below path.
func members(s map[string]any, path string, each func(path string)) {
	properties, _ := s["properties"].(map[string]any)
	for name, of := range properties {
		each(path + "." + name)
		members(of.(map[string]any), path+"."+name, each)
	}
	if items, ok := s["items"].(map[string]any); ok {
		members(items, path+"[]", each)
	}
	if entries, ok := s["additionalProperties"].(map[string]any); ok {
		members(entries, path+"{}", each)
	}
}

// used calls each with every property of a schema that a value has.
func used(s map[string]any, value any, path string, each func(path string)) {
	switch value := value.(type) {
	case []any:
		items, _ := s["items"].(map[string]any)
		for _, item := range value {
			used(items, item, path+"[]", each)
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		entries, _ := s["additionalProperties"].(map[string]any)
		for name, item := range value {
			if of, ok := properties[name].(map[string]any); ok {
				each(path + "." + name)
				used(of, item, path+"."+name, each)
			} else if entries != nil {
				used(entries, item, path+"{}", each)
			}
		}
	}
}

// TestGoldenSpecsAreRead reads the specs of the golden objects of the controller as the programs do. The
// server's part of their round trip is tested there.
func TestGoldenSpecsAreRead(t *testing.T) {
	found, err := filepath.Glob("../../../cmd/kubewasm-controller/" + golden + "/*/objects/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]int{}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimSuffix(filepath.Base(file), ".yaml")
		kind, _, _ = strings.Cut(kind, "-")
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object struct {
				Spec     map[string]json.RawMessage `json:"spec"`
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			fail := func(err error) {
				if err != nil {
					t.Errorf("%s: %s: %v", file, object.Metadata.Name, err)
				}
			}
			if kind == "moduletrusts" {
				spec, err := json.Marshal(object.Spec)
				fail(err)
				_, err = clusterplugins.TrustsOf([]clusterplugins.Object{{Kind: clusterplugins.ModuleTrusts.Kind, Name: object.Metadata.Name, Spec: spec}})
				fail(err)
				read[kind]++
				continue
			}
			of, ok := crds[kind]
			if !ok {
				continue
			}
			read[kind]++
			if text := object.Spec["rollout"]; text != nil {
				fail(configfile.JSON(text, new(clusterplugins.Rollout)))
			}
			if text := object.Spec[clusterplugins.ConfigFrom]; text != nil {
				var from struct {
					From []clusterplugins.GuestConfigFrom `json:"from"`
				}
				fail(configfile.JSON(fmt.Appendf(nil, `{"from":%s}`, text), &from))
			}
			for _, name := range append(slices.Collect(maps.Keys(of.more)), "rollout", clusterplugins.ConfigFrom, "revision", "revisionHistoryLimit") {
				delete(object.Spec, name)
			}
			spec, err := json.Marshal(object.Spec)
			fail(err)
			plugin := reflect.New(of.of)
			fail(configfile.JSON(spec, plugin.Interface()))
			m := plugin.Elem().FieldByName("Module").Interface().(host.ModuleConfig)
			fail(errors.Join(m.Check("module")...))
		}
	}
	for kind := range crds {
		if read[kind] == 0 {
			t.Errorf("no golden object is one of %s", kind)
		}
	}
	if read["moduletrusts"] == 0 {
		t.Error("no golden object is a ModuleTrust")
	}
}
