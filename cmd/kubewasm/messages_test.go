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
			if !strings.Contains(stderr, m.want) && !strings.Contains(out, m.want) {
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

// begun returns the directory of a new plugin.
func begun(t *testing.T, kind, language string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "zone")
	if code, out, stderr := kubewasm(t, "new", "--kind", kind, "--lang", language, dir); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	return dir
}

// changed returns a copy of a directory in which texts stand in the place of others: each three of
// changes are a file, a text of it, and the one instead.
func changed(t *testing.T, template string, changes ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "guest")
	if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
		t.Fatal(err)
	}
	for ; len(changes) != 0; changes = changes[3:] {
		name, old, instead := filepath.Join(dir, changes[0]), changes[1], changes[2]
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %q: %v", name, old, err)
		}
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(string(text), old, instead)), 0o644); err != nil {
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
		{"a command of cosign", []string{"verify", "registry.example.com/zone:1"}, "pull and inspect verify signatures, with --key FILE"},
		{"no kind", []string{"new", "x"}, "new: name a kind with --kind: admission, conversion, hook, scheduler, service"},
		{"a name of two words", []string{"new", "--kind", "scheduler", "--name", "My Zone", filepath.Join(t.TempDir(), "x")}, `"My Zone" is no name of a plugin: give one of small letters, digits, - and . with --name`},
		{"a directory that is in use", []string{"new", "--kind", "scheduler", directory(t, map[string]string{"main.go": "package main"})}, "the directory has main.go already, and nothing is overwritten"},
		{"another format", []string{"inspect", "-o", "xml", zone}, "want text, json, yaml"},
		{"half a module", []string{"inspect", half(t, zone)}, "unexpected end: want the section of"},
		{"a grant in the plural", []string{"run", "--grant", "clocks", "-f", file(t, "objects.yaml", beginnersPod+beginnersNode), zone}, `grant "clocks" is unknown; did you mean "clock"?`},
		{"a module in the place of objects", []string{"run", "-f", zone, zone}, "document 1: it is a WebAssembly module, want YAML or JSON"},
		{"a configuration that is no YAML", []string{"run", "-f", file(t, "objects.yaml", beginnersPod+beginnersNode), "--config", file(t, "config.yaml", "zone: [a\n"), zone}, "config.yaml: yaml: line 1: did not find expected ',' or ']'"},
		{"a user for a scheduler plugin", []string{"run", "--user", "jane", "-f", file(t, "objects.yaml", beginnersPod+beginnersNode), zone}, "--user is for admission plugins, and this is one of kind scheduler"},
		{"a method of a scheduler plugin", []string{"run", "-f", file(t, "objects.yaml", beginnersPod+beginnersNode), zone, "Zone/Filter"}, "the module has no services"},
		{"a server without a scheme", []string{"policies", "--server", "localhost:8443", "list"}, "--server: want https://HOST:PORT"},
		{"no server", []string{"policies", "list"}, "name the server with --server, as in https://localhost:8443, or in KUBEWASM_SERVER"},
		{"a verb of kubectl", []string{"policies", "--server", "https://localhost:1", "get"}, `"get" is none of list, load, enable`},
		{"a duration without a unit", []string{"policies", "--server", "https://localhost:1", "break-glass", "2"}, `"2" is neither end nor a duration such as 30m`},
	})
}

// half returns a file with the first half of a module.
func half(t *testing.T, module string) string {
	t.Helper()
	text, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "half.wasm", string(text[:len(text)/2]))
}

