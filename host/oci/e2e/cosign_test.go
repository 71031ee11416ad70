package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

// TestCosign lets cosign verify what we sign, and verifies what cosign signs. It needs a
// cosign of version 3 in PATH, or its path in the variable COSIGN:
//
//	go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
func TestCosign(t *testing.T) {
	cosign := os.Getenv("COSIGN")
	if cosign == "" {
		var err error
		if cosign, err = exec.LookPath("cosign"); err != nil {
			t.Skip("there is no cosign in PATH")
		}
	}
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), cosign, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+dir)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	do := func(args ...string) {
		t.Helper()
		if out, err := run(args...); err != nil {
			t.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	do("generate-key-pair")
	public, err := os.ReadFile(filepath.Join(dir, "cosign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	ourKey, ourPublic := newKey(t)
	if err := os.WriteFile(filepath.Join(dir, "our.pub"), []byte(ourPublic), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, handler := range registries(t) {
		for format, opts := range map[string]oci.SignOptions{"false": {NoBundle: true}, "true": {NoTag: true}} {
			t.Run(name+" with new-bundle-format="+format, func(t *testing.T) {
				s := newServer(t, handler, false)
				client := newClient(t, oci.Config{Registries: plain(s)})
				trusting := func(key string) *oci.Client {
					return newClient(t, oci.Config{Registries: plain(s), Trust: []oci.Trust{{Repositories: []string{"*"}, AllOf: []oci.Signer{
						{Name: "them", Key: key, Annotations: map[string]string{"env": "prod"}},
					}}}})
				}
				flags := []string{"--allow-http-registry", "--new-bundle-format=" + format}
				theirs := s.ref(t, "theirs/f"+format+":1")
				digest := push(t, client, theirs, module("theirs"), oci.PushOptions{})
				at := theirs.Name() + "@" + digest
				do(append([]string{"sign", "--key", "cosign.key", "--tlog-upload=false", "--use-signing-config=false", "-a", "env=prod", "-y", at}, flags...)...)
				if a, err := trusting(string(public)).Fetch(t.Context(), theirs); err != nil {
					t.Errorf("what cosign signed: %v", err)
				} else if diff := cmp.Diff([]string{"them"}, a.SignedBy); diff != "" {
					t.Errorf("signers of what cosign signed (-want +got)\n%s", diff)
				}
				if _, err := trusting(ourPublic).Fetch(t.Context(), theirs); err == nil {
					t.Error("what cosign signed is ours")
				}

				ours := s.ref(t, "ours/f"+format+":1")
				digest = push(t, client, ours, module("ours"), oci.PushOptions{})
				opts.Annotations = map[string]string{"env": "prod"}
				if _, err := client.Sign(t.Context(), ours, ourKey, opts); err != nil {
					t.Fatal(err)
				}
				verify := append([]string{"verify", "--insecure-ignore-tlog", "-a", "env=prod", ours.Name() + "@" + digest}, flags...)
				do(append(verify, "--key", "our.pub")...)
				if out, err := run(append(verify, "--key", "cosign.pub")...); err == nil {
					t.Errorf("cosign takes our signature for its own:\n%s", out)
				}
			})
		}
	}
}
