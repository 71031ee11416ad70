package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := write("good.yaml", "config: {zone: a}\ncases:\n- {name: in it, pod: {}, node: {metadata: {labels: {topology.kubernetes.io/zone: a}}}}\n")
	bad := write("bad.yaml", `config: {zone: a}
cases:
- {name: in it, pod: {}, node: {metadata: {labels: {topology.kubernetes.io/zone: a}}}}
- {name: elsewhere, pod: {}, node: {metadata: {labels: {topology.kubernetes.io/zone: b}}}, want: Success}
- {name: nowhere, pod: {}, node: {}}
`)
	unknown := write("unknown.yaml", "cases: [{name: a, wants: b}]\n")
	report := filepath.Join(dir, "report.xml")
	zone := filepath.Join("testdata", "zone")
	for name, test := range map[string]struct {
		args        []string
		code        int
		out, errors string
	}{
		"cases that pass":          {[]string{good, zone}, 0, `^ok\ttestdata/zone\t1 cases\t\d+\.\d{3}s\n$`, `^$`},
		"cases that pass, printed": {[]string{"-v", good, zone}, 0, `^--- PASS: in it \(\d+\.\d\ds\)\nok\t`, `^$`},
		"cases that fail": {[]string{bad, zone}, 1,
			`^--- FAIL: elsewhere \(\d+\.\d\ds\)\n    filter: got  Unschedulable: .*\n    want Success\n--- FAIL: nowhere \(\d+\.\d\ds\)\n    filter: got  (.*\n)+FAIL\ttestdata/zone\t2 of 3 cases\t\d+\.\d{3}s\n$`, `^$`},
		"one of them":      {[]string{"--run", "^in", bad, zone}, 0, `^ok\t.*\t1 cases\t`, `^$`},
		"none of them":     {[]string{"--run", "xyz", bad, zone}, 1, `^$`, `: no case matches "xyz"\n$`},
		"JUnit":            {[]string{"-o", "junit", "--output-file", report, bad, zone}, 1, `FAIL\t`, `^$`},
		"no module":        {[]string{good}, 1, `^$`, `^kubewasm: test: a module is missing\nusage: kubewasm test `},
		"no file":          {[]string{"nothing.yaml", zone}, 1, `^$`, `^kubewasm: test: open nothing.yaml: no such file or directory\n$`},
		"an unknown field": {[]string{unknown, zone}, 1, `^$`, `unknown field "cases\[0\]\.wants"|unknown field "wants"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"test"}, test.args...)...)
			if code != test.code || !regexp.MustCompile(test.out).MatchString(out) || !regexp.MustCompile(test.errors).MatchString(stderr) {
				t.Errorf("exit code %d\n%s%s", code, out, stderr)
			}
		})
	}
	text, err := os.ReadFile(report)
	want := `<testsuite name="testdata/zone" tests="3" failures="2" time="[\d.]+">\s*<testcase name="in it" classname="testdata/zone" time="[\d.]+"></testcase>\s*<testcase name="elsewhere" .*>\s*<failure message="filter: got  Unschedulable: `
	if err != nil || !regexp.MustCompile(want).Match(text) {
		t.Errorf("%v\n%s", err, text)
	}
}
