package reports_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
)

// report returns the report of an agent on hooks in the form "name state".
func report(hooks ...string) *reports.Report {
	r := &v1alpha1.PluginReport{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Component: "kubewasm-agent"}
	for _, hook := range hooks {
		name, state, _ := strings.Cut(hook, " ")
		r.Plugins = append(r.Plugins, v1alpha1.PluginState{Kind: plugin.NodeHook, Name: name, UID: "u", State: state, Message: "\x1b" + state})
	}
	return reports.Of(r)
}

func TestChanged(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after *reports.Report
		want          []string
	}{
		{"nothing", report("a x", "b y"), report("b y", "a x"), nil},
		{"the first report", nil, report("b y", "a x"), []string{"a", "b"}},
		{"no report", report("a x"), nil, []string{"a"}},
		{"one state", report("a x", "b y", "c z"), report("a x", "b z", "c z"), []string{"b"}},
		{"one comes and one goes", report("a x", "c x"), report("b x", "c x"), []string{"a", "b"}},
		{"the first of two states counts", report("a x"), report("a x", "a y"), nil},
		{"neither", nil, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			reports.Changed(test.before, test.after, func(k plugin.Key) { got = append(got, k.Name) })
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestState(t *testing.T) {
	r := report("a x", "b y")
	for _, test := range []struct {
		name string
		of   plugin.Key
		uid  string
		want string
	}{
		{"a hook", plugin.Key{Kind: plugin.NodeHook, Name: "b"}, "u", `y \u001by`},
		{"an earlier object of the name", plugin.Key{Kind: plugin.NodeHook, Name: "b"}, "v", ""},
		{"a hook that there is not", plugin.Key{Kind: plugin.NodeHook, Name: "c"}, "u", ""},
		{"a policy", plugin.Key{Kind: plugin.ClusterAdmissionPolicy, Name: "b"}, "u", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if s, ok := r.State(test.of, types.UID(test.uid)); ok {
				got = s.State + " " + s.Message
			}
			if got != test.want {
				t.Errorf("the state is %q, want %q", got, test.want)
			}
		})
	}
}

// TestReportsOfNoPod bounds the time for which a report counts that no Pod owns.
func TestReportsOfNoPod(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name             string
		created, renewed time.Duration // Before now.
		old              bool
	}{
		{"new", 0, 0, false},
		{"renewed", 100 * time.Hour, time.Hour, false},
		{"not renewed", 100 * time.Hour, 2 * time.Hour, true},
		{"never renewed, of today", 20 * time.Hour, -1, false},
		{"never renewed, of yesterday", 25 * time.Hour, -1, true},
		{"renewed in the future", 25 * time.Hour, -2, true},
	} {
		r := &v1alpha1.PluginReport{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-tt.created))}}
		switch {
		case tt.renewed >= 0:
			r.Renewed = &metav1.Time{Time: now.Add(-tt.renewed)}
		case tt.renewed == -2:
			r.Renewed = &metav1.Time{Time: now.Add(time.Hour)}
		}
		if left := reports.Of(r).Left(now); (left <= 0) != tt.old {
			t.Errorf("%s: it has %s", tt.name, left)
		}
	}
}
