package manage_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// state makes a state directory in which the API has loaded the plugins p and q, and
// returns it.
func state(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	restarted(t, dir, func(m *manage.Manager, _ func() string) {
		for _, name := range []string{"p", "q"} {
			if err := m.Load(t.Context(), manage.PluginSpec{Version: "1", PluginConfig: admission.PluginConfig{Config: host.Config{Name: name, GuestConfig: []byte(`{"a": 1}`)}}}, says(name)); err != nil {
				t.Fatal(err)
			}
		}
	})
	return dir
}

// restarted calls f with a manager of a state directory, and closes it.
func restarted(t *testing.T, dir string, f func(m *manage.Manager, ask func() string)) {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	engine := admission.NewEngine()
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: engine, Directory: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	asking := &fixture{Manager: m, engine: engine}
	f(m, func() string { return asking.ask("Pod") })
}

// What others could have put there is not read.
func TestStateDirectoryIsPrivate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"others can write to it":           {func(dir string) error { return os.Chmod(dir, 0o707) }, "has mode 0707: others can write to it, want 0700"},
		"a group can write to it":          {func(dir string) error { return os.Chmod(dir, 0o770) }, "has mode 0770: others can write to it"},
		"others can write to the modules":  {func(dir string) error { return os.Chmod(filepath.Join(dir, "modules"), 0o777) }, "modules has mode 0777"},
		"it belongs to another":            {func(dir string) error { return os.Chown(dir, 65534, -1) }, "state belongs to user 65534, not to 0"},
		"the modules belong to another":    {func(dir string) error { return os.Chown(filepath.Join(dir, "modules"), 65534, -1) }, "modules belongs to user 65534"},
		"it is a file":                     {func(dir string) error { return renameAndWrite(dir) }, "not a directory"},
		"the list was changed":             {func(dir string) error { return appendTo(filepath.Join(dir, "plugins.list"), "r\n") }, "plugins.list is damaged"},
		"the list was cut off":             {func(dir string) error { return os.Truncate(filepath.Join(dir, "plugins.list"), 2) }, "plugins.list is damaged"},
		"the list is empty":                {func(dir string) error { return os.Truncate(filepath.Join(dir, "plugins.list"), 0) }, "plugins.list is damaged"},
		"the list can be read by others":   {func(dir string) error { return os.Chmod(filepath.Join(dir, "plugins.list"), 0o644) }, "plugins.list has mode 0644, want 0600"},
		"the list is a link to elsewhere":  {func(dir string) error { return linkElsewhere(filepath.Join(dir, "plugins.list")) }, "too many levels of symbolic links"},
		"the list belongs to someone else": {func(dir string) error { return os.Chown(filepath.Join(dir, "plugins.list"), 65534, -1) }, "plugins.list belongs to user 65534"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(test.want, "65534") && os.Geteuid() != 0 {
				t.Skip("only root gives files away")
			}
			dir := state(t)
			if err := test.change(dir); err != nil {
				t.Fatal(err)
			}
			rt, err := host.NewRuntime(host.RuntimeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.Background())
			if _, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine(), Directory: dir}); err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "manage policies: state directory "+dir) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
		})
	}
	t.Run("one that others can read is closed to them", func(t *testing.T) {
		dir := state(t)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		restarted(t, dir, func(_ *manage.Manager, ask func() string) {
			if got := ask(); got != "p: p; q: q" {
				t.Errorf("message is %q", got)
			}
		})
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode is %v, %v", info.Mode(), err)
		}
	})
}

func renameAndWrite(dir string) error {
	if err := os.Rename(dir, dir+".old"); err != nil {
		return err
	}
	return os.WriteFile(dir, nil, 0o600)
}

func appendTo(file, text string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte(text), data...), 0o600)
}

// linkElsewhere puts a link to a copy in the place of a file.
func linkElsewhere(file string) error {
	if err := os.Rename(file, file+".copy"); err != nil {
		return err
	}
	return os.Symlink(file+".copy", file)
}

