package kube137

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
)

// A guest in the mode Monitor is asked, and its answers change nothing, whatever they are.
func TestMonitoredAnswersHaveNoEffect(t *testing.T) {
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	var functions abi.Mask
	for f := range asking {
		functions |= abi.MaskOf(f)
	}
	for _, code := range []abi.Code{abi.Success, abi.Error, abi.Unschedulable, abi.UnschedulableAndUnresolvable, abi.Wait, abi.Skip, 99} {
		for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
			var log bytes.Buffer
			config := binary.LittleEndian.AppendUint64(nil, uint64(functions))
			config = append(binary.LittleEndian.AppendUint32(config, uint32(code)), 0, 0, 0, 0)
			p, err := Load(t.Context(), rt, sched.PluginConfig{Mode: host.Monitor, FailurePolicy: policy, Config: host.Config{
				Name: "scripted", Module: host.ModuleConfig{File: "../testdata/scripted.wasm"}, GuestConfig: config, Limits: host.Limits{Instances: 1},
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for f, ask := range asking {
				log.Reset()
				want, told := fwk.Success, code != abi.Success && code != abi.Skip
				switch {
				case f == abi.PostFilter || f == abi.PodGroupPostFilter:
					want = fwk.Unschedulable
					told = told && code != abi.Unschedulable || code == abi.Success
				case f == abi.Bind:
					want, told = fwk.Skip, told || code == abi.Success
				case (f == abi.PreFilter || f == abi.PreScore) && code != abi.Success:
					want = fwk.Skip // The guest is not asked about nodes.
				case f == abi.SignPod:
					told = false
				}
				if code == abi.Skip && f != abi.SignPod && f != abi.Filter && f != abi.Score {
					want = fwk.Skip // It leaves out other functions of the guest alone.
				}
				if f == abi.Filter || f == abi.Score {
					told = code != abi.Success
				}
				if s := ask(t.Context(), p); s.Code() != want {
					t.Errorf("%s answers %s with %s: got %v, want %s", f, code, policy, s, want)
				}
				if got := strings.Contains(log.String(), "monitored: the answer of the plugin has no effect"); got != told {
					t.Errorf("%s answers %s with %s: logged %t, want %t: %s", f, code, policy, got, told, log.String())
				}
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
