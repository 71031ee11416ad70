package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/logged"
)

// logKeys are the keys of attributes that the packages log, as the documentation of package
// host lists them.
var logKeys = []string{
	"plugin", "function", "err", "reason", "stack", "guest", "dropped", "serving", "example", // Of every package.
	"reference", "digest", // Of host/oci.
	"pod", "node", "functions", "fields", "missing", "profile", "!BADKEY", // Of sched.
	"policy", "uid", "kind", "namespace", "name", "operation", "bytes", "limit", "panic", "file", "warning", "enabled", "resource", "members", "policies", // Of admission.
	"request", "stage", "container", "cgroup", "change", "contention", "mode", "state", "decided", "cause", "driver", // Of hooks.
	"pods", "containers", "left", "after", "address", "duration", "program", "version", "origin", "until", "was", "level", "isolation", "weaker",
}

// TestLogKeys holds that one thing has one key in the logs of all packages.
func TestLogKeys(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "host/*.go", "sched/*.go", "admission/*.go", "hooks/*.go", "cmd/kubewasm-agent/*.go", "cmd/kubewasm-webhook/*.go")
	list.Dir = "../../.."
	files, err := list.Output()
	if err != nil {
		t.Skipf("list the sources: %v", err)
	}
	for _, file := range strings.Fields(string(files)) {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testdata/") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path.Join("../../..", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range keysOf(call) {
				if text, err := strconv.Unquote(key.Value); err == nil && !slices.Contains(logKeys, text) {
					t.Errorf("%s: the log has the key %q, which is none of %q", set.Position(key.Pos()), text, logKeys)
				}
			}
			return true
		})
	}
}

// TestEventsAreLogged holds that each message in the table of events of docs/operating.md is one of
// the packages, and that its keys are among those of all logs.
func TestEventsAreLogged(t *testing.T) {
	events, err := logged.Events()
	if err != nil {
		t.Fatal(err)
	}
	if len(events) < 10 {
		t.Errorf("docs/operating.md has %d events", len(events))
	}
	for message, keys := range events {
		grep := exec.CommandContext(t.Context(), "git", "grep", "-qF", strconv.Quote(message), "--", "host/*.go", "admission/*.go", "cmd/*.go", ":!*_test.go")
		grep.Dir = "../../.."
		if err := grep.Run(); err != nil {
			t.Errorf("docs/operating.md: nothing logs %q: %v", message, err)
		}
		for _, key := range keys {
			if !slices.Contains(logKeys, key) {
				t.Errorf("docs/operating.md: %q has the key %q, which no log has", message, key)
			}
		}
	}
}

// keysOf returns the keys of attributes that a call of package slog or of a logger has.
func keysOf(call *ast.CallExpr) (keys []*ast.BasicLit) {
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	args := call.Args
	if fn.Sel.Name == "log" { // Of a type of the package: log(level, message, …).
		if len(args) < 2 {
			return nil
		}
		if level, ok := args[0].(*ast.SelectorExpr); !ok || !strings.HasPrefix(level.Sel.Name, "Level") {
			return nil
		}
		args = args[2:]
	} else if pkg, ok := fn.X.(*ast.Ident); ok && pkg.Name == "slog" && len(args) == 2 {
		args = args[:1] // slog.String and the like.
	} else {
		receiver := ""
		switch x := fn.X.(type) {
		case *ast.Ident:
			receiver = x.Name
		case *ast.SelectorExpr:
			receiver = x.Sel.Name
		}
		if receiver = strings.ToLower(receiver); receiver != "l" && !strings.HasSuffix(receiver, "logger") {
			return nil
		}
		first := map[string]int{"With": 0, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3}
		skip, ok := first[fn.Sel.Name]
		if !ok || len(args) < skip {
			return nil
		}
		args = args[skip:]
	}
	for i := 0; i < len(args); i++ {
		if key, ok := args[i].(*ast.BasicLit); ok && key.Kind == token.STRING {
			keys = append(keys, key)
			i++ // Its value.
		}
	}
	return keys
}
