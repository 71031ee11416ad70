package clusterplugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/shadow"
)

// describe returns the version that an object has for a process, as text.
func describe(o *Object) string {
	if o == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%d of generation %d %s %s", o.Revision, o.Generation, o.Pinned, o.Spec)
	if o.Held {
		text = "held"
	}
	if o.Trial != 0 {
		text += fmt.Sprintf(" on trial %d of %d", o.Trial, o.Bounds.Revision)
	}
	if len(o.NodeSelectors) != 0 {
		text += fmt.Sprintf(" on %v, or %s", o.NodeSelectors, describe(o.Else))
	}
	return strings.TrimSpace(text)
}

// Processes choose by the status that the controller has written, and serve on until it has.
func TestAProcessChooses(t *testing.T) {
	const (
		stable    = `"stable":{"revision":1,"generation":1,"spec":{"guestConfig":"a"},"pin":"r@1"}`
		candidate = `"candidate":{"revision":2,"generation":5,"spec":{"guestConfig":"b","module":{"oci":"r:2","follow":true}},"pin":"r@2"},"trial":5`
		all       = `"below":4294967296`
		one       = "1 of generation 1 r@1 " + `{"guestConfig":"a"}`
		two       = "2 of generation 5 r@2 " + `{"guestConfig":"b","module":{"oci":"r:2","follow":true}}`
	)
	for name, test := range map[string]struct {
		kind, spec, rollout, want string
	}{
		"at once":                        {"NodeHook", `{"a":1}`, `{` + stable + `}`, `0 of generation 6  {"a":1}`},
		"a limit of the history":         {"NodeHook", `{"a":1,"revisionHistoryLimit":2}`, ``, `0 of generation 6  {"a":1}`},
		"the controller has not written": {"NodeHook", `{"a":1,"rollout":{}}`, ``, "held"},
		"nor the spec":                   {"NodeHook", `{"a":1,"rollout":{}}`, `{"stable":{"revision":1,"generation":1}}`, "held"},
		"no revision":                    {"NodeHook", `{"a":1,"rollout":{}}`, `{}`, "held"},
		"stable":                         {"NodeHook", `{"a":1,"rollout":{}}`, `{` + stable + `}`, one},
		"a revision":                     {"NodeHook", `{"a":1,"revision":1}`, `{` + stable + `}`, one},
		"outside":                        {"NodeHook", `{"a":1,"rollout":{}}`, `{` + stable + `,` + candidate + `}`, one},
		"inside":                         {"NodeHook", `{"a":1,"rollout":{}}`, `{` + stable + `,` + candidate + `,` + all + `}`, two + " on trial 5 of 2"},
		"disabled":                       {"ClusterAdmissionPolicy", `{"enabled":false,"rollout":{}}`, `{` + stable + `}`, `1 of generation 1 r@1 {"enabled":false,"guestConfig":"a"}`},
		"by labels":                      {"NodeHook", `{"rollout":{}}`, `{` + stable + `,` + candidate + `,"nodeSelectors":["a=b"]}`, two + " on trial 5 of 2 on [a=b], or " + one},
		"by labels, the first":           {"NodeHook", `{"rollout":{}}`, `{` + candidate + `,"nodeSelectors":["a=b"]}`, two + " on trial 5 of 2 on [a=b], or held"},
		"the first, outside":             {"NodeHook", `{"rollout":{}}`, `{` + candidate + `}`, "held"},
		"the first of a policy, outside": {"AdmissionPolicy", `{"rollout":{}}`, `{` + candidate + `}`, `2 of generation 5 r@2 {"guestConfig":"b","mode":"Monitor","module":{"follow":true,"oci":"r:2"}}`},
		"the first of a policy, Monitor": {"AdmissionPolicy", `{"rollout":{}}`, `{` + candidate + `,"mode":"Monitor",` + all + `}`, `2 of generation 5 r@2 {"guestConfig":"b","mode":"Monitor","module":{"follow":true,"oci":"r:2"}} on trial 5 of 2`},
		"the first, Monitor":             {"NodeHook", `{"rollout":{}}`, `{` + candidate + `,"mode":"Monitor",` + all + `}`, `2 of generation 5 r@2 {"guestConfig":"b","mode":"Monitor","module":{"follow":true,"oci":"r:2"}} on trial 5 of 2`},
		"a shadow":                       {"ClusterAdmissionPolicy", `{"rollout":{}}`, `{` + stable + `,` + candidate + `,"mode":"Shadow",` + all + `}`, `1 of generation 1 r@1 {"guestConfig":"a","shadow":{"guestConfig":"b","module":{"oci":"r@2"},"rate":1}} on trial 5 of 2`},
	} {
		status := `{}`
		if test.rollout != "" {
			status = `{"rollout":` + test.rollout + `}`
		}
		w := New(Config{Name: "n", Resources: []Resource{{test.kind, "p"}}})
		k := w.kinds[0]
		raw := fmt.Sprintf(`{"metadata":{"name":"o","uid":"u","generation":6},"spec":%s,"status":%s}`, test.spec, status)
		// As in a list, too.
		for _, raw := range []json.RawMessage{json.RawMessage(raw), keep()(json.RawMessage(raw))} {
			if _, err := w.put(k, raw, time.Now()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(test.want, describe(&k.objects["o"].newest)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		// It is known after a restart without the API server.
		text, err := json.Marshal(k.objects["o"].newest)
		var kept Object
		if err := errors.Join(err, json.Unmarshal(text, &kept)); err != nil || !kept.Same(&k.objects["o"].newest) {
			t.Errorf("%s: kept is %s, error %v, of %s", name, describe(&kept), err, text)
		}
		// Until the controller has written, the version before serves, and one that it has never seen.
		if test.want != "held" {
			continue
		}
		w = New(Config{Name: "n", Resources: []Resource{{test.kind, "p"}}})
		for generation, spec := range map[int]string{1: `{"before":1}`} {
			for _, raw := range []string{
				fmt.Sprintf(`{"metadata":{"name":"o","uid":"u","generation":%d},"spec":%s}`, generation, spec), raw,
			} {
				if _, err := w.put(w.kinds[0], json.RawMessage(raw), time.Now()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, want := describe(&w.kinds[0].objects["o"].newest), `0 of generation 1  {"before":1}`; got != want {
			t.Errorf("%s: the process goes on with %s, want %s", name, got, want)
		}
	}
}

// A trial tells once that it fails, at its bound, and another trial of the version counts anew.
func TestTrials(t *testing.T) {
	var trials Trials
	var served *Trial
	o := Object{Kind: "NodeHook", Name: "h", UID: "u", Revision: 2, Bounds: Bounds{Trial: 5, Revision: 2, Failures: 2, Latency: time.Second}}
	state := func() string {
		var s State
		trials.Of(&o).Report(&s)
		return strings.TrimSpace(fmt.Sprintf("%d %s", s.Trial, s.Failing))
	}
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"it begins", func() { trials.Apply([]Object{o}) }, "5"},
		{"calls succeed", func() { trials.Of(&o).Called(nil, time.Millisecond) }, "5"},
		{"one fails", func() { trials.Of(&o).Called(errors.New("trap"), 0) }, "5"},
		{"one is slow", func() { trials.Of(&o).Called(nil, time.Second) }, "5 2 failed calls, the first: trap"},
		{"others fail", func() { trials.Of(&o).Called(errors.New("again"), 0) }, "5 2 failed calls, the first: trap"},
		{"it ends", func() { o.Bounds = Bounds{}; trials.Apply([]Object{o}) }, "5 2 failed calls, the first: trap"},
		{"it begins again", func() { o.Bounds = Bounds{Trial: 7, Revision: 2, Failures: 1}; trials.Apply([]Object{o}) }, "7"},
		{"another revision serves", func() { o.Revision, o.Bounds = 1, Bounds{}; trials.Apply([]Object{o}) }, "0"},
		{"a shadow", func() {
			o.Bounds = Bounds{Trial: 9, Revision: 3, Shadow: true, Failures: 2, Differences: 3}
			trials.Apply([]Object{o})
			trials.Of(&o).Called(errors.New("of the stable one"), 0)
			trials.Of(&o).Compared(shadow.Status{State: shadow.Running, Compared: 10, Same: 8, Failed: 1})
		}, "9"},
		{"it differs", func() {
			trials.Of(&o).Compared(shadow.Status{State: shadow.Running, Compared: 10, Same: 7, Groups: []shadow.Group{{Change: "allow -> deny"}}})
		}, "9 3 of 10 answers differ in the shadow, most of them allow -> deny"},
		{"another shadow, which does not serve yet", func() {
			before := o
			o.Bounds = Bounds{Trial: 11, Revision: 4, Shadow: true, Failures: 2, Differences: 3}
			trials.Apply([]Object{o})
			trials.Of(&before).Compared(shadow.Status{State: shadow.Running, Compared: 10, Same: 7})
		}, "11"},
		{"a first revision that monitors", func() {
			o = Object{Kind: "ClusterAdmissionPolicy", Name: "p", UID: "v", Revision: 1}
			trials.Apply([]Object{o})
			served = trials.Of(&o)
			served.Called(errors.New("before its trial"), 0)
		}, "0"},
		{"it comes on trial as it serves", func() {
			o.Bounds = Bounds{Trial: 2, Revision: 1, Failures: 1}
			trials.Apply([]Object{o})
			served.Called(errors.New("trap"), 0)
		}, "2 1 failed calls, the first: trap"},
		{"the object is gone", func() { trials.Apply(nil) }, "0"},
	}
	for _, step := range steps {
		step.do()
		if got := state(); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}
