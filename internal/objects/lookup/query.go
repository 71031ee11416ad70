package lookup

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/host"
)

// queried is the group and the version of the resources that are the values of queries.
const queried = "metrics.kubewasm.dev/v1"

// The grammars of the parts of a query, which become parts of a path.
var (
	serviceRE = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*/(https?:)?[a-z][-a-z0-9]*(:[-a-z0-9]+)?$`)
	customRE  = regexp.MustCompile(`^[a-z0-9][-.a-z0-9]*/[A-Za-z0-9_][-.:A-Za-z0-9_]*$`)
	metricRE  = regexp.MustCompile(`^[A-Za-z0-9_][-.:A-Za-z0-9_]*$`)
)

// maxExpression is the length of the longest expression, in bytes. It becomes a part of a URL.
const maxExpression = 4 << 10

// CheckQueries returns every mistake of the queries of grants for a host that has queries.
func CheckQueries(grants []host.ObjectGrant) (errs []error) {
	for _, g := range grants {
		q := g.Query
		named := strings.HasPrefix(g.Resource, queried+"/")
		if q == nil {
			if named {
				errs = append(errs, fmt.Errorf("objects: %.200q has no query", g.Resource))
			}
			continue
		}
		mistake := func(wrong bool, text string) {
			if wrong {
				errs = append(errs, fmt.Errorf("objects: the query of %.200q: %s", g.Resource, text))
			}
		}
		sources := 0
		for _, source := range []string{q.Prometheus, q.Custom, q.External} {
			if source != "" {
				sources++
			}
		}
		_, err := labels.Parse(q.Selector)
		mistake(!named, "the resource is none of "+queried)
		mistake(sources != 1, "want one of prometheus, custom and external")
		mistake(len(q.Prometheus) > maxExpression, "prometheus is longer than 4 KiB")
		mistake((q.Prometheus != "") != (q.Service != ""), "service belongs to prometheus")
		mistake(q.Service != "" && !serviceRE.MatchString(q.Service), "service is not namespace/name:port or namespace/https:name:port")
		mistake(q.Custom != "" && !customRE.MatchString(q.Custom), "custom is not resource/metric")
		mistake(q.External != "" && !metricRE.MatchString(q.External), "external is no name of a metric")
		mistake(q.External != "" && g.Namespaces == nil, "external needs namespaces")
		mistake(err != nil || q.Selector != "" && q.Prometheus != "", "selector is a label selector for custom and external")
		mistake(q.Custom != "" && (q.Name != "" || q.Namespace != ""), "the objects of custom have their names")
		mistake(q.External != "" && q.Namespace != "", "the values of external have their namespace")
		mistake(q.Prometheus != "" && g.Namespaces != nil && q.Namespace == "", "namespaces need the label namespace")
	}
	return errs
}

// RefuseQueries returns an error for each query of grants for a host that has none.
func RefuseQueries(grants []host.ObjectGrant) (errs []error) {
	for _, g := range grants {
		if g.Query != nil {
			errs = append(errs, errors.New("objects: only schedulers and services have queries"))
		}
	}
	return errs
}

// UnlistedResource returns the resource of a kind that no discovery is needed for: of metrics. In
// tests, the kind of a value is the name of its query.
func UnlistedResource(kind schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	switch {
	case kind.GroupVersion().String() == queried:
		return kind.GroupVersion().WithResource(strings.ToLower(kind.Kind)), true
	case kind.Group == "metrics.k8s.io" && kind.Kind == "NodeMetrics":
		return kind.GroupVersion().WithResource("nodes"), true
	case kind.Group == "metrics.k8s.io" && kind.Kind == "PodMetrics":
		return kind.GroupVersion().WithResource("pods"), true
	}
	return schema.GroupVersionResource{}, false
}
