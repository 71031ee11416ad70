package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// leaks are texts that speak of the implementation, and not of the mistake.
var leaks = regexp.MustCompile(`cannot unmarshal|into Go |\bGo (struct|value)|%!|\(\*?[a-z]+\.[A-Z]|regular expression|json: |runtime error`)

// mistake is a mistake of a beginner, and the words of the message that are to lead out of it.
type mistake struct {
	name string
	args []string
	want string
}

// check makes each of the mistakes. A message names what was found and what was wanted.
func check(t *testing.T, mistakes []mistake) {
	t.Helper()
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, m.args...)
			if !strings.Contains(stderr, m.want) {
				t.Errorf("exit code %d, said %s%s\nwant %s", code, out, stderr, m.want)
			}
			if leak := leaks.FindString(stderr); leak != "" {
				t.Errorf("a message for beginners has %q: %s", leak, stderr)
			}
		})
	}
}

// directory writes files to a new directory and returns its name.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "guest")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	beginnersNode = "\n---\n{apiVersion: v1, kind: Node, metadata: {name: node}}\n"
	beginnersPod  = "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}\n"
)

func TestMessagesAboutObjects(t *testing.T) {
	zone := built(t, "testdata/zone")
	run := func(objects string) []string { return []string{"run", "-f", file(t, "objects.yaml", objects), zone} }
	check(t, []mistake{
		{"a kind in small letters", run("{apiVersion: v1, kind: node, metadata: {name: a}}" + beginnersPod), "there are 1 and 0; the node a is of kind node in v1, want Node in v1"},
		{"a kind in the plural", run("{apiVersion: v1, kind: Nodes, metadata: {name: a}}" + beginnersPod), "the Nodes a is of kind Nodes in v1, want Node in v1"},
		{"a Pod of apps/v1", run("{apiVersion: apps/v1, kind: Pod, metadata: {name: a}}" + beginnersNode), "the Pod a is of kind Pod in apps/v1, want Pod in v1"},
		{"a name that YAML takes for a boolean", run("{apiVersion: v1, kind: Pod, metadata: {name: y}}" + beginnersNode), "metadata.name is true or false, want a text; YAML reads y, n, yes, no, on and off without quotes as true or false"},
		{"label in the place of labels", run("{apiVersion: v1, kind: Pod, metadata: {name: a, label: {a: b}}, spec: {containers: [{name: a}]}}" + beginnersNode), `document 1: the Pod a: unknown field "metadata.label", did you mean "labels"?`},
		{"a text in the place of objects", run("just a text"), "document 1: it is a text, want a mapping"},
		{"a list in the place of objects", run("- {apiVersion: v1, kind: Pod}"), "document 1: it is a list, want a mapping"},
		{"cores behind a quantity", run("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, resources: {requests: {cpu: 1.5 cores}}}]}}" + beginnersNode), `the Pod a: spec.containers[0].resources.requests.cpu is "1.5 cores", want a quantity such as 500m, 1.5, 128Mi or 2G`},
		{"megabytes as 1GB", run("{apiVersion: v1, kind: Node, metadata: {name: a}, status: {capacity: {memory: 1GB}}}" + beginnersPod), `the Node a: status.capacity.memory is "1GB", want a quantity such as 500m, 1.5, 128Mi or 2G`},
		{"one container without a list", run("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: {name: a}}}" + beginnersNode), "the Pod a: spec.containers is a mapping, want a list"},
		{"a number for a label", run("{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {tier: 1}}}" + beginnersNode), "metadata.labels is a number, want a text"},
		{"a tab", run("apiVersion: v1\nkind: Pod\nmetadata:\n\tname: p\n"), "found character that cannot start any token"},
		{"no apiVersion", run("{kind: Pod, metadata: {name: a}}"), "the Pod has no apiVersion"},
		{"an empty file", run(""), "no objects in it"},
		{"no file", []string{"run", zone}, "run: name a file of objects with -f"},
		{"a manifest in the place of a module", []string{"inspect", file(t, "pod.yaml", beginnersPod)}, "it is no WebAssembly module"},
	})
}