// After a restart there are never fewer policies: what cannot be restored denies what
// it was meant for, or, where that is not known, everything, and the manager is not
// ready until it is removed.
func TestRecordThatCannotBeRestored(t *testing.T) {
	record := func(dir string) string { return filepath.Join(dir, "p.json") }
	module := func(dir string) string { return filepath.Join(dir, "modules", digest(says("p"))+".wasm") }
	rewrite := func(change func(fields map[string]any)) func(dir string) error {
		return func(dir string) error {
			data, err := os.ReadFile(record(dir))
			if err != nil {
				return err
			}
			var fields map[string]any
			if err := json.Unmarshal(data, &fields); err != nil {
				return err
			}
			change(fields)
			if data, err = json.Marshal(fields); err != nil {
				return err
			}
			return os.WriteFile(record(dir), data, 0o600)
		}
	}
	for name, test := range map[string]struct {
		change func(dir string) error
		// ready says that the rules are known.
		ready bool
		want  string
	}{
		"it is gone":                    {func(dir string) error { return os.Remove(record(dir)) }, false, "no such file"},
		"it is empty":                   {func(dir string) error { return os.Truncate(record(dir), 0) }, false, "the document is empty"},
		"it is half of itself":          {func(dir string) error { return os.Truncate(record(dir), 100) }, false, "unexpected EOF"},
		"it was switched off by hand":   {rewrite(func(f map[string]any) { f["disabled"] = true }), false, "sha256 of the record is"},
		"its mode was changed by hand":  {rewrite(func(f map[string]any) { f["spec"].(map[string]any)["mode"] = "Monitor" }), false, "sha256 of the record is"},
		"it is of a later version":      {rewrite(func(f map[string]any) { f["exempt"] = "all" }), false, `unknown field "exempt"`},
		"it is that of another":         {func(dir string) error { return os.Rename(filepath.Join(dir, "q.json"), record(dir)) }, false, `it is of plugin "q"`},
		"it has something after it":     {func(dir string) error { return appendTo(record(dir), "{}") }, false, "there is more than one document"},
		"others can write to it":        {func(dir string) error { return os.Chmod(record(dir), 0o666) }, false, "has mode 0666, want 0600"},
		"others can read it":            {func(dir string) error { return os.Chmod(record(dir), 0o644) }, false, "has mode 0644, want 0600"},
		"it belongs to another":         {func(dir string) error { return os.Chown(record(dir), 65534, -1) }, false, "belongs to user 65534"},
		"it is a link":                  {func(dir string) error { return linkElsewhere(record(dir)) }, false, "too many levels of symbolic links"},
		"it is a directory":             {func(dir string) error { return errors.Join(os.Remove(record(dir)), os.Mkdir(record(dir), 0o700)) }, false, "want a regular file"},
		"it has rules that are no more": {oldRecord(`{"spec":{"name":"p","match":{"rules":[{"operations":["CREAT"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}},"digest":"` + digest(says("p")) + `","versions":[]}`), false, `operations has "CREAT"`},
		"it needs labels":               {oldRecord(`{"spec":{"name":"p","match":{"namespaceSelector":{"matchLabels":{"a":"b"}}}},"digest":"` + digest(says("p")) + `","versions":[]}`), false, "needs the labels of namespaces"},
		"its module is gone":            {func(dir string) error { return os.Remove(module(dir)) }, true, "no such file"},
		"its module is another":         {func(dir string) error { return os.WriteFile(module(dir), says("z"), 0o600) }, true, "sha256 is"},
		"its module was cut off":        {func(dir string) error { return os.Truncate(module(dir), 20) }, true, "sha256 is"},
		"its module is a link":          {func(dir string) error { return linkElsewhere(module(dir)) }, true, "too many levels of symbolic links"},
		"its module is for others":      {func(dir string) error { return os.Chmod(module(dir), 0o660) }, true, "has mode 0660"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(test.want, "65534") && os.Geteuid() != 0 {
				t.Skip("only root gives files away")
			}
			dir := state(t)
			if err := test.change(dir); err != nil {
				t.Fatal(err)
			}
			restarted(t, dir, func(m *manage.Manager, ask func() string) {
				if got := ask(); !strings.Contains(got, `policy "p" is not available: `) || !strings.Contains(got, test.want) {
					t.Errorf("message is %q, want %s", got, test.want)
				}
				if err := m.Ready(); test.ready != (err == nil) || err != nil && (!strings.Contains(err.Error(), `policy "p" guards every request`) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("ready is %v", err)
				}
				if !test.ready {
					if err := m.SetEnabled("p", false); err == nil {
						t.Error("a policy that is not known is switched off, and its record written anew")
					}
				}
				server := httptest.NewServer(m.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
				defer server.Close()
				c := &client{t, server.URL, "secret", server.Client()}
				if code, answer := c.do("GET", "/plugins", nil); code != 200 || !strings.Contains(fmt.Sprint(answer), "error:") {
					t.Errorf("list is %d %v", code, answer)
				}
				c.want("DELETE", "/plugins/p", nil, 200, map[string]any{"status": "removed"})
				if got := ask(); strings.Contains(got, `"p"`) {
					t.Errorf("message is %q", got)
				}
				if name != "it is that of another" {
					if err := m.Ready(); err != nil {
						t.Errorf("ready is %v", err)
					}
				}
			})
		})
	}
}

