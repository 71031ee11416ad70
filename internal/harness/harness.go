// Package harness compiles, configures and loads the plugins that the kits test.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/api/core"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// Each runs test in two subtests: "native" on plugin itself, and "wasm" on the guest that is
// compiled from the package of the test. under returns the plugin under test for one of the
// two; the other argument is nil. With -short only the native test runs.
func Each[P any](t *testing.T, plugin any, under func(testing.TB, *Native, *Module) P, test func(t *testing.T, p P)) {
	t.Helper()
	t.Run("native", func(t *testing.T) { test(t, under(t, &Native{plugin}, nil)) })
	t.Run("wasm", func(t *testing.T) {
		if testing.Short() {
			t.Skip("compiles a guest")
		}
		test(t, under(t, nil, compile(t)))
	})
}

// Native is a plugin in this process.
type Native struct{ Plugin any }

// Configured returns a copy of the plugin with a configuration decoded into it,
// as a guest does it.
func (n *Native) Configured(data []byte) (*Native, error) {
	plugin := n.Plugin
	if v := reflect.ValueOf(plugin); v.Kind() == reflect.Pointer && !v.IsNil() {
		fresh := reflect.New(v.Type().Elem())
		fresh.Elem().Set(v.Elem())
		plugin = fresh.Interface()
	}
	err := json.UnmarshalStrict(data, plugin)
	if c, ok := plugin.(interface{ Configure() error }); ok && err == nil {
		err = c.Configure()
	}
	return &Native{plugin}, err
}

// Module is a guest that was compiled.
type Module struct {
	Runtime *host.Runtime
	File    string
	// Name is the name in its metadata.
	Name string
	// kinds are those in its metadata.
	kinds []string
}

// Kind returns the kind of plugin that the metadata of the module have, and whether they do.
func (m *Module) Kind() (abi.Kind, bool) {
	for _, kind := range []abi.Kind{abi.KindScheduler, abi.KindAdmission, abi.KindHook, abi.KindService} {
		if slices.Contains(m.kinds, kind.String()) {
			return kind, true
		}
	}
	return 0, false
}

// compile compiles the guest in the working directory.
func compile(t testing.TB) *Module {
	t.Helper()
	return Load(t, ".")
}

// Load returns the module in a file, or the one that is compiled from a directory. Where the
// toolchain of another language than Go is missing, the test is skipped, or fails if the
// environment has CI.
func Load(t testing.TB, path string) *Module {
	t.Helper()
	file := path
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		file, err = guestbuild.Build(context.Background(), path)
		if missing := (*guestbuild.MissingToolError)(nil); errors.As(err, &missing) && os.Getenv("CI") == "" {
			t.Skip(missing)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := metadata.Find(data)
	if err != nil {
		t.Fatal(err)
	}
	if m == nil || m.Name == "" {
		m = &metadata.Metadata{Kinds: kindsOf(m), Name: strings.TrimSuffix(filepath.Base(file), ".wasm")}
	}
	// Machine code is compiled once for each module.
	cfg := host.RuntimeConfig{}
	if dir, err := os.UserCacheDir(); err == nil {
		cfg.CacheDir = filepath.Join(dir, "kubewasm", "compiled")
	}
	rt, err := host.NewRuntime(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &Module{rt, file, m.Name, m.Kinds}
}

func kindsOf(m *metadata.Metadata) []string {
	if m == nil {
		return nil
	}
	return m.Kinds
}

// Config returns the configuration that loads the module.
func (m *Module) Config(guest []byte) host.Config {
	return host.Config{Name: m.Name, Module: host.ModuleConfig{File: m.File}, GuestConfig: guest, Limits: host.Limits{Instances: 1}}
}

// JSON returns a configuration as a host passes it to a guest. The test fails if it is not
// YAML.
func JSON(t testing.TB, configuration string) []byte {
	t.Helper()
	if configuration == "" {
		return nil
	}
	data, err := manifest.JSON([]byte(configuration))
	if err != nil {
		t.Fatalf("read configuration: %v", err)
	}
	return data
}

// Decode decodes the object in a manifest strictly.
func Decode(text string, to any) error { return manifest.Decode([]byte(text), to) }

// Refusal returns the error with which a plugin refused its configuration, without the
// name that the host adds. Any other error fails the test.
func Refusal(t testing.TB, err error) error {
	t.Helper()
	var status *host.StatusError
	if err == nil {
		return nil
	} else if !errors.As(err, &status) {
		Fail(t, err)
	}
	return errors.New(status.Reason)
}

// Fail fails the test with err and, for a trap, with the output and the stack of the guest.
func Fail(t testing.TB, err error) {
	t.Helper()
	text := err.Error()
	var trap *host.TrapError
	if errors.As(err, &trap) {
		text = fmt.Sprintf("%s\n%s\n%s", text, trap.Output, trap.Stack)
	}
	t.Fatal(text)
}

// IsTrap reports whether err is a trap of the guest.
func IsTrap(err error) bool { return errors.As(err, new(*host.TrapError)) }

// As returns a plugin as an interface, and fails the test if it does not
// implement it.
func As[T any](t testing.TB, plugin any, name string) T {
	t.Helper()
	p, ok := plugin.(T)
	if !ok {
		t.Fatalf("the plugin does not implement %s", name)
	}
	return p
}

// ReadPod returns the Pod in manifest, YAML or JSON.
func ReadPod(t testing.TB, manifest string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := Decode(manifest, pod); err != nil {
		t.Fatalf("read Pod: %v", err)
	}
	return pod
}

// PodView returns a view of a Pod.
func PodView(t testing.TB, pod *corev1.Pod) core.Pod {
	t.Helper()
	raw, err := codec.Encode(pod)
	if err != nil {
		t.Fatal(err)
	}
	return core.PodFromProto(raw)
}
