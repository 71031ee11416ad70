package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
)

// answerer answers guests of the extension point, which ask nothing.
type answerer struct{}

func (answerer) Ask(context.Context, *testservice.Message) (*testservice.Message, error) {
	return nil, errors.New("nobody asks")
}

// One text of a plugin is pasted unchanged into the scheduler's arguments, the policy file, the
// agent's file and the configuration of a service, and loads in each. The tag leads to a module of
// the component's kind: no module is of all, since a guest imports the functions of its own.
func TestOnePluginForAllComponents(t *testing.T) {
	s := newServer(t, distribution(t, nil), false)
	trust := []oci.Trust{{Repositories: []string{s.host + "/*"}, Unsigned: true}}
	client := newClient(t, oci.Config{Registries: plain(s), Trust: trust})
	ref := s.ref(t, "acme/label:1")
	text := fmt.Sprintf(`name: label
module: {oci: %q}
guestConfig: {label: team}
limits: {timeout: 10s, fuel: 50_000_000, memoryBytes: 64Mi, instances: 2}
grants: [clock]
failurePolicy: Ignore
mode: Monitor
shadow: {module: {oci: %[1]q}, rate: 1, cpu: 1}
`, ref)
	inList := "- " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
	// begin puts the module of a component into the registry, and returns a Runtime that finds it.
	begin := func(t *testing.T, kind string) *host.Runtime {
		t.Helper()
		file, err := guestbuild.Build(t.Context(), "testdata/grammar/"+kind)
		if err != nil {
			t.Fatal(err)
		}
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		push(t, client, ref, wasm, oci.PushOptions{})
		rt, err := host.NewRuntime(compiled.Config())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { rt.Close(context.Background()) })
		rt.AddSources(host.Sources{OCI: newClient(t, oci.Config{Registries: plain(s), Trust: trust}).Source})
		return rt
	}
	runs := func(t *testing.T, s *shadow.Shadow) {
		t.Helper()
		for start := time.Now(); s.Status().State != shadow.Running; time.Sleep(time.Millisecond) {
			if status := s.Status(); status.State == shadow.Stopped || time.Since(start) > time.Minute {
				t.Fatalf("the shadow is %+v", status)
			}
		}
	}
	t.Run("scheduler", func(t *testing.T) {
		rt := begin(t, "scheduler")
		node := framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		p, err := sched.LoadArgs(t.Context(), rt, "label", &runtime.Unknown{Raw: []byte(text)}, framework.Of(&framework.Handle{Snapshot: framework.Nodes{node}}))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		runs(t, p.Shadow())
		if status := p.Filter(p.Resume(&corev1.Pod{}), node); status != nil {
			t.Errorf("a monitored plugin answers %v", status)
		}
	})
	t.Run("policy", func(t *testing.T) {
		rt := begin(t, "policy")
		file, err := manage.ParseFile([]byte("plugins:\n" + inList))
		if err != nil {
			t.Fatal(err)
		}
		m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine()})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close(context.Background())
		if err := m.Apply(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		shadow, err := m.Shadow("label")
		if err != nil {
			t.Fatal(err)
		}
		runs(t, shadow)
		if info := m.List()[0]; info.Name != "label" || info.Mode != host.Monitor {
			t.Errorf("the policy is %+v", info)
		}
	})
	t.Run("hook", func(t *testing.T) {
		begin(t, "hook")
		dir := t.TempDir()
		program := filepath.Join(dir, "node-agent")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
		build.Dir = "../../../cmd/kubewasm-agent"
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the agent: %v\n%s", err, out)
		}
		write := func(file, text string) string {
			t.Helper()
			file = filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
			return file
		}
		write("cgroups/cgroup.controllers", "cpu\n")
		write("cgroups/kubepods/cpu.weight", "100\n")
		write("cgroups/kubepods/cpu.max", "max 100000\n")
		pods := write("pods.yaml", "kind: PodList\nitems: []\n")
		agent := write("agent.yaml", fmt.Sprintf(`cacheDir: %s/cache
cgroup: {root: %[1]s/cgroups, driver: cgroupfs}
standalone: {file: %s}
registries: {registries: [{host: %q, plainHTTP: true}], trust: [{repositories: [%q], unsigned: true}]}
plugins:
%s`, dir, pods, s.host, s.host+"/*", inList))
		if out, err := exec.CommandContext(t.Context(), program, "-config", agent, "-check").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	t.Run("service", func(t *testing.T) {
		rt := begin(t, "service")
		var cfg service.Config
		if err := configfile.YAML([]byte(text), &cfg); err != nil {
			t.Fatal(err)
		}
		p, err := testservice.LoadTest(t.Context(), rt, cfg, answerer{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		runs(t, p.Shadow())
		if _, err := p.Echo(t.Context(), &testservice.Message{}); !errors.Is(err, service.ErrMonitored) {
			t.Errorf("a monitored plugin answers with error %v", err)
		}
	})
}
