package replay_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
)

var update = flag.Bool("update", false, "make testdata/amd64 anew, on an amd64 machine")

// machineModules are the modules in testdata/amd64.
var machineModules = []string{
	filepath.Join(conformance, "admission.wasm"), filepath.Join(conformance, "hook.wasm"),
	filepath.Join("..", "..", "host", "testdata", "good.wasm"), filepath.Join("..", "..", "host", "testdata", "spins.wasm"),
}

// A recording that was made on an amd64 machine replays on any other, to the unit of fuel:
// results, traps, loops that were stopped by fuel.
//
//	go test ./internal/replay -run OfAnotherMachine -update
func TestARecordingOfAnotherMachineReplays(t *testing.T) {
	dir := filepath.Join("testdata", "amd64")
	if *update {
		recordMachine(t, dir)
	}
	recorded, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if problems := recorded.Problems(); len(problems) != 0 {
		t.Error(problems)
	}
	calls := 0
	for _, name := range machineModules {
		module, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := replay.Verify(t.Context(), newRuntime(t), recorded, module, replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v.Calls == 0 || v.Exact != v.Calls {
			t.Errorf("%s: %d of %d calls are exact: %v", name, v.Exact, v.Calls, v.Differences)
		}
		calls += v.Calls
	}
	if calls != recorded.Calls() {
		t.Errorf("%d of %d calls are repeated: a module has changed, and the recording must be made anew", calls, recorded.Calls())
	}
}

// recordMachine makes a recording of four files.
func recordMachine(t *testing.T, to string) {
	t.Helper()
	dir := t.TempDir()
	for n, name := range machineModules {
		module, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		switch n {
		case 0:
			recordPolicy(t, module, filepath.Join(dir, "0"), true)
		case 1:
			recordHook(t, module, filepath.Join(dir, "1"), true)
		default:
			recordFilters(t, module, filepath.Join(dir, strconv.Itoa(n)))
		}
	}
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	for n, sub := range []string{"0", "1", "2", "3"} {
		files, err := filepath.Glob(filepath.Join(dir, sub, "*.kwrec"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, fmt.Sprintf("%012d.kwrec", n+1)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// recordFilters records calls of filter.
func recordFilters(t *testing.T, module []byte, dir string) {
	t.Helper()
	p, err := newRuntime(t).Load(t.Context(), host.Config{
		Name: "filters", Module: host.ModuleConfig{Bytes: module}, Limits: host.Limits{Fuel: 200_000, Instances: 1}, Record: &record.Config{Path: dir, SequenceCalls: 10},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(30) {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = inst.Call(t.Context(), abi.Filter, 0, n, n) // A trap is recorded, too.
		inst.Release()
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