func TestMessagesAboutCases(t *testing.T) {
	zone := built(t, "testdata/zone")
	test := func(cases string) []string { return []string{"test", file(t, "cases.yaml", cases), zone} }
	check(t, []mistake{
		{"the module before the cases", []string{"test", zone, file(t, "cases.yaml", "cases: []")}, "it is a WebAssembly module, want YAML or JSON"},
		{"pods in the place of pod", test("cases: [{name: a, pods: {metadata: {name: p}}}]"), `unknown field "cases[0].pods", did you mean "pod"?`},
		{"wants in the place of want", test("cases: [{name: a, pod: {metadata: {name: p}}, wants: Success}]"), `unknown field "cases[0].wants", did you mean "want"?`},
		{"no name", test("cases: [{pod: {metadata: {name: p}}}]"), "case 1 has no name"},
		{"a name twice", test("cases: [{name: a}, {name: a}]"), `two cases have the name "a"`},
		{"a list of cases alone", test("- name: a"), "it is a list, want a mapping"},
		{"no cases", test("config: {zone: a}"), "it has no cases"},
		{"a verdict in small letters", test("config: {zone: a}\ncases: [{name: a, pod: {metadata: {name: p}}, node: {metadata: {name: n}}, want: unschedulable}]"), "got  Unschedulable: "},
		{"a pattern that matches nothing", append(test("cases: [{name: a}]"), "--run", "b"), `no case matches "b"`},
	})
}

func TestMessagesOfServices(t *testing.T) {
	gen := func(text string, more ...string) []string {
		dir := directory(t, map[string]string{"a.proto": "syntax = \"proto3\";\npackage a;\n" + text})
		return append([]string{"gen", "--output-dir", filepath.Join(t.TempDir(), "out"), "-I", dir, "a.proto"}, more...)
	}
	const service = "service S { rpc Pick(Req) returns (Req); }\n"
	run := func(request string, more ...string) []string {
		return append([]string{"run", "--grant", "cache", "-f", file(t, "request.yaml", request), prefixDir}, more...)
	}
	apart := filepath.Join(directory(t, map[string]string{"a.proto": ""}), "a.proto")
	check(t, []mistake{
		{"a semicolon is missing", gen("service S { rpc Pick(Req) returns (Req) }\n"), "a.proto:3:41: syntax error: expecting ';'"},
		{"a message that is none", gen("service S { rpc Pick(Rex) returns (Req); }\nmessage Req { string a = 1; }"), "a.proto:3:22: method a.S.Pick: unknown request type Rex"},
		{"a directory whose name begins with a digit", []string{"gen", "--output-dir", filepath.Join(t.TempDir(), "1st"), "a.proto"}, `"1st" is no name of a Go package: give one with --package`},
		{"a stream", gen("service S { rpc Pick(stream Req) returns (Req); }\nmessage Req { string a = 1; }"), "a.proto:3:13: a.S.Pick: calls of guests do not stream"},
		{"numbers as keys", gen(service + "message Req { map<int32, string> a = 1; }"), "a.proto:4:15: a.Req.a: maps have strings for keys, not int32"},
		{"a number twice", gen(service + "message Req { string a = 1; string b = 1; }"), "a.proto:4:40: message a.Req: fields a and b both have the same tag 1"},
		{"no service", gen("message Req { string a = 1; }", "--host", t.TempDir()), "--host: a.proto has no service"},
		{"an import that is elsewhere", gen("import \"b.proto\";\n" + service + "message Req { string a = 1; }"), `could not resolve path "b.proto": no directory of -I has it`},
		{"a file by its path", []string{"gen", "--output-dir", filepath.Join(t.TempDir(), "out"), apart}, "it is named by its path in a directory of -I, as in -I " + filepath.Dir(apart) + " a.proto"},
		{"another kind of file", []string{"gen", "a.go"}, "want a file whose name ends with .proto, .yaml or .json"},
		{"a language by its name", []string{"gen", "--lang", "typescript", "a.proto"}, `unknown language "typescript", want one of go, rust, c, as`},
		{"an object of another kind", []string{"gen", file(t, "pod.yaml", beginnersPod)}, "pod.yaml has no CustomResourceDefinition"},
		{"no method", run("endpoint: a"), "name a method, one of kubewasm.examples.picker.v1.Picker/Pick, "},
		{"a method with another name", run("endpoint: a", "Picker/Serve"), `there is no method "Picker/Serve", only `},
		{"a field with a letter too many", run("endpoints: a", "Picker/Served"), `there is no field "endpoints" in kubewasm.examples.picker.v1.ServedRequest, did you mean "endpoint"?`},
		{"one item without a list", run("endpoints: {name: a}", "Picker/Pick"), "endpoints: want a list, not "},
	})
}

