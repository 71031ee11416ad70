package main

import (
	"os"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/minors"

	"github.com/google/go-cmp/cmp"
)

// printed is what go test -json prints of tests in which all that the document tells happened.
const printed = `{"Action":"run","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler","Test":"TestScheduler"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler","Test":"TestScheduler","Key":"kubernetes","Value":"v1.35.4"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler","Test":"TestScheduler","Key":"guest","Value":"examples/sched/zone aa"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler","Test":"TestScheduler","Key":"guest","Value":"examples/sched/gang bb"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler","Test":"TestScheduler","Key":"guest","Value":"examples/sched/gang bb"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/differential","Test":"TestGuests","Key":"compared","Value":"NodeName 2000 Pods"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/differential","Test":"TestGuests","Key":"compared","Value":"NodePorts 2000 Pods"}
{"Action":"attr","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/importer","Test":"TestImporter","Key":"importer","Value":"k8s.io/* v0.35.0"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler","Test":"TestScheduler"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/scheduler"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/admission","Test":"TestAPIServer"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/differential","Test":"TestGuests"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/neutral","Test":"TestNeutral"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/importer","Test":"TestImporter"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/sched/kube135","Test":"TestAdapter"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/admission","Test":"Test"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/host/oci","Test":"Test"}
{"Action":"pass","Package":"github.com/kubewasm/kubewasm/hooks","Test":"Test"}
`

const line = "| 1.35 | v1.35.4 | yes | yes | 2 plugins, 4000 Pods | k8s.io/* v0.35.0 |"

func resultOf(t *testing.T, minor, printed string) *result {
	t.Helper()
	r := &result{minor: minor, passed: map[string]int{}, attributes: map[string][]string{}}
	if _, err := r.read(strings.NewReader(printed), false); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestADocumentTellsWhatRan(t *testing.T) {
	r := resultOf(t, "1.35", printed)
	text, err := report([]*result{r})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{line, "- `examples/sched/gang`: 1.35\n", "| `generateplacements`"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	for _, m := range minors.All() {
		if !strings.Contains(string(text), " "+m.Name+" |") {
			t.Errorf("the table of extension points lacks %s", m.Name)
		}
	}
	if err := compare(string(text), []*result{r}); err != nil {
		t.Error(err)
	}
}

func TestADocumentIsNotWrittenOfWhatDidNotRun(t *testing.T) {
	tests := map[string]struct{ without, want string }{
		"no control plane":    {`"Key":"kubernetes"`, "0 values of kubernetes"},
		"no guest":            {`"Key":"guest"`, "ran no guest"},
		"no importer":         {`"Key":"importer"`, "0 values of importer"},
		"no comparison":       {`"Action":"pass","Package":"github.com/kubewasm/kubewasm/internal/testkit/e2e/differential"`, "no test of internal/testkit/e2e/differential passed"},
		"no adapter":          {"sched/kube135", "no test of sched/kube135 passed"},
		"a test of hosts not": {"host/oci", "no test of host passed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var rest strings.Builder
			for l := range strings.Lines(printed) {
				if !strings.Contains(l, test.without) {
					rest.WriteString(l)
				}
			}
			_, err := report([]*result{resultOf(t, "1.35", rest.String())})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestAnotherDocumentIsOutOfDate(t *testing.T) {
	r := resultOf(t, "1.35", printed)
	text, err := report([]*result{r})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{line, "- `examples/sched/zone`", "| `podgrouppostfilter`"} {
		err := compare(strings.Replace(string(text), gone, "", 1), []*result{r})
		if err == nil || !strings.Contains(err.Error(), "out of date") {
			t.Errorf("without %q: got %v", gone, err)
		}
	}
}

func TestAllThatADocumentLacksIsReported(t *testing.T) {
	r := resultOf(t, "1.35", printed)
	text, err := report([]*result{r})
	if err != nil {
		t.Fatal(err)
	}
	gone := []string{line, "- `examples/sched/zone`", "- `examples/sched/gang`"}
	less := string(text)
	for _, g := range gone {
		less = strings.Replace(less, g, "", 1)
	}
	err = compare(less, []*result{r})
	for _, g := range gone {
		if err == nil || !strings.Contains(err.Error(), g) {
			t.Errorf("got %v, want an error with %q", err, g)
		}
	}
}

// TestTheDocumentHasTheExtensionPoints finds a function that was added before the tests of
// all minors, which take half an hour, do.
func TestTheDocumentHasTheExtensionPoints(t *testing.T) {
	text, err := os.ReadFile("../../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range pointLines() {
		if !strings.Contains(string(text), line) {
			t.Errorf("%s is out of date, run make kubernetes: it lacks %q", document, line)
		}
	}
}

func TestOtherBytesOfAGuestAreAnError(t *testing.T) {
	same := []*result{resultOf(t, "1.35", printed), resultOf(t, "1.37", printed)}
	if err := sameGuests(same); err != nil {
		t.Error(err)
	}
	other := resultOf(t, "1.37", strings.ReplaceAll(printed, "zone aa", "zone ab"))
	if err := sameGuests([]*result{same[0], other}); err == nil || !strings.Contains(err.Error(), "examples/sched/zone") {
		t.Errorf("got %v", err)
	}
}

func TestFailedTestsAreShown(t *testing.T) {
	r := &result{passed: map[string]int{}, attributes: map[string][]string{}}
	failed, err := r.read(strings.NewReader(`{"Action":"output","Package":"p","Test":"TestA","Output":"a is wrong\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"b is right\n"}
{"Action":"build-output","ImportPath":"q","Output":"undefined: x\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
`), false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("undefined: x\na is wrong\n", failed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
