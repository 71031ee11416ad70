package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// declared returns the flags of each command, as in --filename and -f.
func declared() map[string][]string {
	all := map[string][]string{}
	for _, c := range commands {
		flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		c.declare(&tool{}, flags)
		flags.VisitAll(func(f *pflag.Flag) {
			all[c.name] = append(all[c.name], "--"+f.Name)
			if f.Shorthand != "" {
				all[c.name] = append(all[c.name], "-"+f.Shorthand)
			}
		})
		all[c.name] = append(all[c.name], "--help", "-h")
	}
	return all
}

// TestEveryUseOfTheCommandHasItsFlags reads every document, directive, template and comment of
// the repository.
func TestEveryUseOfTheCommandHasItsFlags(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := declared()
	use := regexp.MustCompile("(?:kubewasm|{{.Command}}) (" + strings.Join(slices.Sorted(maps.Keys(flags)), "|") + ")\\b([^\n`]*)")
	end := regexp.MustCompile(`[|;#<>,:]\s|\|\||&&`)
	flag := regexp.MustCompile(`^\[?(--?[A-Za-z][\w-]*)`)
	found := 0
	for _, name := range strings.Fields(string(out)) {
		if name == "CHANGELOG.md" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".wasm") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // A link to a directory.
		}
		for _, m := range use.FindAllStringSubmatch(string(text), -1) {
			words := m[2]
			if i := end.FindStringIndex(words); i != nil {
				words = words[:i[0]]
			}
			for _, word := range strings.Fields(words) {
				if word == "without" || word == "--" {
					break
				}
				f := flag.FindStringSubmatch(word)
				if f == nil {
					continue
				}
				found++
				if !slices.Contains(flags[m[1]], f[1]) {
					t.Errorf("%s: %s: there is no flag %s", name, m[0], f[1])
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d flags were found", found)
	}
}

// TestNoFlagForgetsAValue gives each flag of each command twice.
func TestNoFlagForgetsAValue(t *testing.T) {
	values := map[string]string{"int": "1", "float64": "1", "bool": "true", "duration": "1m", "format": "json", "pair": "a=b", "string": "x", "stringArray": "x"}
	root := (&tool{out: io.Discard, err: io.Discard}).root()
	for _, c := range commands {
		sub, _, err := root.Find([]string{c.name})
		if err != nil {
			t.Fatal(err)
		}
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
			value, ok := values[f.Value.Type()]
			if !ok {
				t.Fatalf("%s --%s: no value of type %s", c.name, f.Name, f.Value.Type())
			}
			if err := f.Value.Set(value); err != nil {
				t.Fatalf("%s --%s: %v", c.name, f.Name, err)
			}
			err := f.Value.Set(strings.Replace(value, "a=", "b=", 1))
			repeated := f.Value.Type() == "pair" || f.Value.Type() == "stringArray"
			if repeated != (err == nil) {
				t.Errorf("%s --%s takes a second value: error %v", c.name, f.Name, err)
			}
		})
	}
}

// TestCommandsAnswerInJSON holds what VERSIONING.md covers: each command with formats has JSON.
func TestCommandsAnswerInJSON(t *testing.T) {
	text, err := os.ReadFile("../../VERSIONING.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "`-o json`") {
		t.Error("VERSIONING.md does not cover -o json")
	}
	root := (&tool{out: io.Discard, err: io.Discard}).root()
	found := 0
	for _, c := range commands {
		sub, _, err := root.Find([]string{c.name})
		if err != nil {
			t.Fatal(err)
		}
		f := sub.Flags().Lookup("output")
		if f == nil {
			continue
		}
		found++
		if f.Shorthand != "o" {
			t.Errorf("%s: --output has the short form %q, want o", c.name, f.Shorthand)
		}
		if err := f.Value.Set("json"); err != nil {
			t.Errorf("%s -o json: %v", c.name, err)
		}
	}
	if found < 5 {
		t.Errorf("%d commands have formats, want more", found)
	}
}

