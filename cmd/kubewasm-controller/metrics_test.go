package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/rollouts"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
)

// cached are NodeHooks and policies of namespaces, as a cache has them.
type cached struct {
	client.Reader
	hooks    []v1alpha1.NodeHook
	policies []v1alpha1.AdmissionPolicy
}

func (c *cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.NodeHookList:
		l.Items = c.hooks
	case *v1alpha1.AdmissionPolicyList:
		l.Items = c.policies
	}
	return nil
}

func page() *rollouts.Page {
	status := func(revision string, ready, rolled metav1.Condition) v1alpha1.PluginStatus {
		ready.Type, rolled.Type = v1alpha1.ConditionReady, v1alpha1.ConditionRolledOut
		return v1alpha1.PluginStatus{
			Ready: "1/2", Revision: revision, Rollout: &v1alpha1.RolloutStatus{Wanted: 2, Step: 1, Since: &metav1.Time{Time: time.Unix(1e9, 0)}}, Conditions: []metav1.Condition{ready, rolled},
		}
	}
	p := rollouts.NewPage(&cached{
		hooks: []v1alpha1.NodeHook{{ObjectMeta: metav1.ObjectMeta{Name: "shares"}, Status: status("1 (1), 2 (1)", metav1.Condition{Status: "False", Message: "1 of 2: <b>no"}, metav1.Condition{Status: "False", Reason: "Progressing", Message: "in step 1"})}},
		policies: []v1alpha1.AdmissionPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}, Status: status("2", metav1.Condition{Status: "True"}, metav1.Condition{Status: "True", Reason: "Complete"}),
		}},
	})
	p.RolledBack.WithLabelValues("NodeHook", "Failing").Inc()
	return p
}

// TestMetricsPage holds the program's rows of docs/metrics.md.
func TestMetricsPage(t *testing.T) {
	artifacts, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(page(), program.ThisBuild().Collector("kubewasm-controller"), ocimetrics.New(artifacts))
	metricspage.Check(t, "controller", registry, "kubewasm_oci_source_info", "kubewasm_oci_source_stale", "kubewasm_oci_source_checked_timestamp_seconds")
}

// The page has the plugins that are not ready first, and the reasons for processes of its Pod.
func TestStatusPage(t *testing.T) {
	for _, test := range []struct{ accept, from, want string }{
		{"", "127.0.0.1:1", "2 plugins, 1 of them not ready, 0 left out\n\nPLUGIN                  READY  REVISION      WANTED  ROLLOUT      DIGEST  WHY\nNodeHook/shares         1/2    1 (1), 2 (1)  2       Progressing          1 of 2: <b>no; in step 1\nAdmissionPolicy/team/a  1/2    2             2       Complete             \n"},
		{"text/html", "127.0.0.1:1", "<td>1 of 2: &lt;b&gt;no; in step 1"},
		{"text/html", "10.0.0.1:1", "<td>shown by kubectl port-forward"},
	} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:8080/statusz", nil)
		r.RemoteAddr = test.from
		r.Header.Set("Accept", test.accept)
		w := httptest.NewRecorder()
		page().ServeHTTP(w, r)
		if got := w.Body.String(); !strings.Contains(got, test.want) {
			t.Errorf("%s from %s: %s", test.accept, test.from, fmt.Sprintf("%s, want %s", got, test.want))
		}
	}
}
