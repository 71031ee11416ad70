package host_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
)

// A recording that cannot be made keeps no plugin from serving, and is told.
func TestARecordingThatCannotBeMadeStopsNoPlugin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	var log strings.Builder
	path := filepath.Join(file, "recording")
	p, err := rt.Load(t.Context(), host.Config{
		Name: "noop", Module: host.ModuleConfig{File: "testdata/noop.wasm"}, Record: &record.Config{Path: path}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Error(err)
	}
	inst.Release()
	if !strings.Contains(log.String(), "calls are not recorded") || !strings.Contains(log.String(), path) {
		t.Errorf("the log is %s", log.String())
	}
	if got := rt.Recorders()[path]; got.Failures == 0 || got.Err == nil {
		t.Errorf("the recorder has %+v", got)
	}

	_, err = rt.Load(t.Context(), host.Config{Name: "wrong", Module: host.ModuleConfig{File: "testdata/noop.wasm"}, Record: &record.Config{Path: path, Rate: 2}}, host.Adapter{Kind: abi.KindScheduler})
	if err == nil {
		t.Error("a configuration that is wrong is accepted")
	}
}
