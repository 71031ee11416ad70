package manage_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// inline is the source of a guest that denies everything with a text.
func inline(text string) string {
	return "module: {bytes: " + base64.StdEncoding.EncodeToString(says(text)) + "}"
}

// plugin is a plugin that denies everything with its name, if more does not say
// otherwise.
func plugin(name, more string) string {
	return "{name: " + name + ", " + inline(name) + more + "}"
}

// A file that does not say what is to be guarded is in service nowhere: at first, the
// manager is not ready, and says why; later, what was in service stays.
func TestConfigurationThatIsRefused(t *testing.T) {
	t.Parallel()
	match := func(rule string) string { return "plugins: [" + plugin("a", ", match: {rules: ["+rule+"]}") + "]\n" }
	group := func(fields string) string { return "groups: [{name: g, " + fields + "}]\n" }
	const member = "members: {m: {name: g.m, module: {file: m.wasm, follow: true}}}"
	tests := []struct{ name, file, want string }{
		{"nothing", "", "it declares no policies"},
		{"a recording with mistakes", "plugins: [" + plugin("a", ", record: {rate: 2, maxBytes: 1}") + "]\n", "record.path is empty"},
		{"white space", " \n\n", "it declares no policies"},
		{"a comment", "# policies: see the other file\n", "it declares no policies"},
		{"null", "null\n", "it declares no policies"},
		{"a beginning and no more", "---\n", "it declares no policies"},
		{"an empty mapping", "{}\n", "it declares no policies"},
		{"plugins that were lost", "plugins:\n", "plugins is null"},
		{"groups that are none, and no plugins", "groups: []\n", "it declares no policies"},
		{"a text", "plugins\n", "it is no mapping"},
		{"a list", "- name: a\n", "it is no mapping"},
		{"a list of texts", "plugins: [a]\n", "plugins[0] is a text, want a mapping"},
		{"a mapping of policies", "plugins: {a: {module: {file: a.wasm, follow: true}}}\n", "plugins is a mapping, want a list"},
		{"a policy that is null", "plugins: [" + plugin("a", "") + ", null]\n", "plugins[1] is null"},
		{"a second document", "plugins: []\n---\nplugins: [" + plugin("a", "") + "]\n", "it holds more than one document"},
		{"an empty document before it", "---\n# none\n---\nplugins: [" + plugin("a", "") + "]\n", "it declares no policies"},
		{"no YAML", "plugins: [{name: a\n", "did not find expected ',' or '}'"},
		{"a tab", "plugins:\n\t- name: a\n", "cannot start any token"},
		{"zero bytes", strings.Repeat("\x00", 100) + "\n", "control characters are not allowed"},
		{"a last line that was cut off", "plugins:\n- " + plugin("a", "") + "\n- name: b\n  module: {file: b.wasm, follow: true}\n  mode: Monitor", "the last line has no end"},
		{"a policy whose match was cut off", "plugins:\n- name: b\n  module: {file: b.wasm, follow: true}\n  match:\n", "plugins[0].match is null"},
		{"rules that were cut off", "plugins:\n- name: b\n  module: {file: b.wasm, follow: true}\n  match:\n    rules:\n", "plugins[0].match.rules is null"},
		{"a guestConfig that was cut off", "plugins:\n- name: b\n  module: {file: b.wasm, follow: true}\n  guestConfig:\n", "plugins[0].guestConfig is null"},
		{"a field in another case", "plugins: [" + plugin("a", ", Mode: Monitor") + "]\n", `unknown field "plugins[0].Mode"`},
		{"a list in another case", "Plugins: [" + plugin("a", "") + "]\n", `unknown field "Plugins"`},
		{"a field of a rule that is misspelt", match("{operation: [CREATE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}"), "unknown field"},
		{"a field that occurs twice", "plugins: [" + plugin("a", ", mode: Enforce, mode: Monitor") + "]\n", `key "mode" already set in map`},
		{"plugins that occur twice", "plugins: [" + plugin("a", "") + "]\nplugins: []\n", `key "plugins" already set in map`},
		{"a misspelt operation", match("{operations: [CREAT], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}"), `match.rules[0].operations has "CREAT"`},
		{"an operation in lower case", match("{operations: [create], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}"), `match.rules[0].operations has "create"`},
		{"no operations", match("{operations: [], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}"), "match.rules[0].operations is empty"},
		{"no resources", match("{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: []}"), "match.rules[0].resources is empty"},
		{"no groups", match("{operations: ['*'], apiGroups: [], apiVersions: ['*'], resources: ['*']}"), "match.rules[0].apiGroups is empty"},
		{"no versions", match("{operations: ['*'], apiGroups: ['*'], resources: ['*']}"), "match.rules[0].apiVersions is empty"},
		{"a resource that is empty", match("{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['']}"), `match.rules[0].resources has ""`},
		{"a kind for a resource", match("{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [Pods]}"), `match.rules[0].resources has "Pods"`},
		{"a group with a version", match("{operations: ['*'], apiGroups: [apps/v1], apiVersions: ['*'], resources: ['*']}"), `match.rules[0].apiGroups has "apps/v1"`},
		{"a version with a group", match("{operations: ['*'], apiGroups: ['*'], apiVersions: [apps/v1], resources: ['*']}"), `match.rules[0].apiVersions has "apps/v1"`},
		{"a misspelt scope", match("{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], scope: namespaced}"), `match.rules[0].scope is "namespaced"`},
		{"an operator of a selector that there is not", "plugins: [" + plugin("a", ", match: {objectSelector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}}") + "]\n", `match.objectSelector: "Is" is not a valid label selector operator`},
		{"a label that no object can have", "plugins: [" + plugin("a", ", match: {objectSelector: {matchLabels: {a: 'b c'}}}") + "]\n", "match.objectSelector: values[0][a]: Invalid value"},
		{"labels that the server does not have", "plugins: [" + plugin("a", ", match: {namespaceSelector: {matchLabels: {a: b}}}") + "]\n", "match.namespaceSelector needs the labels of namespaces"},
		{"two policies of one name", "plugins: [" + plugin("a", "") + ", " + plugin("a", ", mode: Monitor") + "]\n", `there are two policies "a"`},
		{"a plugin and a group of one name", "plugins: [" + plugin("g", "") + "]\n" + group("message: 'no', expression: m(), "+member), `there are two policies "g"`},
		{"a group without an expression", group("message: 'no', " + member), `group "g": expression: `},
		{"an expression of others", group("message: 'no', expression: n(), " + member), `group "g": expression: `},
		{"a group without a message", group("expression: m(), " + member), `group "g": message is empty`},
		{"a group with a misspelt operation", group("message: 'no', expression: m(), " + member + ", match: {rules: [{operations: [CREAT], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}"), `group "g": match.rules[0].operations has "CREAT"`},
		{"a member with a failure policy", group("message: 'no', expression: m(), members: {m: {name: g.m, module: {file: m.wasm, follow: true}, failurePolicy: Ignore}}"), `group "g": member m has match, order`},
		{"a member that is switched off", group("message: 'no', expression: m(), members: {m: {name: g.m, module: {file: m.wasm, follow: true}, enabled: false}}"), `group "g": member m has match, order`},
		{"a digest that was cut off", "plugins: [" + "{name: a, module: {file: a.wasm, sha256: 9f86d081}}" + "]\n", `module.sha256 "9f86d081" is not 64`},
		{"a timeout without a unit", "plugins: [" + plugin("a", ", limits: {timeout: '5'}") + "]\n", `plugins[0].limits.timeout is "5", want a duration`},
	}
	f := start(t, nil)
	good, err := manage.ParseFile([]byte("plugins: [" + plugin("good", "") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			parsed, err := manage.ParseFile([]byte(test.file))
			if err == nil {
				err = f.Apply(t.Context(), parsed)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
			if got := f.ask("Pod"); got != "good" {
				t.Errorf("message is %q", got)
			}
			t.Parallel() // The file waits until it has settled.
			fresh := start(t, nil)
			file := fresh.write(t, "policies.yaml", test.file)
			if err := fresh.FollowFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
			if err := fresh.Ready(); err == nil || !strings.Contains(err.Error(), "policies are not in service: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ready is %v, want %s", err, test.want)
			}
		})
	}
}

