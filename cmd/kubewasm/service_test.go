package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const prefixDir = "../../examples/endpoint-picker/prefix"

func TestInspectPrintsServices(t *testing.T) {
	code, out, stderr := kubewasm(t, "inspect", prefixDir)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		`(?m)^kinds +service$`,
		`(?m)^service +kubewasm\.examples\.picker\.v1\.Picker$\n^ +Pick\(PickRequest\) PickResponse$\n^ +Served\(ServedRequest\) ServedResponse$`,
		`(?m)^host service +kubewasm\.examples\.picker\.v1\.Cache$\n^ +Match\(MatchRequest\) MatchResponse$`,
		`(?m)^grants +cache$`,
		`(?m)^kubewasm\.examples\.picker\.v1\.Cache\.Match +\(i32, i32\) -> i64 +cache$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("there is no %s in\n%s", want, out)
		}
	}
}

func TestRunCallsAMethodOfAService(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	request := write("request.yaml", `
model: llama
prefixHashes: [7, "8"]
criticality: CRITICALITY_SHEDDABLE
endpoints:
- name: a
  waiting_queue_size: 5
  pod: {metadata: {name: a, labels: {drain: "true"}}}
- name: b
`)
	config := write("config.yaml", "{maxQueue: 9, drainLabel: drain, cacheWeight: 0.5}")
	answers := write("answers.yaml", "Cache/Match: {blocks: {b: 1}}")
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a request with an object and an answer of the host", []string{"-f", request, "--config", config, "--answers", answers, "--grant", "cache", prefixDir, "Picker/Pick"}, 0, []string{"scores:\n- -1\n- 0.75\n"}},
		{"the full name", []string{"-f", request, "--grant", "cache", prefixDir, "kubewasm.examples.picker.v1.Picker/Served"}, 1, []string{`there is no field "criticality" in kubewasm.examples.picker.v1.ServedRequest`, `there is no field "endpoints"`}},
		{"an empty response", []string{"-f", write("served.yaml", "endpoint: a"), "--grant", "cache", prefixDir, "Picker/Served"}, 0, []string{"{}\n"}},
		{"no grant", []string{"-f", request, prefixDir, "Picker/Pick"}, 1, []string{`needs the grant "cache"`, "run gives what is missing by --grant cache"}},
		{"no answer", []string{"-f", request, "--config", config, "--grant", "cache", prefixDir, "Picker/Pick"}, 1, []string{"there is no answer of kubewasm.examples.picker.v1.Cache/Match"}},
		{"an answer that is not asked for", []string{"-f", request, "--answers", write("other.yaml", "Cache/Other: {}"), "--grant", "cache", prefixDir, "Picker/Pick"}, 1, []string{"no host service with the method Cache/Other"}},
		{"no such method", []string{"-f", request, prefixDir, "Picker/Choose"}, 1, []string{`there is no method "Picker/Choose", only kubewasm.examples.picker.v1.Picker/Pick, kubewasm.examples.picker.v1.Picker/Served`}},
		{"three mistakes in the request", []string{"-f", write("wrong.yaml", "{model: 7, criticality: HIGH, endpoints: [{pod: {metadata: {nam: a}}}]}"), "--grant", "cache", prefixDir, "Picker/Pick"}, 1, []string{"model: want string, not 7", `criticality: want enum, not "HIGH"`, `endpoints[0].pod: `, `unknown field "metadata.nam"`}},
		{"an error with a code", []string{"-f", write("fail.yaml", "{currency: fail, amount: 5}"), "--grant", "rates", "--grant", "objects", "../../abi/conformance/testdata/guests/service", "Quotes/Price"}, 1, []string{"Quotes/Price returned NotFound: failed"}},
		{"too many arguments", []string{"-f", request, prefixDir, "Picker/Pick", "x"}, 1, []string{`unexpected argument "x"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"run"}, test.args...)...)
			if diff := cmp.Diff(test.code, code); diff != "" {
				t.Errorf("exit code (-want +got):\n%s", diff)
			}
			for _, want := range test.want {
				if !strings.Contains(out+stderr, want) {
					t.Errorf("there is no %q in\n%s%s", want, out, stderr)
				}
			}
		})
	}
}