// oldRecord writes a record as it was before records had digests.
func oldRecord(text string) func(dir string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, "p.json"), []byte(text), 0o600) }
}

// A record of which any byte is another, or that ends anywhere, denies still.
func TestDamagedRecordDenies(t *testing.T) {
	t.Parallel()
	dir := state(t)
	file := filepath.Join(dir, "p.json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	try := func(what string, i int, damaged []byte) {
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		engine := admission.NewEngine()
		m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: engine, Directory: dir})
		if err != nil {
			t.Fatal(err)
		}
		got := (&fixture{Manager: m, engine: engine}).ask("Pod")
		if !strings.Contains(got, "p: p") && !strings.Contains(got, `policy "p" is not available`) {
			t.Errorf("%s at byte %d: message is %q", what, i, got)
		}
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	step := 1
	if testing.Short() {
		step = 17
	}
	for i := 0; i < len(whole); i += step {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		try("another bit", i, damaged)
		try("the end", i, whole[:i])
	}
}

// A file that was being written when the process ended is none of the state.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	dir := state(t)
	left := []string{filepath.Join(dir, ".p.json-123"), filepath.Join(dir, ".plugins.list-1"), filepath.Join(dir, "modules", "."+digest(says("p"))+".wasm-77")}
	for _, file := range left {
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	restarted(t, dir, func(m *manage.Manager, ask func() string) {
		if got := ask(); got != "p: p; q: q" {
			t.Errorf("message is %q", got)
		}
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
	})
	for _, file := range left {
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s is still there", file)
		}
	}
}

// TestLoadUntilKilled is not a test but the process that TestKilledWhileItWrites
// kills: it loads versions of a plugin, and says so.
func TestLoadUntilKilled(t *testing.T) {
	dir := os.Getenv("KUBEWASM_TEST_STATE")
	if dir == "" {
		t.Skip("it is run by TestKilledWhileItWrites")
	}
	first, err := strconv.Atoi(os.Getenv("KUBEWASM_TEST_FIRST"))
	if err != nil {
		t.Fatal(err)
	}
	restarted(t, dir, func(m *manage.Manager, _ func() string) {
		for i := first; ; i++ {
			version := strconv.Itoa(i)
			if err := m.Load(t.Context(), manage.PluginSpec{Version: version, PluginConfig: admission.PluginConfig{Config: host.Config{Name: "p"}}}, says(version)); err != nil {
				t.Fatal(err)
			}
			fmt.Println("loaded", version)
		}
	})
}