// Every mistake is named, of the form as of the contents.
func TestParseFileNamesMistakesOfEveryForm(t *testing.T) {
	_, err := manage.ParseFile([]byte(`
plugins:
- {name: a, order: first, limits: {fuel: much}, Mode: Monitor, match: {rules: [{operation: [CREATE]}]}}
- {name: b, module: {sauce: x}, guestConfig: {inner: null}, match: null}
groups:
- {name: g, members: [x]}
gruops: []
policies: 7`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"the last line has no end", "plugins[1].match is null", `unknown field "gruops"`, `unknown field "policies"`,
		"plugins[0].limits.fuel is a text, want a whole number",
		"plugins[0].order is a text, want a whole number", `unknown field "plugins[0].Mode"`, `unknown field "plugins[0].match.rules[0].operation"`,
		`unknown field "plugins[1].module.sauce"`, "groups[0].members is a list, want a mapping",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "inner") {
		t.Errorf("what is in guestConfig is the guest's: %v", err)
	}
}

func TestFileWithoutPoliciesThatSaysSo(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	file := f.write(t, "policies.yaml", "plugins: ["+plugin("a", "")+"]\n")
	if err := f.FollowFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	f.write(t, "policies.yaml", "plugins: []\n")
	f.until(t, "Pod", "")
	until(t, "ready", func() bool { return f.Ready() == nil })
}

// What a policy is meant for is denied as the file says last, with the reason that is
// the last, as long as the policy was never in service.
func TestWhatStandsForAPolicyFollowsTheFile(t *testing.T) {
	f := start(t, nil)
	apply := func(fields string) {
		t.Helper()
		parsed, err := manage.ParseFile([]byte("plugins: [{name: p, module: {file: " + f.dir + "/p.wasm, follow: true}, " + fields + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Apply(t.Context(), parsed); err == nil {
			t.Fatal("no error")
		}
	}
	denied := func(kind, want string) {
		t.Helper()
		if got := f.ask(kind); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("message about a %s is %q, want %q", kind, got, want)
		}
	}
	rules := func(resource string) string {
		return "match: {rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [" + resource + "]}]}"
	}
	apply(rules("pods") + ", mode: Monitor")
	denied("Pod", "")
	apply(rules("pods") + ", failurePolicy: Ignore")
	if got := f.ask("Pod"); !strings.HasSuffix(got, "(ignored)") {
		t.Errorf("warning is %q", got)
	}
	apply(rules("nodes"))
	denied("Pod", "")
	denied("Node", `policy "p" is not available: plugin "p": fetch module: `)
	f.write(t, "p.wasm", "no module")
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(f.ask("Node"), "load module") {
		if time.Now().After(deadline) {
			t.Fatalf("message is %q", f.ask("Node"))
		}
		time.Sleep(5 * time.Millisecond)
	}
	// It becomes a group, and the group cannot be loaded either.
	parsed, err := manage.ParseFile([]byte("groups: [{name: p, expression: m(), message: 'no', " + rules("pods") + ", members: {m: {name: p.m, module: {file: " + f.dir + "/none.wasm, follow: true}}}}]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), parsed); err == nil {
		t.Error("no error")
	}
	denied("Node", "")
	denied("Pod", `policy "p" is not available: group "p": member m: `)
	if err := f.Ready(); err == nil || !strings.HasPrefix(err.Error(), `policy "p" is not available: group "p": member m: `) {
		t.Errorf("ready is %v", err)
	}
}

// The file before is in service again when it is put back, whatever was wrong with
// the one between.
func TestConfigurationThatIsPutBack(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	first := "plugins: [" + plugin("a", "") + "]\n"
	file := f.write(t, "policies.yaml", first)
	if err := f.FollowFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	f.write(t, "policies.yaml", "plugins: ["+plugin("b", "")+", {name: c, module: {file: none.wasm, follow: true}, mode: Monitor}]\n")
	f.until(t, "Pod", "b: b")
	f.write(t, "policies.yaml", first)
	f.until(t, "Pod", "a")
}

// A module that is pinned, and could not be had at first, is in service when it can.
func TestPinnedModuleIsFetchedAgain(t *testing.T) {
	var answers atomic.Value
	answers.Store([]byte(nil))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if module := answers.Load().([]byte); module != nil {
			w.Write(module)
			return
		}
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	f := start(t, func(c *manage.Config) {
		c.Runtime.AddSources(host.Sources{HTTPS: host.HTTPSOptions{Client: server.Client()}})
	})
	module := says("there")
	parsed, err := manage.ParseFile([]byte("plugins: [{name: p, module: {https: '" + server.URL + "', sha256: " + digest(module) + "}}]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), parsed); err == nil {
		t.Fatal("no error")
	}
	answers.Store(says("another"))
	for deadline := time.Now().Add(time.Minute); !strings.Contains(f.ask("Pod"), "sha256 of the module is"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("message is %q", f.ask("Pod"))
		}
	}
	answers.Store(module)
	f.until(t, "Pod", "there")
}

// A file with the name of a policy of the API waits until that is removed, and is in
// service then.
func TestNameThatTheAPIHasAlready(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	if err := f.Load(t.Context(), manage.PluginSpec{PluginConfig: admission.PluginConfig{Config: host.Config{Name: "p"}, PolicyRules: admission.PolicyRules{Mode: "Monitor"}}}, says("api")); err != nil {
		t.Fatal(err)
	}
	file := f.write(t, "policies.yaml", "plugins: ["+plugin("p", "")+", "+plugin("q", "")+"]\n")
	const want = `policy "p": was loaded by the management API already`
	if err := f.FollowFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v", err)
	}
	if err := f.Ready(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ready is %v", err)
	}
	if err := f.Remove("p"); err != nil {
		t.Fatal(err)
	}
	f.until(t, "Pod", "p: p; q: q")
	until(t, "ready", func() bool { return f.Ready() == nil })
}

// A mounted ConfigMap: the kubelet swaps a link, and removes the old directory.
func TestConfigMapIsSwapped(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	version := 0
	put := func(content string) {
		t.Helper()
		version++
		dir := filepath.Join(f.dir, "..v"+string(rune('0'+version)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		old, _ := os.Readlink(filepath.Join(f.dir, "..data"))
		if err := os.Symlink(filepath.Base(dir), filepath.Join(f.dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(f.dir, "..new"), filepath.Join(f.dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if old != "" {
			if err := os.RemoveAll(filepath.Join(f.dir, old)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("plugins: [" + plugin("a", "") + "]\n")
	file := filepath.Join(f.dir, "policies.yaml")
	if err := os.Symlink("..data/policies.yaml", file); err != nil {
		t.Fatal(err)
	}
	if err := f.FollowFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	put("")
	put("# none\n")
	put("plugins: [" + plugin("b", "") + "]\n")
	f.until(t, "Pod", "b")
	// The file goes, and comes again.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	put("plugins: [" + plugin("c", "") + "]\n")
	if got := f.ask("Pod"); got != "b" {
		t.Errorf("message is %q", got)
	}
	if err := os.Symlink("..data/policies.yaml", file); err != nil {
		t.Fatal(err)
	}
	f.until(t, "Pod", "c")
	until(t, "ready", func() bool { return f.Ready() == nil })
}

// What is no file to read keeps the manager unready, and says why.
func TestFileThatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		make func(file string) error
		want string
	}{
		"it is not there":          {func(string) error { return nil }, "no such file"},
		"it is a directory":        {func(file string) error { return os.Mkdir(file, 0o700) }, "want a regular file"},
		"it is a link to itself":   {func(file string) error { return os.Symlink(file, file) }, "too many levels of symbolic links"},
		"it is a link to nowhere":  {func(file string) error { return os.Symlink(file+".gone", file) }, "no such file"},
		"it has no end":            {func(file string) error { return os.Symlink("/dev/zero", file) }, "want a regular file"},
		"it is larger than memory": {func(file string) error { return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<40)) }, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, nil)
			file := filepath.Join(f.dir, "policies.yaml")
			if err := test.make(file); err != nil {
				t.Fatal(err)
			}
			if err := f.FollowFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v", err)
			}
			if err := f.Ready(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ready is %v", err)
			}
		})
	}
}

// With the labels of namespaces, a policy that needs them is asked; one about whose
// namespace nothing can be known fails.
func TestNamespaceSelector(t *testing.T) {
	f := start(t, func(c *manage.Config) {
		c.Namespaces = func(_ context.Context, name string) (map[string]string, error) {
			if name == "unknown" {
				return nil, errors.New("no answer")
			}
			return map[string]string{"name": name}, nil
		}
	})
	parsed, err := manage.ParseFile([]byte("plugins: [" + plugin("a", ", match: {namespaceSelector: {matchLabels: {name: shop}}}") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), parsed); err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]string{"shop": "a", "other": "", "unknown": `policy "a": match: labels of namespace "unknown": no answer`} {
		r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Namespace: namespace}
		r.Object.Raw = []byte(`{}`)
		response, got := f.engine.Validate(t.Context(), r), ""
		if !response.Allowed {
			got = said(f.engine, response)
		}
		if got != want {
			t.Errorf("in %s: %q, want %q", namespace, got, want)
		}
	}
}

// FuzzParseFile: whatever is in a file, it declares policies that would be asked, or
// says that there are none, or is refused.
func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{
		"plugins: []", "plugins: [{name: a, module: {file: x, follow: true}}]", "groups: [{name: g, expression: m(), message: 'no', members: {m: {name: m, module: {file: x, follow: true}}}}]",
		"---\n&a [*a]", "plugins: &x [{name: a, module: {file: x, follow: true}, match: {rules: []}}]\ngroups: *x", "plugins:\n- name: a\n  source:\n", "? [a]\n: b\n", "<<: {plugins: []}\n",
		"{\"plugins\":[{\"name\":\"a\",\"guestConfig\":null}]}", "plugins: !!binary aGk=\n", "plugins: [{name: 2026-01-01, module: {file: 0x7, follow: true}}]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := manage.ParseFile([]byte(text))
		if err == nil && len(file.Plugins)+len(file.Groups) == 0 && !strings.Contains(text, "plugins") {
			t.Fatalf("%q declares nothing", text)
		}
	})
}