func TestMessagesAboutRegistriesAndRecordings(t *testing.T) {
	zone := built(t, "testdata/zone")
	private, public := keyFiles(t)
	layout := "oci-layout:" + t.TempDir()
	if code, out, stderr := kubewasm(t, "push", zone, layout+":1"); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	objects := file(t, "objects.yaml", beginnersPod+beginnersNode)
	check(t, []mistake{
		{"a tag with the module's name alone", []string{"push", zone, "zone:1.0"}, `registry "zone:1.0" is no host name`},
		{"a repository with capitals", []string{"push", zone, "registry.example.com/Zone:1"}, `repository is "Zone", want lower-case names with slashes between them`},
		{"the reference before the module", []string{"push", "registry.example.com/zone:1", zone}, "is a file, want a reference: the module comes before it"},
		{"a registry that is away", []string{"push", zone, "127.0.0.1:1/zone:1"}, "push 127.0.0.1:1/zone:1: "},
		{"a tag that is none", []string{"pull", layout + ":2"}, `"2": not found`},
		{"no signature", []string{"pull", "--key", public, layout + ":1"}, "has no signature"},
		{"a private key to verify with", []string{"pull", "--key", private, layout + ":1"}, private + `: key is "PRIVATE KEY", want PUBLIC KEY`},
		{"a text in the place of a key", []string{"pull", "--key", objects, layout + ":1"}, objects + ": key is not PEM"},
		{"a public key to sign with", []string{"sign", "--key", public, layout + ":1"}, public + `: read private key: it is a "PUBLIC KEY", want a PRIVATE KEY`},
		{"rules with another name", []string{"pull", "--registries", file(t, "registries.yaml", "registry: []"), layout + ":1"}, `unknown field "registry", there are `},
		{"objects in the place of a recording", []string{"replay", objects, zone}, "objects.yaml\" is not a recording"},
		{"a recording that is none", []string{"profile", filepath.Join(t.TempDir(), "recording"), zone}, "no such file or directory"},
		{"one module to compare", []string{"replay", "--diff", objects, zone}, "2 arguments, want 3"},
		{"two versions without the second", []string{"profile", "--diff", "-f", objects, zone}, "profile: want two modules"},
		{"no recording", []string{"profile", zone}, "profile: want a recording and a module"},
	})
}

func TestMessagesAboutManifests(t *testing.T) {
	zone, policy, hook := built(t, "testdata/zone"), built(t, "../../examples/admission/required-labels"), built(t, "testdata/hook")
	audit := func(policies string) []string {
		return []string{"audit", "-f", file(t, "objects.yaml", beginnersPod), "--policies", file(t, "policies.yaml", policies+"\n")}
	}
	plugin := func(module, name, group string) string {
		return "{name: " + name + ", guestConfig: {labels: [a]}, module: {file: " + module + ", follow: true}, match: {rules: [{operations: [CREATE], apiGroups: [" + group + "], apiVersions: [v1], resources: [pods]}]}}"
	}
	check(t, []mistake{
		{"plugins of two kinds", []string{"manifests", policy, zone}, "write their manifests one by one"},
		{"a kind in a rule", []string{"manifests", "--match", "CREATE Pod", policy}, `resources has "Pod", want a resource in lower case and the plural`},
		{"a rule of a scheduler plugin", []string{"manifests", "--match", "CREATE pods", zone}, "--match is for admission plugins"},
		{"a part that is none", []string{"manifests", "--only", "role", hook}, `--only is "role", want config, webhook or rbac`},
		{"a resource without its version", []string{"manifests", "--objects", "ingresses", hook}, `"ingresses" is not version/resource or group/version/resource`},
		{"a scheduler plugin as a policy", audit("plugins: [" + plugin(zone, "p", `""`) + "]"), `plugin "p": it is a plugin of kind scheduler: import k8s.io/scheduler.`},
		{"a policy twice", audit("plugins: [" + plugin(policy, "p", `""`) + ", " + plugin(policy, "p", `""`) + "]"), `there are two policies "p"`},
		{"a version for a group", audit("plugins: [" + plugin(policy, "p", "v1") + "]"), `"v1" in apiGroups is a version; the core group is ""`},
		{"one owner without a list", []string{"audit", "--policies", file(t, "policies.yaml", "plugins: ["+plugin(policy, "p", `""`)+"]"), "-f", file(t, "jobs.yaml", "{apiVersion: batch/v1, kind: Job, metadata: {name: a, ownerReferences: {name: b}}}\n"+beginnersPod)}, "jobs.yaml: the Job a: metadata.ownerReferences is a mapping, want a list"},
		{"no policies", audit("plugins: []"), "there are no policies, so nothing was audited"},
		{"a module that is elsewhere", audit("plugins: [" + plugin("/nowhere.wasm", "p", `""`) + "]"), `plugin "p": fetch module: `},
		{"half a digest", audit("plugins: [{name: p, module: {file: p.wasm, sha256: abc}, match: {rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}}]"), `module.sha256 "abc" is not 64 hexadecimal digits`},
	})
}

