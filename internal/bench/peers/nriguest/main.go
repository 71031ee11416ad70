//go:build wasip1

// Command nriguest is a plugin of NRI in WebAssembly, by NRI's own SDK, that does
// what examples/hooks/cpu-from-annotation does.
package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

type plugin struct {
	api.Plugin // What is not called.
}

func (plugin) Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	var events api.EventMask
	events.Set(api.Event_CREATE_CONTAINER)
	return &api.ConfigureResponse{Events: int32(events)}, nil
}

func (plugin) Synchronize(context.Context, *api.SynchronizeRequest) (*api.SynchronizeResponse, error) {
	return &api.SynchronizeResponse{}, nil
}

func (plugin) CreateContainer(_ context.Context, req *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	cpu, ok := req.GetPod().GetAnnotations()["kubewasm.dev/cpu"]
	if !ok {
		return &api.CreateContainerResponse{}, nil
	}
	milli, err := strconv.ParseInt(strings.TrimSuffix(cpu, "m"), 10, 64)
	if err != nil || !strings.HasSuffix(cpu, "m") {
		return nil, errors.New("not an amount of CPU")
	}
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUShares(uint64(milli * 1024 / 1000))
	a.SetLinuxCPUPeriod(100_000)
	a.SetLinuxCPUQuota(milli * 100)
	return &api.CreateContainerResponse{Adjust: a}, nil
}

func init() { api.RegisterPlugin(plugin{}) }

func main() {}
