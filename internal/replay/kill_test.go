package replay_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// killed is the directory that a process of TestAKilledRecorderLosesItsTailOnly records to.
const killed = "KUBEWASM_TEST_RECORD_TO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killed); dir != "" {
		recordForever(dir)
	}
	os.Exit(m.Run())
}

// recordForever records calls, and prints how many bytes are written, until it is killed.
func recordForever(dir string) {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		panic(err)
	}
	p, err := rt.Load(ctx, host.Config{
		Name: "good", Module: host.ModuleConfig{File: filepath.Join("..", "..", "host", "testdata", "good.wasm")}, GuestConfig: []byte(`{"zone": "a"}`),
		Record: &record.Config{Path: dir, MaxBytes: 8 << 20, SequenceCalls: 50},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		panic(err)
	}
	for n := uint64(0); ; n++ {
		inst, err := p.Acquire(ctx)
		if err != nil {
			panic(err)
		}
		if _, err := inst.Call(ctx, abi.Filter, 0, 0, n); err != nil {
			panic(err)
		}
		inst.Release()
		if n%500 == 0 {
			s := rt.Recorders()[dir]
			fmt.Println(s.Bytes, s.Segments, s.Removed)
		}
	}
}

// A recorder that is killed loses nothing but the tail, and the recording says so.
func TestAKilledRecorderLosesItsTailOnly(t *testing.T) {
	dir := t.TempDir()
	module, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", "good.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	rt := newRuntime(t)
	torn := 0
	for round := range 8 {
		cmd := self.Command(t, []string{killed + "=" + dir})
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var written, segments, removed int64
		lines := bufio.NewScanner(out)
		for range 2 + rand.IntN(40) {
			if !lines.Scan() {
				t.Fatal("the process that records has ended")
			}
			if _, err := fmt.Sscan(lines.Text(), &written, &segments, &removed); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // It was killed.
		recorded, err := recording.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		problems := recorded.Problems()
		torn += len(problems)
		if len(problems) > round+1 {
			t.Errorf("round %d: %v", round, problems)
		}
		for _, p := range problems {
			if !strings.Contains(p.Text, "torn") {
				t.Errorf("round %d: %v", round, p)
			}
		}
		v, err := replay.Verify(t.Context(), rt, recorded, module, replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v.Different != 0 || v.Exact != v.Calls || v.Calls == 0 {
			t.Errorf("round %d: %d of %d calls are exact: %v", round, v.Exact, v.Calls, v.Differences)
		}
		if removed == 0 && round == 0 {
			var sound int64
			files, err := filepath.Glob(filepath.Join(dir, "*.kwrec"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				info, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				sound += info.Size()
			}
			for _, p := range problems {
				sound -= p.Bytes
			}
			// The writes are done one after the other: what was reported is there.
			if sound < written {
				t.Errorf("%d bytes are sound, %d were written", sound, written)
			}
		}
	}
	t.Logf("%d of 8 files end with a torn frame", torn)
}
