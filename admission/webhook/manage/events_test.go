package manage_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/internal/testkit/logged"
)

// TestChangesAreLogged holds the lines about policies to the table of docs/operating.md: each change
// of what serves has one.
func TestChangesAreLogged(t *testing.T) {
	log := new(logged.Log)
	f := start(t, func(c *manage.Config) { c.Logger = log.Logger() })
	dir := t.TempDir()
	apply := func(module []byte) {
		t.Helper()
		path := filepath.Join(dir, digest(module)+".wasm")
		if err := os.WriteFile(path, module, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := manage.ParseFile([]byte("plugins: [{name: p, module: {file: " + path + "}, match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}]"))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Apply(t.Context(), file) // The last version is refused.
	}
	apply(says("one"))
	apply(says("two"))
	if _, err := f.Rollback(t.Context(), "p", ""); err != nil {
		t.Fatal(err)
	}
	apply([]byte("no module"))
	log.Check(t, map[string]int{"loaded the module": 3, "policy is rolled back": 1, "policy is refused": 1})
}
