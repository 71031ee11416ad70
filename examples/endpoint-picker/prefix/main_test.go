package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
)

// caches are the blocks that each endpoint has.
type caches map[string]int32

func (c caches) Match(_ context.Context, req *picker.MatchRequest) (*picker.MatchResponse, error) {
	if len(req.PrefixHashes) > 2 {
		return nil, errors.New("the index is being rebuilt")
	}
	return &picker.MatchResponse{Blocks: c}, nil
}

func load(ctx context.Context, rt *host.Runtime, cfg service.Config) (*picker.Picker, error) {
	return picker.LoadPicker(ctx, rt, cfg, caches{"b": 1})
}

func TestPick(t *testing.T) {
	tests := []struct {
		name, config, request, want string
	}{
		{
			"the shortest queue without a cache", `{maxQueue: 9}`,
			`endpoints: [{name: a, waitingQueueSize: 5}, {name: b}, {name: c, waitingQueueSize: 9}]`,
			"[0.5 1 0.1] ",
		},
		{
			"a busy server gets nothing", `{maxQueue: 9}`,
			`endpoints: [{name: a, waitingQueueSize: 10}, {name: b}]`,
			"[-1 1] ",
		},
		{
			"unless the request is critical", `{maxQueue: 9}`,
			`{criticality: CRITICALITY_CRITICAL, endpoints: [{name: a, waitingQueueSize: 10}]}`,
			"[0] ",
		},
		{
			"a Pod that drains gets nothing", `{maxQueue: 9, drainLabel: drain}`,
			`endpoints: [{name: a, pod: {metadata: {name: a, labels: {drain: "true"}}}}, {name: b, pod: {metadata: {name: b}}}, {name: c}]`,
			"[-1 1 1] ",
		},
		{
			"the cached part of the prompt counts", `{maxQueue: 9, cacheWeight: 0.5}`,
			`{prefixHashes: [7, 8], endpoints: [{name: a}, {name: b}]}`,
			"[0.5 0.75] ",
		},
		{
			"no server is left", `{drainLabel: drain}`,
			`endpoints: [{name: a, pod: {metadata: {name: a, labels: {drain: ""}}}}]`,
			"[-1] every server is busy or draining",
		},
		{
			"the router cannot tell", `{cacheWeight: 1}`,
			`{prefixHashes: [1, 2, 3], endpoints: [{name: a}]}`,
			"the index is being rebuilt",
		},
	}
	servicetest.Each(t, &prefix{}, load, func(t *testing.T, p *servicetest.Plugin[*picker.Picker]) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				resp, err := p.Configure(t, test.config).Pick(t.Context(), servicetest.Read[picker.PickRequest](t, test.request))
				if diff := cmp.Diff(test.want, text(resp, err)); diff != "" {
					t.Errorf("got (-want +got):\n%s", diff)
				}
			})
		}
		if _, err := p.TryConfigure(t, `cacheWeight: 2`); err == nil || err.Error() != "cacheWeight is not from 0 to 1" {
			t.Errorf("a wrong weight: %v", err)
		}
	})
}

func text(resp *picker.PickResponse, err error) string {
	var status *host.StatusError
	if errors.As(err, &status) {
		return status.Reason
	}
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%.3g %s", resp.Scores, resp.Reason)
	return b.String()
}