// Whenever the process is killed, what it has confirmed is there, or what it was at.
func TestKilledWhileItWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	confirmed := 0
	for round := range 6 {
		cmd := self.Command(t, []string{"KUBEWASM_TEST_STATE=" + dir, "KUBEWASM_TEST_FIRST=" + strconv.Itoa(confirmed+1)}, "-test.run=^TestLoadUntilKilled$")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for said := 0; said <= round && lines.Scan(); {
			if version, ok := strings.CutPrefix(lines.Text(), "loaded "); ok {
				said++
				if confirmed, err = strconv.Atoi(version); err != nil {
					t.Fatal(err)
				}
			} else if strings.Contains(lines.Text(), "FAIL") {
				t.Fatal(lines.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// What it has said before it was killed, it has kept.
		for lines.Scan() {
			if version, ok := strings.CutPrefix(lines.Text(), "loaded "); ok {
				if confirmed, err = strconv.Atoi(version); err != nil {
					t.Fatal(err)
				}
			}
		}
		cmd.Wait() // It was killed.
		restarted(t, dir, func(m *manage.Manager, ask func() string) {
			got, err := strconv.Atoi(ask())
			if err != nil || got < confirmed || got > confirmed+1 {
				t.Errorf("version %q is in service, want %d", ask(), confirmed)
			}
			if err := m.Ready(); err != nil {
				t.Error(err)
			}
			confirmed = got
		})
	}
}

// Two servers would overwrite what the other one has loaded.
func TestOneServerUsesAStateDirectory(t *testing.T) {
	dir := t.TempDir()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	open := func() (*manage.Manager, error) {
		return manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine(), Directory: dir})
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	temporary := filepath.Join(dir, ".zone.json-1")
	if err := os.WriteFile(temporary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "another server uses it") {
		t.Errorf("a second server: %v", err)
	}
	if _, err := os.Stat(temporary); err != nil {
		t.Errorf("the second server has removed what the first one writes: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := open()
	if err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two plugins that convert one kind would fail every conversion.
func TestOnePluginConvertsAKind(t *testing.T) {
	file := func(more string) string {
		return `
plugins:
- {name: a, module: {file: x, follow: true}, converts: [{group: example.com, kind: Widget}]}
- {name: b, module: {file: x, follow: true}, converts: [{group: example.com, kind: Gadget}, {group: example.com, kind: Widget}]` + more + `}
`
	}
	const want = `plugin "b": converts: Widget.example.com is converted by the plugin "a" already`
	if _, err := manage.ParseFile([]byte(file(""))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
	if _, err := manage.ParseFile([]byte(file(", enabled: false"))); err != nil {
		t.Errorf("one that is disabled: %v", err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(context.Background()), rt.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	converter, err := os.ReadFile("../../testdata/converter.wasm")
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string) error {
		spec := manage.PluginSpec{Version: "1", PluginConfig: admission.PluginConfig{Config: host.Config{Name: name, Grants: []string{host.GrantObjects}}}}
		spec.Converts = []metav1.GroupKind{{Group: "example.com", Kind: "Widget"}}
		return m.Load(t.Context(), spec, converter)
	}
	for _, name := range []string{"a", "a"} { // A new version of itself.
		if err := load(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := load("b"); err == nil || err.Error() != want {
		t.Errorf("loaded by the API: %v, want %s", err, want)
	}
	declared, err := manage.ParseFile([]byte("plugins: [{name: b, module: {file: x, follow: true}, converts: [{group: example.com, kind: Widget}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), declared); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("declared by the file: %v, want %s", err, want)
	}
	if err := m.SetEnabled("a", false); err != nil {
		t.Fatal(err)
	}
	if err := load("b"); err != nil {
		t.Fatal(err)
	}
	const again = `plugin "a": converts: Widget.example.com is converted by the plugin "b" already`
	if err := m.SetEnabled("a", true); err == nil || err.Error() != again {
		t.Errorf("enabled by the API: %v, want %s", err, again)
	}
}