func TestMessagesAboutPolicies(t *testing.T) {
	objects := file(t, "objects.yaml", beginnersPod)
	audit := func(policies string) []string {
		return []string{"audit", "-f", objects, "--policies", file(t, "policies.yaml", policies+"\n")}
	}
	const rules = `match: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}`
	one := func(more string) []string {
		return audit("plugins: [{name: p, module: {file: p.wasm, follow: true}, " + rules + ", " + more + "}]")
	}
	match := func(rule string) []string {
		return audit("plugins: [{name: p, module: {file: p.wasm, follow: true}, match: {rules: [" + rule + "]}}]")
	}
	check(t, []mistake{
		{"memory as in a Pod", one("limits: {memoryBytes: 64MB}"), `plugins[0].limits.memoryBytes is "64MB", want a whole number of bytes or a quantity such as 64Mi`},
		{"memory in megabytes", one("limits: {memoryBytes: 0.5}"), "limits.memoryBytes is the number 0.5, want a whole number"},
		{"a timeout without a unit", one("limits: {timeout: 100}"), "plugins[0].limits.timeout is the number 100, want a duration such as 100ms"},
		{"an order in words", one("order: first"), "order is a text, want a whole number"},
		{"one grant without a list", one("grants: clock"), "grants is a text, want a list of texts"},
		{"yes in quotes", one(`allowedToMutate: "yes"`), "allowedToMutate is a text, want true or false"},
		{"a duration for a count", one("circuitBreaker: {after: 1s}"), "circuitBreaker.after is a text, want a whole number"},
		{"limits as a list", one("limits: [{fuel: 1000}]"), "limits is a list, want a mapping"},
		{"a policy in other words", one("mode: enforce"), `mode is "enforce", want Enforce or Monitor`},
		{"a failure policy in small letters", one("failurePolicy: fail"), `failurePolicy is "fail", want Fail or Ignore`},
		{"one version without a list", match(`{operations: [CREATE], apiGroups: [""], apiVersions: v1, resources: [pods]}`), "plugins[0].match.rules[0].apiVersions is a text, want a list of texts"},
		{"a kind in the place of a resource", match(`{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [Pod]}`), `resources has "Pod", want a resource in lower case`},
		{"an operation in small letters", match(`{operations: [create], apiGroups: [""], apiVersions: [v1], resources: [pods]}`), `operations has "create", want CREATE`},
		{"a group with its version", match(`{operations: [CREATE], apiGroups: [apps], apiVersions: [apps/v1], resources: [deployments]}`), `apiVersions has "apps/v1", want a version such as v1`},
		{"one rule without a list", audit(`plugins: [{name: p, module: {file: p.wasm, follow: true}, match: {rules: {operations: [CREATE]}}}]`), "match.rules is a mapping, want a list"},
		{"resources in the place of rules", audit(`plugins: [{name: p, module: {file: p.wasm, follow: true}, match: [pods]}]`), "match is a list, want a mapping"},
		{"a path in the place of a module", audit(`plugins: [{name: p, module: p.wasm, ` + rules + `}]`), "plugins[0].module is a text, want a mapping"},
		{"a name with capitals", audit(`plugins: [{name: My_Policy, module: {file: p.wasm, follow: true}, ` + rules + `}]`), "a name is at most 63 lower-case letters, digits, '-' and '.'"},
		{"a list of policies alone", audit("- name: p"), "it is no mapping with plugins and groups"},
		{"one policy without a list", audit("plugins: {name: p}"), "plugins is a mapping, want a list"},
		{"policies in other words", audit("policies: []"), `unknown field "policies", there are breakGlass, groups, logLevel, plugins`},
	})
}

