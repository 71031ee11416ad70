package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host/service"
)

// Router chooses endpoints by its plugins. It is safe for use by several goroutines.
type Router struct{ plugins []Weighted }

// Weighted is a plugin and how much its scores count.
type Weighted struct {
	Name string
	picker.PickerClient
	Weight float64
}

// ErrNoEndpoint is the error of a request for which plugins leave no endpoint.
var ErrNoEndpoint = errors.New("no endpoint is left")

// Pick returns the endpoint with the highest sum of weighted scores, the first of several.
// A plugin sees the endpoints that those before it have left.
func (r *Router) Pick(ctx context.Context, req *picker.PickRequest) (*picker.Endpoint, error) {
	asked := *req
	// left are the places in req of the endpoints that are left, total their sums.
	left, total := make([]int, len(req.Endpoints)), make([]float64, len(req.Endpoints))
	for i := range left {
		left[i] = i
	}
	for _, p := range r.plugins {
		if len(left) < len(asked.Endpoints) {
			asked.Endpoints = make([]picker.Endpoint, 0, len(left))
			for _, place := range left {
				asked.Endpoints = append(asked.Endpoints, req.Endpoints[place])
			}
		}
		resp, err := p.Pick(ctx, &asked)
		if err != nil && !errors.Is(err, service.ErrIgnored) {
			return nil, err
		}
		if len(resp.Scores) == 0 {
			continue // It has no opinion, or it failed and its failures are ignored.
		}
		if len(resp.Scores) != len(left) {
			return nil, fmt.Errorf("plugin %q: %d scores for %d endpoints", p.Name, len(resp.Scores), len(left))
		}
		kept := 0
		for i, score := range resp.Scores {
			if score >= 0 {
				left[kept], total[kept] = left[i], total[i]+p.Weight*score
				kept++
			}
		}
		if kept == 0 {
			return nil, fmt.Errorf("plugin %q: %w: %s", p.Name, ErrNoEndpoint, resp.Reason)
		}
		left, total = left[:kept], total[:kept]
	}
	if len(left) == 0 {
		return nil, ErrNoEndpoint
	}
	best := 0
	for i, sum := range total {
		if sum > total[best] {
			best = i
		}
	}
	return &req.Endpoints[left[best]], nil
}
