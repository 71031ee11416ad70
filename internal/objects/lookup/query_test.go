package lookup_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// TestCheckQueries holds that no query reaches more than its source, and that all mistakes are reported.
func TestCheckQueries(t *testing.T) {
	grant := func(name string, q host.ObjectQuery, namespaces ...string) host.ObjectGrant {
		return host.ObjectGrant{Resource: "metrics.kubewasm.dev/v1/" + name, Query: &q, Namespaces: namespaces}
	}
	const of = `objects: the query of "metrics.kubewasm.dev/v1/load": `
	for name, test := range map[string]struct {
		grant host.ObjectGrant
		want  string
	}{
		"Prometheus":           {grant("load", host.ObjectQuery{Prometheus: "load", Service: "monitoring/prometheus:9090", Name: "node"}), ""},
		"Prometheus over TLS":  {grant("load", host.ObjectQuery{Prometheus: "load", Service: "monitoring/https:prometheus-k8s:web", Name: "pod", Namespace: "namespace"}, "shop"), ""},
		"custom metrics":       {grant("load", host.ObjectQuery{Custom: "nodes/temperature"}), ""},
		"external metrics":     {grant("load", host.ObjectQuery{External: "queue_length", Selector: "queue in (a, b)"}, "shop"), ""},
		"objects of the API":   {host.ObjectGrant{Resource: "metrics.k8s.io/v1beta1/nodes"}, ""},
		"no query":             {host.ObjectGrant{Resource: "metrics.kubewasm.dev/v1/load"}, `objects: "metrics.kubewasm.dev/v1/load" has no query`},
		"another resource":     {host.ObjectGrant{Resource: "v1/secrets", Query: &host.ObjectQuery{Prometheus: "load", Service: "a/b"}}, `objects: the query of "v1/secrets": the resource is none of metrics.kubewasm.dev/v1`},
		"no source":            {grant("load", host.ObjectQuery{Name: "node"}), of + "want one of prometheus, custom and external"},
		"two sources":          {grant("load", host.ObjectQuery{Custom: "nodes/a", External: "b"}, "shop"), of + "want one of prometheus, custom and external"},
		"a long expression":    {grant("load", host.ObjectQuery{Prometheus: strings.Repeat("a", 5000), Service: "a/b"}), of + "prometheus is longer than 4 KiB"},
		"no service":           {grant("load", host.ObjectQuery{Prometheus: "load"}), of + "service belongs to prometheus"},
		"a path as a service":  {grant("load", host.ObjectQuery{Prometheus: "load", Service: "a/b/../../c"}), of + "service is not namespace/name:port or namespace/https:name:port"},
		"a URL as a service":   {grant("load", host.ObjectQuery{Prometheus: "load", Service: "http://169.254.169.254"}), of + "service is not namespace/name:port or namespace/https:name:port"},
		"a path as a metric":   {grant("load", host.ObjectQuery{External: "../a"}, "shop"), of + "external is no name of a metric"},
		"a path as an object":  {grant("load", host.ObjectQuery{Custom: "../../a"}), of + "custom is not resource/metric"},
		"no namespace":         {grant("load", host.ObjectQuery{External: "a"}), of + "external needs namespaces"},
		"a bad selector":       {grant("load", host.ObjectQuery{Custom: "nodes/a", Selector: "a=b=c"}), of + "selector is a label selector for custom and external"},
		"names of custom":      {grant("load", host.ObjectQuery{Custom: "nodes/a", Name: "b"}), of + "the objects of custom have their names"},
		"namespaces unlabeled": {grant("load", host.ObjectQuery{Prometheus: "load", Service: "a/b", Name: "node"}, "shop"), of + "namespaces need the label namespace"},
	} {
		if len(test.grant.Namespaces) == 0 {
			test.grant.Namespaces = nil
		}
		got := ""
		if err := errors.Join(lookup.CheckQueries([]host.ObjectGrant{test.grant})...); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if err := errors.Join(lookup.RefuseQueries([]host.ObjectGrant{grant("load", host.ObjectQuery{})})...); err == nil || err.Error() != "objects: only schedulers and services have queries" {
		t.Error(err)
	}
}
