package admissionmetrics_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// TestManager applies files, of which one declares a module that is gone and one is refused.
func TestManager(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.WithoutCancel(t.Context()))
	guests := hostmetrics.New(rt)
	admissionmetrics.NewManager(m, guests)
	dir := t.TempDir()
	there := filepath.Join(dir, "there.wasm")
	if err := os.WriteFile(there, module, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(dir, "gone.wasm")
	apply := func(text string) {
		t.Helper()
		f, err := manage.ParseFile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_ = m.Apply(t.Context(), f) // Some of it cannot be in service.
	}
	const match = ", match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}"
	states := func(applied string, want map[string]string) string {
		text := `
# HELP kubewasm_config_applied 1 if the latest configuration is in service, 0 if it was refused, cannot be read or is being loaded.
# TYPE kubewasm_config_applied gauge
kubewasm_config_applied ` + applied + `
# HELP kubewasm_plugin_state 1 for the current state of the plugin: Serving, Stale if an earlier version than the declared one serves, Unavailable if none does, Loading, Disabled.
# TYPE kubewasm_plugin_state gauge
`
		for policy, is := range want {
			for _, state := range host.States() {
				value := "0"
				if string(state) == is {
					value = "1"
				}
				text += `kubewasm_plugin_state{plugin="` + policy + `",state="` + string(state) + `"} ` + value + "\n"
			}
		}
		return text
	}
	compare := func(when, want string) {
		t.Helper()
		if err := testutil.CollectAndCompare(guests, strings.NewReader(want), "kubewasm_config_applied", "kubewasm_plugin_state"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	declare := func(module string) string {
		return "plugins:\n- {name: a, module: {file: " + module + "}" + match + "\n- {name: b, module: {file: " + gone + "}" + match +
			"\n- {name: c, enabled: false, module: {file: " + there + "}" + match + "\n"
	}
	apply(declare(there))
	compare("one of three is gone", states("1", map[string]string{"a": "Serving", "b": "Unavailable", "c": "Disabled"}))
	apply(declare(gone))
	compare("the next version of one is gone", states("1", map[string]string{"a": "Stale", "b": "Unavailable", "c": "Disabled"}))
	apply("plugins: [{name: a, module: {oci: 'ghcr.io/acme/a:1'}" + match + "]\n") // There are no registries.
	compare("a file is refused", states("0", map[string]string{"a": "Stale", "b": "Unavailable", "c": "Disabled"}))
	apply(declare(there))
	compare("all is well again", states("1", map[string]string{"a": "Serving", "b": "Unavailable", "c": "Disabled"}))
}