// TestKindsOfNew holds that the documents begin plugins of the kinds and in the languages that there
// are, and that the guide lists the kinds.
func TestKindsOfNew(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "../../README.md", "../../guest/assemblyscript/README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile("kubewasm new [^`\n]*").FindAllString(string(text), -1) {
			language := "go"
			if m := regexp.MustCompile(`--lang (\w+)`).FindStringSubmatch(call); m != nil {
				language = m[1]
			}
			for _, m := range regexp.MustCompile(`--kind (\w+)`).FindAllStringSubmatch(call, -1) {
				if kinds := directories("templates/" + language); !slices.Contains(kinds, m[1]) {
					t.Errorf("%s: %s: the kinds of %s are %v", document, call, language, kinds)
				}
			}
		}
	}
	guide, err := os.ReadFile("../../docs/writing-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("`--kind` is ([^.]*)\\.").FindStringSubmatch(string(guide))
	if list == nil {
		t.Fatal("docs/writing-plugins.md lists no kinds")
	}
	var kinds []string
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(list[1], -1) {
		kinds = append(kinds, m[1])
	}
	if diff := cmp.Diff(directories("templates/go"), kinds); diff != "" {
		t.Errorf("kinds of docs/writing-plugins.md (-are +named):\n%s", diff)
	}
}

func TestFlagsAreThoseOfKubectl(t *testing.T) {
	node := "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: b}}}"
	pod := func(name string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: shop}, spec: {containers: [{name: a}]}}"
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"node.yaml": node, "pods/a.yaml": pod("a"), "pods/deep/b.json": pod("b"), "pods/README.md": "no objects"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	zone := built(t, "testdata/zone")
	config := file(t, "config.yaml", "zone: b")
	run := []string{"run", "-f", filepath.Join(dir, "node.yaml"), "--filename", filepath.Join(dir, "pods"), "--config=" + config}
	rows := func(args ...string) (rows []string) {
		code, out, stderr := kubewasm(t, slices.Concat(run, args, []string{"-o", "json", zone})...)
		var got verdicts
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
			t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
		}
		for _, v := range got.Verdicts {
			rows = append(rows, v.Object+" "+v.Node+" "+v.Verdict)
		}
		return rows
	}
	t.Run("-f is repeated and takes directories", func(t *testing.T) {
		if diff := cmp.Diff([]string{"shop/a n1 Success", "shop/b n1 Success"}, rows()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"shop/a n1 Success", "shop/b n1 Success", "shop/c n1 Success"}, rows("-f", file(t, "c.yaml", pod("c")))); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
	})
	t.Run("a file gets the format and the output the text", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "report.xml")
		code, out, stderr := kubewasm(t, append(run, "-o", "junit", "--output-file", name, zone)...)
		text, err := os.ReadFile(name)
		if err != nil || code != 0 || !strings.HasPrefix(out, "POD ") {
			t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
		}
		var got suite
		if err := xml.Unmarshal(text, &got); err != nil || got.Tests != 2 || got.Failures != 0 {
			t.Errorf("%v: %s", err, text)
		}
	})
	t.Run("JUnit has a failure for each verdict that is bad", func(t *testing.T) {
		other := append(slices.Clone(run[:5:5]), "--config", file(t, "c.yaml", "zone: c"), "-o", "junit", zone)
		code, out, stderr := kubewasm(t, other...)
		var got suite
		if err := xml.Unmarshal([]byte(out), &got); err != nil || code != exitRefused || got.Tests != 2 || got.Failures != 2 {
			t.Errorf("exit code %d, %v: %s%s", code, err, out, stderr)
		}
	})
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a flag that is given twice":      {append(run, "--config", config, zone), `invalid argument "` + config + `" for "--config" flag: the flag is given twice`},
		"a flag with one dash":            {[]string{"run", "-config", config, zone}, "run: there is no flag -config; did you mean --config?"},
		"a flag that begins like -o":      {[]string{"run", "-objects", config, zone}, "run: there is no flag -objects; did you mean --objects?"},
		"a format that there is not":      {append(run, "-o", "xml", zone), `invalid argument "xml" for "-o, --output" flag: want text, json, yaml, junit`},
		"a file in place of a format":     {[]string{"build", "-o", "zone.wasm"}, "want text, json, yaml; --output-file names a file"},
		"a file that is not there":        {[]string{"run", "-f", "nowhere.yaml", "-f", "elsewhere.yaml", zone}, "elsewhere.yaml"},
		"a directory without any objects": {[]string{"run", "-f", t.TempDir(), zone}, "there are no objects in "},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out, stderr := kubewasm(t, test.args...); code != 1 || out != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d: %s%s\nwant %s", code, out, stderr, test.want)
			}
		})
	}
}

// TestEveryFormatIsOne decodes the output of commands in each format.
func TestEveryFormatIsOne(t *testing.T) {
	zone := built(t, "testdata/zone")
	layout := "oci-layout:" + filepath.Join(t.TempDir(), "layout") + ":1"
	private, _ := keyFiles(t)
	cases := file(t, "cases.yaml", "config: {zone: a}\ncases:\n- {name: in it, pod: {}, node: {metadata: {labels: {topology.kubernetes.io/zone: a}}}}\n")
	_, _, recording := recorded(t)
	recordedModule, _, _ := recorded(t)
	for _, args := range [][]string{
		{"build", "--output-file", filepath.Join(t.TempDir(), "z.wasm"), "testdata/zone"},
		{"inspect", zone}, {"version"}, {"test", cases, zone}, {"replay", recording, recordedModule},
		{"run", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b"), zone}, {"profile", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b"), zone},
		{"push", zone, layout}, {"sign", "--key", private, layout}, {"pull", "--output-file", filepath.Join(t.TempDir(), "p.wasm"), layout}, {"copy", layout, layout + "-copy"},
	} {
		t.Run(args[0], func(t *testing.T) {
			decode := map[string]func(string) error{
				"json": func(text string) error { return json.Unmarshal([]byte(text), new(map[string]any)) },
				"yaml": func(text string) error { return yaml.UnmarshalStrict([]byte(text), new(map[string]any)) },
				"text": func(text string) error { return nil },
			}
			if slices.Contains([]string{"run", "test", "replay"}, args[0]) {
				decode["junit"] = func(text string) error { return xml.Unmarshal([]byte(text), new(suite)) }
			}
			for format, check := range decode {
				code, out, stderr := kubewasm(t, append(slices.Clone(args), "-o", format)...)
				if err := check(out); err != nil || code != 0 || out == "" {
					t.Errorf("%s: exit code %d, %v:\n%s%s", format, code, err, out, stderr)
				}
			}
		})
	}
}

func TestVersionAndCompletion(t *testing.T) {
	_, want, _ := kubewasm(t, "version")
	if code, out, _ := kubewasm(t, "--version"); code != 0 || out != want {
		t.Errorf("exit code %d: %s, want %s", code, out, want)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, stderr := kubewasm(t, "completion", shell); code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("%s: exit code %d: %s%s", shell, code, out, stderr)
		}
	}
	for name, test := range map[string]struct{ args, want []string }{
		"commands":  {[]string{"au"}, []string{"audit\task policies about objects that exist"}},
		"flags":     {[]string{"run", "--subr"}, []string{"--subresource\tThe subresource of the requests, such as status or scale"}},
		"formats":   {[]string{"replay", "-o", "j"}, []string{"json", "junit"}},
		"kinds":     {[]string{"new", "--kind", "sch"}, []string{"scheduler"}},
		"languages": {[]string{"gen", "--lang", "r"}, []string{"rust"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, out, _ := kubewasm(t, append([]string{"__complete"}, test.args...)...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			got := slices.DeleteFunc(lines[:len(lines)-1], func(line string) bool {
				return !strings.HasPrefix(line, test.args[len(test.args)-1]) && !strings.HasPrefix(line, "--")
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("completions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnInterruptEndsTheReadingOfObjects interrupts the command at the first of the objects
// that it reads, and waits for none of the others.
func TestAnInterruptEndsTheReadingOfObjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	zone := built(t, "testdata/zone")
	for _, args := range [][]string{{"run", "-f", path, zone}, {"audit", "--policies", file(t, "p.yaml", "plugins: []"), "-f", path}, {"run", "-f", filepath.Dir(path), zone}} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out, stderr strings.Builder
		if code := dispatch(ctx, &tool{out: &out, err: &stderr}, args); code != exitInterrupted || stderr.String() != "kubewasm: interrupted\n" || out.String() != "" {
			t.Errorf("%s: exit code %d: %s%s", args[0], code, out.String(), stderr.String())
		}
	}
}
