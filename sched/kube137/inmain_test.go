package kube137_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// TestRegisterInMain holds that a guest may be a command: its main registers the
// plugin and returns, and the plugin serves.
func TestRegisterInMain(t *testing.T) {
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "inmain.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../testdata/inmain")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := &cycle{t, load(t, host.Config{Name: "inmain", Module: host.ModuleConfig{File: file}}), pod("p", ""), kube137test.NewCycleState()}
	for range 10_000 {
		if got, want := text(c.filter(node("n", "a"))), "Unschedulable: registered in main"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}