func TestMessagesOfGo(t *testing.T) {
	languages.Slow(t)
	template, policy, hook := begun(t, "scheduler", "go"), begun(t, "admission", "go"), begun(t, "hook", "go")
	build := func(template string, changes ...string) []string {
		return []string{"build", "--output-file", filepath.Join(t.TempDir(), "o.wasm"), changed(t, template, changes...)}
	}
	run := func(template string, changes ...string) []string {
		dir := changed(t, template, changes...)
		return []string{"run", "-f", filepath.Join(dir, "objects.yaml"), "--config", filepath.Join(dir, "config.yaml"), dir}
	}
	const (
		main  = "main.go"
		start = "import ("
		first = "response := admission.Allow()"
	)
	check(t, []mistake{
		{"a value for a pointer", build(template, main, "&plugin{}", "plugin{}"), "main.go:26: plugin does not implement sched.FilterPlugin (method Filter has a pointer receiver): register a pointer, &plugin"},
		{"a nil pointer", build(template, main, "&plugin{}", "(*plugin)(nil)"), "main.go:26: Register gets a nil pointer"},
		{"Register in main", build(template, main, "func init()", "func start()", main, "func main() {}", "func main() { start() }"), "call Register of guest/sched, guest/admission or guest/hooks in func init"},
		{"another result", build(template, main, "*sched.Status {", "error {", main, "return sched.Unschedulable(", "return fmt.Errorf(", main, start, "import (\n\t\"fmt\""), "(wrong type for method Filter)"},
		{"a loop in init", build(template, main, "func init() {", "func init() { for i := 0; i >= 0; i &= 7 {}; "), "out of fuel"},
		{"a loop in init, its functions", build(template, main, "func init() {", "func init() { for i := 0; i >= 0; i &= 7 {}; "), "hint: kubewasm build --debug keeps the names of functions"},
		{"verbs among texts", build(template, main, "sched.Unschedulable(", "sched.Unschedulable(\"in %s\", "), "main.go:21: sched.Unschedulable joins its texts, so %s stays as it is"},
		{"a letter too many", build(policy, main, "Validate(req", "Validates(req"), "main.go:19: method Validates of *plugin is not called; did you mean Validate?"},
		{"a method in small letters", build(policy, main, "Validate(req", "validate(req"), "did you mean Validate?"},
		{"a nil map", run(policy, main, first, "var m map[string]int; m[\"a\"] = 1; "+first), "panic: assignment to entry in nil map\n\tat main.(*plugin).Validate, example.com/zone/main.go:20"},
		{"the time", build(template, main, "func main() {}", "func main() { println(time.Now().String()) }", main, start, "import (\n\t\"time\""), `main.go:29: time.Now: the clock begins in 2022 in each instance and follows its instructions, unless the grant "clock" is given`},
		{"a file", build(template, main, "func main() {}", "func main() { os.ReadFile(\"x\") }", main, start, "import (\n\t\"os\""), "main.go:29: os.ReadFile: a guest has no files"},
		{"the package of the host", build(hook, main, "kubewasm/guest/hooks", "kubewasm/hooks"), "hint: main.go:6: package github.com/kubewasm/kubewasm/hooks is for components: a guest imports github.com/kubewasm/kubewasm/guest/hooks"},
		{"two kinds", build(template, main, start, "import (\n\t_ \"github.com/kubewasm/kubewasm/guest/hooks\""), "several kinds of plugins, scheduler and hook,"},
		{"a decision with a letter too few", build(hook, main, "decides cpu_shares", "decides cpu_share"), `main.go:11: decides: "cpu_share" is no field of a decision; there are cpu_shares, `},
		{"a kind in the place of a resource", build(policy, main, "matches CREATE pods", "matches create Pod"), `main.go:12: metadata: matches: operations has "create", want CREATE, UPDATE, DELETE, CONNECT or *`},
		{"a directive with a space", build(template, main, "//kubewasm:name", "// kubewasm:name"), "main.go:9: // kubewasm:name is a comment, not a directive: write //kubewasm:name"},
		{"a field in small letters", run(policy, main, "Labels []string", "labels []string", main, "p.Labels", "p.labels"), "main.go:15: field labels of plugin has a tag and is not exported, so no configuration sets it: begin its name with a capital"},
		{"a tag for YAML", run(policy, main, "`json:", "`yaml:"), "main.go:15: field Labels of plugin has the tag yaml, which is not read: write `json:\"labels\"`"},
		{"a duration", run(policy, main, "type plugin struct {", "type plugin struct {\n\tWait time.Duration `json:\"wait\"`", main, start, "import (\n\t\"time\"", "config.yaml", "labels:", "wait: 5s\nlabels:"), "wait: want number of nanoseconds, got string"},
		{"another package", build(template, main, "package main", "package zone", "main_test.go", "package main", "package zone"), "package zone is not a guest: want a package main with func main() {}"},
		{"an import that is not used", build(template, main, start, "import (\n\t\"os\""), `main.go:5:2: "os" imported and not used`},
		{"a list in the place of a configuration", run(policy, "config.yaml", "labels: [", "- ["), "configure returned Error: want object, got array"},
		{"a text in the place of a list", run(policy, "config.yaml", "[team]", "team"), "labels: want array, got string"},
		{"a field twice", run(policy, "config.yaml", "labels:", "labels: []\nlabels:"), `key "labels" already set in map`},
		{"shares below zero", run(hook, "config.yaml", "cpuShares: 2", "cpuShares: -5"), "cpu_shares is -5, want 2 to 262144"},
		{"shares as a quantity", run(hook, "config.yaml", "cpuShares: 2", "cpuShares: 100m"), "cpuShares: want number, got string"},
		{"half a share", run(hook, "config.yaml", "cpuShares: 2", "cpuShares: 1.5"), "cpuShares: want int64, got 1.5"},
	})
}