// While a version that matches more cannot be loaded, what only that is meant for does
// not pass; the version in service goes on with its own.
func TestNewVersionThatMatchesMore(t *testing.T) {
	f := start(t, nil)
	apply := func(source, resources, fields string) error {
		t.Helper()
		parsed, err := manage.ParseFile([]byte("plugins: [{name: p, " + source + ", match: {rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: " + resources + "}]}" + fields + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		return f.Apply(t.Context(), parsed)
	}
	asks := func(want map[string]string) {
		t.Helper()
		for kind, want := range want {
			// With what stands beside it, the policy has its name in messages.
			if got := strings.TrimPrefix(f.ask(kind), "p: "); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("message about a %s is %q, want %q", kind, got, want)
			}
			one, ok := f.engine.ForPolicy("p")
			if !ok {
				t.Fatal("the policy is gone")
			}
			r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create}
			r.Resource.Version, r.Resource.Resource = "v1", strings.ToLower(kind)+"s"
			if response := one.Validate(t.Context(), r); response.Allowed != (want == "") {
				t.Errorf("the policy alone says about a %s: %+v", kind, response)
			}
		}
	}
	broken := "module: {file: " + f.dir + "/none.wasm, follow: true}"
	const gone = `policy "p" is not available: `
	if err := apply(inline("one"), "[pods]", ""); err != nil {
		t.Fatal(err)
	}
	asks(map[string]string{"Pod": "one", "Node": "", "Secret": ""})
	if err := apply(broken, "[pods, nodes]", ""); err == nil {
		t.Error("no error")
	}
	asks(map[string]string{"Pod": "one", "Node": gone, "Secret": ""})
	if err := apply(broken, "[secrets]", ""); err == nil {
		t.Error("no error")
	}
	asks(map[string]string{"Pod": "one", "Node": "", "Secret": gone})
	if err := apply(broken, "[secrets]", ", mode: Monitor"); err == nil {
		t.Error("no error")
	}
	asks(map[string]string{"Pod": "one", "Node": "", "Secret": ""})
	if err := apply(inline("two"), "[pods]", ", mode: Monitor"); err != nil {
		t.Fatal(err)
	}
	asks(map[string]string{"Pod": "", "Node": ""})
	if err := apply(broken, "[pods]", ""); err == nil {
		t.Error("no error")
	}
	asks(map[string]string{"Pod": gone, "Node": ""})
	if err := apply(inline("three"), "[pods]", ""); err != nil {
		t.Fatal(err)
	}
	asks(map[string]string{"Pod": "three", "Node": ""})
}
