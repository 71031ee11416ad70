package main

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
)

func load(ctx context.Context, rt *host.Runtime, cfg service.Config) (*picker.Picker, error) {
	return picker.LoadPicker(ctx, rt, cfg, nil)
}

func TestPick(t *testing.T) {
	tests := []struct {
		name, request string
		want          []float64
	}{
		{
			"a server that has the adapter, one with room and one without",
			`{model: sql, endpoints: [{name: a, activeModels: [chat, sql], maxActiveModels: 2}, {name: b, activeModels: [chat], maxActiveModels: 2}, {name: c, activeModels: [chat], maxActiveModels: 1}]}`,
			[]float64{1, 0.8, 0},
		},
		{
			"servers that report no adapters",
			`{model: llama, endpoints: [{name: a}, {name: b, maxActiveModels: 4}]}`,
			[]float64{0, 0.8},
		},
		{"no servers", `{model: sql}`, nil},
	}
	servicetest.Each(t, adapter{}, load, func(t *testing.T, p *servicetest.Plugin[*picker.Picker]) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				resp, err := p.Configure(t, "").Pick(t.Context(), servicetest.Read[picker.PickRequest](t, test.request))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, resp.Scores); diff != "" {
					t.Errorf("scores (-want +got):\n%s", diff)
				}
			})
		}
	})
}