func TestMessagesOfAssemblyScript(t *testing.T) {
	languages.Slow(t)
	template := begun(t, "scheduler", "as")
	_, err := guestbuild.Build(t.Context(), template)
	languages.Check(t, err)
	build := func(name, old, instead string) []string {
		return []string{"build", "--output-file", filepath.Join(t.TempDir(), "o.wasm"), changed(t, template, name, old, instead)}
	}
	run := func(name, old, instead string) []string {
		dir := changed(t, template, name, old, instead)
		return []string{"run", "-f", filepath.Join(dir, "objects.yaml"), "--config", filepath.Join(dir, "config.yaml"), dir}
	}
	const (
		index = "assembly/index.ts"
		first = "const zone = "
		point = "(state: CycleState, pod: Pod, node: NodeInfo)"
		want  = "want filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null"
	)
	check(t, []mistake{
		{"no decorator", build(index, "@scheduler\n", ""), "assembly/index.ts:9:1: no class has one of the decorators @scheduler, @admission, @hook, @service"},
		{"two plugins", build(index, "@scheduler", "@hook\nclass Other { }\n@scheduler"), "assembly/index.ts:11:1: Other and Plugin are plugins: a module has one"},
		{"a method of Go's name", build(index, "  filter(", "  Filter("), "assembly/index.ts:14:3: the method Filter of Plugin is never called: write filter"},
		{"a method with letters swapped", build(index, "  filter(", "  filtre("), "assembly/index.ts:14:3: Plugin has none of the methods of @scheduler, but filtre; did you mean filter?"},
		{"a method with a letter too few", build(index, "  filter(", "  filer("), "but filer; did you mean filter?"},
		{"a parameter too few", build(index, point, "(pod: Pod, node: NodeInfo)"), "assembly/index.ts:14:3: the method filter of Plugin has 2 parameters, " + want},
		{"parameters in another order", build(index, point, "(pod: Pod, state: CycleState, node: NodeInfo)"), "the method filter of Plugin has the parameter pod of type Pod, " + want},
		{"another result", build(index, "): Status | null {", "): bool {"), "assembly/index.ts:14:3: the method filter of Plugin returns bool, " + want},
		{"a field with letters swapped", build(index, ".metadata.labels", ".metadata.lables"), "Property 'lables' does not exist on type"},
		{"a directive with letters swapped", build(index, "node.metadata.labels[", "node.metadata.lables["), `assembly/index.ts:7: field path "node.metadata.lables[topology.kubernetes.io/zone]": ObjectMeta has no field "lables"; did you mean "labels"?`},
		{"a name that is not imported", build(index, "NodeInfo, Pod, Status }", "NodeInfo, Status }"), "Cannot find name 'Pod'"},
		{"a module that is none", build(index, `"kubewasm/scheduler"`, `"kubewasm/sched"`), "assembly/index.ts(3,51)"},
		{"a closure", build(index, first, "const n = [1].map<i32>(v => v + this.zone.length); "+first), "assembly/index.ts(15,"},
		{"a type of TypeScript", build(index, first, "let a: any = 1; "+first), "Cannot find name 'any'"},
		{"a text for a number", build(index, first, "let n: i32 = this.zone; "+first), "is not assignable to type 'i32'"},
		{"console.log", build(index, first, "console.log(\"x\"); "+first), "assembly/index.ts:15:5: the module imports env.console.log, which no host has"},
		{"the time", build(index, first, "const now = Date.now(); if (now < 0) return null; "+first), "assembly/index.ts:15:17: the module imports env.Date.now, which no host has"},
		{"fetch", build(index, first, "fetch(\"https://example.com\"); "+first), "Cannot find name 'fetch'"},
		{"async", build(index, "  filter(", "  async filter("), "assembly/index.ts(14,3)"},
		{"a configured field of another type", build(index, "@config zone", "@config since: Date = new Date(0);\n  @config zone"), "assembly/index.ts:11:3: Plugin.since has the type Date, which cannot be configured: want a string, "},
		{"asconfig.json without a colon", build("asconfig.json", `"targets":`, `"targets"`), "asconfig.json:2: invalid character '{' after object key"},
		{"a number for a text", run("config.yaml", "zone: a", "zone: 7"), "zone: want string, got number"},
		{"a field with a letter too few", run("config.yaml", "zone: a", "zon: a"), `zon: unknown field, did you mean "zone"?`},
		{"throw", run(index, first, "throw new Error(\"no zone\"); "+first), "no zone (assembly/index.ts:15:5)"},
		{"an index beyond the end", run(index, first, "const l = [this.zone]; const q = l[7]; if (q == \"\") return null; "+first), "Index out of range"},
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
	template := begun(t, "scheduler", "rust")
	_, err := guestbuild.Build(t.Context(), template)
	languages.Check(t, err)
	build := func(name, old, instead string) []string {
		return []string{"build", "--output-file", filepath.Join(t.TempDir(), "o.wasm"), changed(t, template, name, old, instead)}
	}
	objects := filepath.Join(template, "objects.yaml")
	run := func(config, old, instead string) []string {
		return []string{"run", "--config", file(t, "config.yaml", config), "-f", objects, changed(t, template, "src/lib.rs", old, instead)}
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
