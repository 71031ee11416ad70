package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
)

// load builds and loads testdata/sdk.
func load(t *testing.T, rt *host.Runtime, cfg host.Config) (filter func(pod string) error, err error) {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "testdata/sdk")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name, cfg.Module.Source, cfg.Limits.Instances = "sdk", host.File(file), 1
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Config: cfg}, framework.Of(nil))
	if err != nil {
		return nil, err
	}
	node := framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	pods := map[string]*corev1.Pod{}
	return func(pod string) error {
		if pods[pod] == nil {
			pods[pod] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}}
		}
		return p.Filter(p.Resume(pods[pod]), node).AsError()
	}, nil
}

func TestPluginsRunInWebAssembly(t *testing.T) {
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })

	t.Run("a line of the log has its attributes", func(t *testing.T) {
		var out strings.Builder
		filter, err := load(t, rt, host.Config{Logger: slog.New(slog.NewTextHandler(&out, nil)), GuestConfig: []byte(`{"zones": ["a", "b"]}`)})
		if err != nil {
			t.Fatal(err)
		}
		out.Reset() // It tells of the load.
		if err := filter("log"); err != nil {
			t.Fatal(err)
		}
		const want = `level=WARN msg="node is odd" plugin=sdk function=filter guest.node=n1 guest.zones=a,b guest.tries=3 guest.err="no luck"`
		if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})

	t.Run("a panic is an error with the Go stack", func(t *testing.T) {
		filter, err := load(t, rt, host.Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = filter("panic")
		var trap *host.TrapError
		if !errors.As(err, &trap) {
			t.Fatalf("got error %v, want a *host.TrapError", err)
		}
		if got, want := err.Error(), `plugin "sdk": filter trapped: `; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ": panic: assignment to entry in nil map") || strings.Contains(got, "\n") {
			t.Errorf("error is %s", got)
		}
		for _, want := range []string{"goroutine 1", "main.decide(", "main.(*plugin).Filter(", "main.go:"} {
			if !strings.Contains(trap.Output, want) {
				t.Errorf("the Go stack does not have %s:\n%s", want, trap.Output)
			}
		}
		if err := filter("fine"); err != nil {
			t.Errorf("the call behind the panic: %v", err)
		}
	})

	t.Run("who sleeps finds that the time has passed", func(t *testing.T) {
		filter, err := load(t, rt, host.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := filter("sleep"); err != nil {
			t.Error(err)
		}
	})

	t.Run("a configuration is decoded, by types that decode themselves too, and kept", func(t *testing.T) {
		var racks, want []string
		for n := range 100 {
			racks = append(racks, fmt.Sprintf(`"r%02d": {"nodes": ["n%d", "m%d"], "share": "%d%%"}`, n, n, n, n))
			want = append(want, fmt.Sprintf("r%02d has n%d and m%d at %d", n, n, n, n))
		}
		filter, err := load(t, rt, host.Config{GuestConfig: []byte(`{"share": "50%", "racks": {` + strings.Join(racks, ", ") + `},
			"weight": 0.1, "key": "a2V5", "more": {"list": ["text", true]}, "limits": {"x": [1, 65535]}}`)})
		if err != nil {
			t.Fatal(err)
		}
		const rest = "share 50, weight 0.1, key key, more text true, limit 65535"
		for range 3 {
			if got, want := fmt.Sprint(filter("configuration")), strings.Join(want, ", ")+", "+rest; !strings.HasSuffix(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	})

	t.Run("a configuration with mistakes names them by their paths", func(t *testing.T) {
		_, err := load(t, rt, host.Config{GuestConfig: []byte(`{"zones": ["a", 7], "zoness": 1, "racks": {"r1": {"share": 5}, "r2": {"share": "half"}}}`)})
		const want = `plugin "sdk": configure returned Error: zones[1]: want string, got number; zoness: unknown field, did you mean "zones"?; racks[r1].share: want string, got number; racks[r2].share: want a percentage such as 50%`
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})

	t.Run("100,000 calls that each allocate 32 KiB stay below 32 MiB", func(t *testing.T) {
		t.Setenv("KUBEWASM_DEBUG", "") // To hide the memory takes ten times as long as a call.
		rt, err := host.NewRuntime(compiled.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(context.Background())
		filter, err := load(t, rt, host.Config{Limits: host.Limits{MemoryBytes: 32 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100_000 {
			// A guest that runs out of memory traps.
			if err := filter("garbage"); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
		}
	})
}
