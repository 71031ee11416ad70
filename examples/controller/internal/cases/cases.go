// Package cases tests the guests of this module by the cases in testdata/cases.yaml.
package cases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/examples/controller/scaler"
	"github.com/kubewasm/kubewasm/examples/controller/scalerguest"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
)

// Case is a question to a guest and its answer.
type Case struct {
	Name string `json:"name"`
	// Config is the configuration of the guest.
	Config map[string]any `json:"config"`
	// Metrics are the values of the series of a metric, by its name, with labels as in
	// name{label=value}. No other metrics exist.
	Metrics map[string][]float64 `json:"metrics"`
	// Objects are manifests of what the guest may look up.
	Objects string `json:"objects"`
	// Request is the question.
	Request scaler.ReplicasRequest `json:"request"`
	// Want is the answer as in "3: reason", or the error: of the configuration or of the
	// question.
	Want string `json:"want"`
}

// metrics answers the guest with the metrics of a case.
type metrics struct{ of map[string][]float64 }

func (m *metrics) Query(_ context.Context, req *scaler.QueryRequest) (*scaler.QueryResponse, error) {
	name := req.Name
	if len(req.Labels) != 0 {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(req.Labels)) {
			pairs = append(pairs, k+"="+req.Labels[k])
		}
		name += "{" + strings.Join(pairs, ",") + "}"
	}
	values, ok := m.of[name]
	if !ok {
		return nil, fmt.Errorf("there is no metric %s", name)
	}
	return &scaler.QueryResponse{Values: values}, nil
}

// Run runs each case of testdata/cases.yaml on guest, natively and as WebAssembly.
func Run(t *testing.T, guest scalerguest.Scaler) {
	text, err := os.ReadFile("testdata/cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []Case
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	m := &metrics{}
	load := func(ctx context.Context, rt *host.Runtime, cfg service.Config) (*scaler.Scaler, error) {
		return scaler.LoadScaler(ctx, rt, cfg, m)
	}
	servicetest.Each(t, guest, load, func(t *testing.T, p *servicetest.Plugin[*scaler.Scaler]) {
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				m.of = c.Metrics
				if diff := cmp.Diff(c.Want, answer(t, p, &c)); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			})
		}
	})
}

// answer returns the answer of a guest in a case.
func answer(t *testing.T, p *servicetest.Plugin[*scaler.Scaler], c *Case) string {
	config, err := yaml.Marshal(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.In(t, c.Objects).TryConfigure(t, string(config))
	if err != nil {
		return err.Error()
	}
	if s.Plugin.Plugin != nil { // The native plugin has nothing to close.
		defer s.Close(context.WithoutCancel(t.Context()))
	}
	resp, err := s.Replicas(t.Context(), &c.Request)
	if status, ok := errors.AsType[*host.StatusError](err); ok {
		return status.Reason
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d: %s", *resp.Replicas, resp.Reason)
}