func TestMessagesAboutTheCommand(t *testing.T) {
	zone := built(t, "testdata/zone")
	check(t, []mistake{
		{"a language by its name", []string{"new", "--kind", "scheduler", "--lang", "typescript", "x"}, "did you mean --lang as?"},
		{"a language with a capital", []string{"new", "--kind", "scheduler", "--lang", "Rust", "x"}, "did you mean --lang rust?"},
		{"a policy as a kind", []string{"new", "--kind", "policy", "x"}, `unknown kind "policy"; did you mean "admission"?`},
		{"a controller as a kind", []string{"new", "--kind", "controller", "x"}, `unknown kind "controller"; did you mean "service"?`},
		{"a kind with a capital", []string{"new", "--kind", "Scheduler", "x"}, `did you mean "scheduler"?`},
		{"a directory without source", []string{"build", t.TempDir()}, "want files in Go or C, a Cargo.toml or an asconfig.json; kubewasm new writes a plugin"},
		{"a file of the source", []string{"build", "testdata/zone/main.go"}, "name the directory of a package, not a file"},
		{"a reference with https", []string{"pull", "https://registry.example.com/zone:1"}, `want oci or none, as in "registry.example.com/zone:1"`},
		{"a reference without a tag", []string{"push", zone, "registry.example.com/zone"}, "tag and digest are missing: a reference is like registry.example.com/zone:1.2"},
		{"a command with letters swapped", []string{"biuld"}, `unknown command "biuld"; did you mean "build"?`},
		{"a flag of other tools", []string{"run", "--file", "x", zone}, "did you mean --filename?"},
	})
}

