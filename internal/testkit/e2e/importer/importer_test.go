// Package importer tests what the author of a component gets that is built with the
// Kubernetes modules of the minor.
package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/minor"
)

// program imports what the library offers to a component of Kubernetes.
const program = `package main

import (
	"context"
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched/ADAPTER"
)

func main() {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		panic(err)
	}
	defer rt.Close(context.Background())
	newHooks := hooks.NewEngine
	fmt.Println(admission.NewEngine() != nil, newHooks != nil, ADAPTER.New("plugin", rt) != nil)
}
`

// go runs the go command in dir.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

func TestNoModuleOfKubernetesIsLifted(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program with all adapters")
	}
	repository := filepath.Join(minor.Dir(), "../../..")
	if err := guestbuild.TrackSources(repository); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		out, err := goCommand(t.Context(), dir, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// The first release of the minor: whoever is on a later one is not lifted either.
	version := "v0." + strings.TrimPrefix(minor.Name, "1.") + ".0"
	if minor.Name == "1.38" {
		version = "v0.38.0-alpha.0"
	}
	adapter := minor.Tag
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("main.go", strings.ReplaceAll(program, "ADAPTER", adapter))
	var mod strings.Builder
	fmt.Fprintf(&mod, "module example.com/importer\n\ngo 1.26.0\n\nrequire (\n\tgithub.com/kubewasm/kubewasm v0.0.0\n\tgithub.com/kubewasm/kubewasm/sched/%s v0.0.0\n", adapter)
	own := []string{"api", "apimachinery", "apiserver", "client-go", "component-base", "component-helpers", "kube-scheduler"}
	for _, name := range own {
		fmt.Fprintf(&mod, "\tk8s.io/%s %s\n", name, version)
	}
	fmt.Fprintf(&mod, ")\n\nreplace github.com/kubewasm/kubewasm => %s\n\nreplace github.com/kubewasm/kubewasm/sched/%s => %s\n", repository, adapter, filepath.Join(repository, "sched", adapter))
	write("go.mod", mod.String())
	var sums []byte
	for _, name := range []string{"go.sum", "sched/" + adapter + "/go.sum", "internal/testkit/e2e/" + strings.TrimSuffix(minor.Modfile, ".mod") + ".sum"} {
		sum, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum...)
	}
	write("go.sum", string(sums))
	run("mod", "tidy")
	if os.Getenv("KUBEWASM_E2E_QUICK") == "" { // It compiles another patch release of Kubernetes.
		run("build", "-o", os.DevNull, ".")
	}

	var lifted []string
	seen := 0
	for d := json.NewDecoder(bytes.NewReader(run("list", "-m", "-json", "all"))); d.More(); {
		var m struct{ Path, Version string }
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		// klog, utils and kube-openapi have versions of their own.
		if !strings.HasPrefix(m.Path, "k8s.io/") || !strings.HasPrefix(m.Version, "v0.3") {
			continue
		}
		if seen++; m.Version != version {
			lifted = append(lifted, m.Path+" "+m.Version)
		}
	}
	slices.Sort(lifted)
	if len(lifted) != 0 {
		t.Errorf("a module with %s gets %v", version, lifted)
	}
	if seen < len(own) {
		t.Errorf("the build list has %d modules of Kubernetes, want %d at least", seen, len(own))
	}
	t.Attr("importer", "k8s.io/* "+version)
}
