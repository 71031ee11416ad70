//go:build !wasip1

package guesttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/guest/internal/config"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// Plugin is a plugin under test, by the kind of what it extends.
type Plugin interface {
	*Scheduler | *Admission | *Hook
}

// Each runs test twice, in subtests: "native" on plugin itself, and "wasm" on the
// guest that is compiled from the package of the test, in the host that a
// component embeds. What the two see and answer is the same, so a test is written
// once.
//
// The guest runs with what the package's directives declare: a plugin that reads
// a field without declaring it passes natively and fails here. It is compiled in
// the directory in which the test runs, which go test makes that of the package,
// and must register a plugin like the one given. With -short only the native test
// runs.
func Each[P Plugin](t *testing.T, plugin any, test func(t *testing.T, p P)) {
	t.Helper()
	t.Run("native", func(t *testing.T) { test(t, under[P](t, &native{plugin}, nil)) })
	t.Run("wasm", func(t *testing.T) {
		if testing.Short() {
			t.Skip("compiles a guest")
		}
		test(t, under[P](t, nil, compile(t)))
	})
}

// under returns the plugin under test: one of the two is nil.
func under[P Plugin](t testing.TB, n *native, m *module) P {
	var p P
	switch out := any(&p).(type) {
	case **Scheduler:
		*out = &Scheduler{native: n, module: m, owner: t}
	case **Admission:
		*out = &Admission{native: n, module: m}
	case **Hook:
		*out = &Hook{n, m, nil}
	}
	return p
}

// native is a plugin in this process.
type native struct{ plugin any }

// configured returns a copy of the plugin with a configuration decoded into it,
// as a guest does it.
func (n *native) configured(data []byte) (*native, error) {
	plugin := n.plugin
	if v := reflect.ValueOf(plugin); v.Kind() == reflect.Pointer && !v.IsNil() {
		fresh := reflect.New(v.Type().Elem())
		fresh.Elem().Set(v.Elem())
		plugin = fresh.Interface()
	}
	err := config.Decode(data, plugin)
	if c, ok := plugin.(interface{ Configure() error }); ok && err == nil {
		err = c.Configure()
	}
	return &native{plugin}, err
}

// module is a guest that was compiled.
type module struct {
	rt   *host.Runtime
	file string
	// name is what its metadata say.
	name string
}

// compile compiles the guest in the working directory.
func compile(t testing.TB) *module {
	t.Helper()
	file, err := guestbuild.Build(context.Background(), ".")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := metadata.Find(data)
	if err != nil {
		t.Fatal(err)
	}
	// What was compiled to machine code before is used again.
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
	return &module{rt, file, m.Name}
}

// config returns what loads the module.
func (m *module) config(guest []byte) host.Config {
	return host.Config{Name: m.name, Source: host.File(m.file), Guest: guest, Limits: host.Limits{Instances: 1}}
}

// json returns a configuration as a host hands it to a guest. YAML that is none
// is a mistake of the test.
func json(t testing.TB, configuration string) []byte {
	t.Helper()
	if configuration == "" {
		return nil
	}
	data, err := yaml.YAMLToJSONStrict([]byte(configuration))
	if err != nil {
		t.Fatalf("read configuration: %v", err)
	}
	return data
}

// refusal returns what the plugin said of its configuration: the host's error
// names the plugin too, which natively nobody knows. Any other err is of the
// test's setting and fails it.
func refusal(t testing.TB, err error) error {
	t.Helper()
	var status *host.StatusError
	if err == nil {
		return nil
	} else if !errors.As(err, &status) {
		fail(t, err)
	}
	return errors.New(status.Reason)
}

// fail fails the test with all that is known of err.
func fail(t testing.TB, err error) {
	t.Helper()
	text := err.Error()
	var trap *host.TrapError
	if errors.As(err, &trap) {
		text = fmt.Sprintf("%s\n%s\n%s", text, trap.Output, trap.Stack)
	}
	t.Fatal(text)
}

// isTrap reports whether the guest did not return.
func isTrap(err error) bool { return errors.As(err, new(*host.TrapError)) }