func TestMessagesOfC(t *testing.T) {
	if _, err := exec.LookPath("clang"); err != nil {
		languages.Check(t, err)
		return
	}
	build := func(text string) []string {
		return []string{"build", "--output-file", filepath.Join(t.TempDir(), "o.wasm"), directory(t, map[string]string{"main.c": "#include <kubewasm.h>\n" + text})}
	}
	check(t, []mistake{
		{"a semicolon is missing", build("KW_FILTER(cycle, pod, node) { return KW_SUCCESS }"), "main.c:2:48: error: expected ';'"},
		{"no return", build("KW_VALIDATE(req) { if (0) return kw_deny(\"no\"); }"), "error: non-void function does not return a value"},
		{"an accessor that is none", build("KW_FILTER(cycle, pod, node) { return kw_unschedulable(core_Pod_nam(pod)); }"), "implicit declaration of function 'core_Pod_nam'"},
		{"printf", build("#include <stdio.h>\nKW_FILTER(cycle, pod, node) { printf(\"x\"); return KW_SUCCESS; }"), "hint: a guest has no libc: kw_take gives memory"},
		{"malloc", build("KW_FILTER(cycle, pod, node) { char *p = malloc(10); p[0] = 1; return KW_SUCCESS; }"), "hint: a guest has no libc: kw_take gives memory"},
		{"strcmp", build("KW_FILTER(cycle, pod, node) { return strcmp(\"a\", \"b\") ? KW_SUCCESS : KW_ERROR; }"), "hint: a guest has no libc"},
		{"a macro with letters left out", build("KW_FILTR(cycle, pod, node) { return KW_SUCCESS; }"), "hint: there is no macro KW_FILTR; did you mean KW_FILTER?"},
		{"an argument too few", build("KW_FILTER(pod) { return KW_SUCCESS; }"), "too few arguments provided to function-like macro invocation"},
		{"a function without a macro", build("int filter(void) { return 0; }"), "the module exports no function of an extension point: begin one with a macro of kubewasm.h such as KW_FILTER"},
		{"main", build("int main(void) { return 0; }"), "begin one with a macro of kubewasm.h such as KW_FILTER"},
		{"a name of two words", build("//kubewasm:name My Zone\nKW_FILTER(cycle, pod, node) { return KW_SUCCESS; }"), `//kubewasm:name is one word, not "My Zone"`},
		{"the header by a path", build("#include \"sdk/kubewasm.h\"\nKW_FILTER(cycle, pod, node) { return KW_SUCCESS; }"), "hint: the header of the SDK is #include <kubewasm.h>"},
	})
	t.Run("arguments that a plugin does not use are no warnings", func(t *testing.T) {
		if code, _, stderr := kubewasm(t, build("KW_FILTER(cycle, pod, node) { return KW_SUCCESS; }")...); code != 0 || stderr != "" {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
}

func TestMessagesOfRust(t *testing.T) {
	languages.Slow(t)
	template := filepath.Join(t.TempDir(), "zone")
	if code, out, stderr := kubewasm(t, "new", "--kind", "scheduler", "--lang", "rust", template); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	_, err := guestbuild.Build(t.Context(), template)
	languages.Check(t, err)
	// with returns a copy of the template in which a text of a file stands in the place of another.
	with := func(name, old, instead string) string {
		dir := filepath.Join(t.TempDir(), "guest")
		if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %q: %v", name, old, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(text), old, instead)), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	build := func(name, old, instead string) []string {
		return []string{"build", "--output-file", filepath.Join(t.TempDir(), "o.wasm"), with(name, old, instead)}
	}
	objects := filepath.Join(template, "objects.yaml")
	run := func(config, old, instead string) []string {
		return []string{"run", "--config", file(t, "config.yaml", config), "-f", objects, with("src/lib.rs", old, instead)}
	}
	const zone = "let zone = "
	check(t, []mistake{
		{"a macro with a letter too few", build("src/lib.rs", "kubewasm::plugin!", "kubewasm::plugn!"), "`plugn` in "},
		{"a crate that registers nothing", build("src/lib.rs", "kubewasm::plugin!", "#[cfg(any())]\nkubewasm::plugin!"), "the crate registers no plugin: give a type that implements a trait of kubewasm::sched, admission or hooks to kubewasm::plugin!"},
		{"a field with letters swapped", build("src/lib.rs", "node.metadata.labels", "node.metadata.lables"), `ObjectMeta has no field "lables"; did you mean "labels"?`},
		{"a method with letters swapped", build("src/lib.rs", "fn filter(", "fn filtre("), "method `filtre` is not a member of trait `Filter`"},
		{"an accessor with letters swapped", build("src/lib.rs", ".labels()", ".lables()"), "similar name"},
		{"a trait that is none", build("src/lib.rs", "Plugin: Filter;", "Plugin: Filtre;"), "`Filtre`"},
		{"a trait that is not implemented", build("src/lib.rs", "Plugin: Filter;", "Plugin: Filter, Score;"), "the trait `"},
		{"no impl Scheduler", build("src/lib.rs", "impl Scheduler for Plugin {\n    type State = ();\n}", ""), "the trait bound `Plugin: Scheduler` is not satisfied"},
		{"a result of another type", build("src/lib.rs", "-> Result {", "-> bool {"), "method `filter` has an incompatible type for trait"},
		{"= in the place of ==", build("src/lib.rs", "if zone != self.zone", "if zone = self.zone"), "expected `bool`, found `()`"},
		{"no crate-type", build("Cargo.toml", "crate-type = [\"cdylib\"]", ""), `the package has no library of the type cdylib: Cargo.toml needs [lib] and crate-type = ["cdylib"]`},
		{"no src/lib.rs", build("Cargo.toml", "[lib]", "[lib]\npath = \"src/main.rs\""), "src/main.rs"},
		{"the SDK elsewhere", build("Cargo.toml", "vendor/kubewasm", "../kubewasm"), "kubewasm/Cargo.toml"},
		{"a field of the configuration with a letter too few", run("zon: a", zone, zone), `zon: unknown field, did you mean "zone"?`},
		{"a number for a text", run("zone: 7", zone, zone), "zone: want string, got number"},
		{"unwrap of what is not there", run("zone: a", zone, `node.node().metadata().labels().get("nothing").unwrap(); `+zone), "src/lib.rs:22"},
		{"an index beyond the end", run("zone: a", zone, "let l: Vec<u8> = self.zone.bytes().collect(); kubewasm::log::info!(\"{}\", l[7]); "+zone), "src/lib.rs:22"},
		{"the time", run("zone: a", zone, "let _ = std::time::SystemTime::now(); "+zone), "time not implemented on this platform"},
	})
}
