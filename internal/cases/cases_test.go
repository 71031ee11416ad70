package cases_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/cases"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

const (
	zone    = "../../examples/sched/zone"
	labels  = "../../examples/admission/required-labels"
	batch   = "../../examples/hooks/batch-resource"
	service = "../../abi/conformance/testdata/guests/service"
	panics  = "../../cmd/kubewasm/testdata/panics"
	kit     = "../../abi/conformance/testdata/guests/scheduler"
	widgets = "../../abi/conformance/testdata/guests/admission"
)

// read writes a file of cases, and reads it.
func read(t *testing.T, text string) (*cases.File, string, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "cases.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := cases.Read(name)
	return f, filepath.Dir(name), err
}

// TestRun holds that each kind of case is asked, and that each mistake is a failure.
func TestRun(t *testing.T) {
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	const node = `{metadata: {name: n, labels: {topology.kubernetes.io/zone: a}}}`
	const step = `steps: [{prefilter: {pod: {metadata: {name: p}}}}, `
	for name, test := range map[string]struct {
		guest, one string
		// want are parts of the failures, in order.
		want []string
	}{
		"Filter as wanted":                {zone, `pod: {}, node: ` + node, nil},
		"Filter that is not as wanted":    {zone, `pod: {}, node: ` + node + `, want: "Unschedulable: no"`, []string{"filter: got  Success\nwant Unschedulable: no"}},
		"a refusal that does not come":    {zone, `refused: anything`, []string{"the configuration was taken, want it refused: anything"}},
		"another refusal":                 {zone, `config: {x: 1}, refused: 'y: unknown'`, []string{"refused the configuration: got  x: unknown field, there are defaultZones\nwant in it y: unknown"}},
		"a configuration that is refused": {zone, `config: {x: 1}, pod: {}, node: ` + node, []string{"x: unknown field"}},
		"a score that is not as wanted":   {zone, step + `{score: {node: ` + node + `, score: 7}}]`, []string{"step 2, score (-want +got):"}},
		"a score that is too high":        {panics, `steps: [{prefilter: {pod: {metadata: {name: high}}}}, {score: {node: {metadata: {name: n}}, score: 1099511627776}}]`, []string{"Score without NormalizeScore: the scheduler refuses the score 1099511627776 of the node "}},
		"a score below 0":                 {panics, `steps: [{prefilter: {pod: {metadata: {name: low}}}}, {score: {node: {metadata: {name: n}}, score: -5}}]`, []string{"the scheduler refuses the score -5 of the node "}},
		"a score that stays too high":     {kit, `config: {label: zone}, steps: [{prefilter: {pod: {metadata: {name: p, labels: {zone: a}}}}}, {normalizescore: {scores: [{name: n0, score: -1}], want: [{name: n0, score: 101}]}}]`, []string{`NormalizeScore: the scheduler refuses the score 101 of the node "n0"`}},
		"nodes that are not as wanted":    {zone, `steps: [{prefilter: {pod: {}, nodes: [n]}}]`, []string{"step 1, prefilter: nodes (-want +got):"}},
		"two failures":                    {zone, step + `{filter: {node: ` + node + `, want: Skip}}, {score: {node: ` + node + `, score: 1}}]`, []string{"step 2, filter: got  Success\nwant Skip", "step 3, score"}},
		"a step without a cycle":          {zone, `steps: [{filter: {node: ` + node + `}}]`, []string{"step 1, filter: there is no cycle, which a step prefilter begins"}},
		"a step that is none":             {zone, `steps: [{}]`, []string{"step 1 is none"}},
		"a step that is two":              {zone, `steps: [{preenqueue: {pod: {}}, signpod: {pod: {}}}]`, []string{"step 1 is two: preenqueue and signpod"}},
		"a function that is not there":    {zone, `steps: [{preenqueue: {pod: {}}}]`, []string{"the plugin does not implement PreEnqueue"}},
		"a Node of the objects":           {zone, `objects: [{apiVersion: v1, kind: Node, metadata: {name: n1}}], pod: {}, node: n1`, nil},
		"a Node that is not there":        {zone, `pod: {}, node: n2`, []string{`the scheduler has no node "n2"`}},
		"nothing":                         {zone, `container: x`, []string{"a case has one of steps, "}},
		"a trap":                          {kit, `config: {label: zone}, steps: [{prefilter: {pod: {metadata: {name: p, labels: {zone: a}}}}}, {filter: {node: {metadata: {name: n, labels: {trap: ""}}}, traps: unreachable}}]`, nil},
		"a trap with another text":        {kit, `config: {label: zone}, steps: [{prefilter: {pod: {metadata: {name: p, labels: {zone: a}}}}}, {filter: {node: {metadata: {name: n, labels: {trap: ""}}}, traps: what is not there}}]`, []string{"trap: got "}},
		"a trap that does not come":       {zone, step + `{filter: {node: ` + node + `, traps: x}}]`, []string{`no trap, want one with "x"`}},
		"a trap that nobody wants":        {kit, `config: {label: zone}, steps: [{prefilter: {pod: {metadata: {name: p, labels: {zone: a}}}}}, {filter: {node: {metadata: {name: n, labels: {trap: ""}}}}}]`, []string{"trapped"}},
		"a denial that is not wanted":     {labels, `config: {labels: [a]}, create: {apiVersion: v1, kind: Pod, metadata: {name: p}}`, []string{"allowed is false, want true", "errors (-want +got):"}},
		"a denial, whatever it says":      {labels, `config: {labels: [a]}, create: {apiVersion: v1, kind: Pod, metadata: {name: p}}, want: {denied: true}`, nil},
		"an error that nobody wants":      {labels, `create: {apiVersion: v1, kind: Service, metadata: {name: s}}`, []string{"the plugin could not decide: a Service is no Pod"}},
		"a verdict with a typo":           {labels, `create: {apiVersion: v1, kind: Pod, metadata: {name: p}}, want: {warning: x}`, []string{`want: json: unknown field "warning"`}},
		"a conversion": {widgets, `convert: {apiVersion: example.com/v1alpha1, kind: Widget, metadata: {name: w}, spec: {size: 1}}, to: example.com/v1,
			want: {apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 2}}`, []string{"converted (-want +got):"}},
		"a decision":              {batch, `pod: {metadata: {name: p}, spec: {containers: [{name: c}]}}, container: c`, nil},
		"another decision":        {batch, `pod: {metadata: {name: p}, spec: {containers: [{name: c}]}}, container: c, want: {cpu_shares: 2}`, []string{"decision (-want +got):"}},
		"no such container":       {batch, `pod: {metadata: {name: p}}, container: c`, []string{`the Pod has no container "c"`}},
		"an error not decided":    {batch, `pod: {metadata: {name: p}}, error: x`, []string{`no error, want "x"`}},
		"no such method":          {service, `method: Quotes/Nothing`, []string{"Nothing"}},
		"a response is compared":  {service, `method: Quotes/Echo, request: {text: a}, want: {text: b}`, []string{"response (-want +got):"}},
		"a host service answers":  {service, `method: Quotes/Price, request: {currency: EUR, amount: 14}, answers: {Market/Rate: {rate: 3}}, want: {total: 42, note: none}`, nil},
		"an error with a code":    {service, `method: Quotes/Price, request: {currency: fail, amount: 5}, error: "NotFound: failed"`, nil},
		"an error of no code":     {service, `method: Quotes/Price, request: {currency: fail, amount: -7}, error: "code(-7): failed"`, nil},
		"another code":            {service, `method: Quotes/Price, request: {currency: fail, amount: 7}, error: "NotFound: failed"`, []string{"error: got  PermissionDenied: failed\nwant in it NotFound: failed"}},
		"an error without a code": {service, `method: Quotes/Price, request: {amount: 5}, error: no currency`, nil},
		"a host service without":  {service, `method: Quotes/Price, request: {currency: EUR, amount: 14}, error: there is no answer of kubewasm.conformance.v1.Market/Rate`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir, err := read(t, "cases: [{name: one, "+test.one+"}]")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := cases.Run(t.Context(), f, dir, test.guest, nil, func(r cases.Result) { got = r.Failures }); err != nil {
				t.Fatal(err)
			}
			ok := len(got) == len(test.want)
			for i := range min(len(got), len(test.want)) {
				ok = ok && strings.Contains(strings.ReplaceAll(got[i], "\u00a0", " "), test.want[i])
			}
			if !ok {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"cases: []":          "it has no cases",
		"cases: [{pod: {}}]": "case 1 has no name",
		"cases: [{name: a, pod: {}}, {name: a, pod: {}}]": `two cases have the name "a"`,
		"cases: [{name: a, pods: {}}]":                    `unknown field "cases[0].pods", did you mean "pod"?`,
		"cases: [":                                        "",
	} {
		if _, _, err := read(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestOnlySomeCases(t *testing.T) {
	f, dir, err := read(t, "cases: [{name: a, pod: {}, node: {}}, {name: b, pod: {}, node: {}}]")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = cases.Run(t.Context(), f, dir, zone, func(name string) bool { return name == "b" }, func(r cases.Result) { got = append(got, r.Name) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b"}, got); diff != "" {
		t.Error(diff)
	}
}
