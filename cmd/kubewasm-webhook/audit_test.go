package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
)

// TestADamagedStateKeepsNoAuditFromRunning holds that audits go on without a state that is none,
// which they leave alone, and that the operator reads why.
func TestADamagedStateKeepsNoAuditFromRunning(t *testing.T) {
	const damaged = "not a state"
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	a := newAuditing(&auditOptions{state: file, qps: 1}, &rest.Config{Host: "http://127.0.0.1:1"}, admission.NewEngine(),
		func() error { return nil }, slog.New(slog.NewTextHandler(&logged, nil)))
	if err := a.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.auditor.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(logged.String(), "is not the state of an audit") {
		t.Errorf("the log is %q", logged.String())
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != damaged {
		t.Errorf("the file is %q, error %v", content, err)
	}
}
