package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// TestREADME runs the commands of README.md that need no cluster, as they stand
// there but for where their files lie and where the server listens.
func TestREADME(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(tool + " is not installed")
			}
			t.Skip(tool + " is not installed")
		}
	}
	if err := guestbuild.TrackSources("../.."); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	// blocks returns the commands of a section.
	blocks := func(section string) string {
		_, rest, ok := strings.Cut(string(text), "\n## "+section)
		if !ok {
			t.Fatalf("README.md has no section %s", section)
		}
		rest, _, _ = strings.Cut(rest, "\n## ")
		var commands strings.Builder
		for i, part := range strings.Split(rest, "```") {
			if i%2 == 1 {
				commands.WriteString(part)
			}
		}
		return commands.String()
	}
	dir, addr := t.TempDir(), freeAddress(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(addr, ":")
	there := strings.NewReplacer(
		"localhost:8443", "localhost:"+port,
		"\nkubewasm-webhook ", fmt.Sprintf("\nkubewasm-webhook -addr %s -api-token-file %s/token -state-dir %s/state -cache-dir %s ", addr, dir, dir, compiled.Config().CacheDir),
		"tls.key", dir+"/tls.key", "tls.crt", dir+"/tls.crt", "settings.json", dir+"/settings.json", "policies.yaml", dir+"/policies.yaml",
		" required-labels.wasm", " "+dir+"/required-labels.wasm", "cat token", "cat "+dir+"/token", "TOKEN_FILE=token", "TOKEN_FILE="+dir+"/token", "owner.yaml", dir+"/owner.yaml",
	)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The first section ends with a denial.
	script := "set -u\n" + there.Replace(blocks("1.")) + "echo code $?\nset -eo pipefail\ntrap 'kill %1; wait' EXIT\n" + there.Replace(blocks("2.")) + there.Replace(blocks("5."))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOBIN="+dir, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "GOFLAGS=-buildvcs=false")
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`spec.containers[0].image: Invalid value: "nginx": must come from registry.example.com/`,
		"\ncode 2\n",
		`"message":"required-labels: metadata.labels[team]: Required value: every Pod must have it"`,
		`{"status":"created"}`,
		`"name":"owner","version":"1.0.0"`,
		`there is no earlier version`,
		`policy "owner": rolled back to 1.0.0`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %s in\n%s", want, out)
		}
	}
}
