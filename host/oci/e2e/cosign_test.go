package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

var update = flag.Bool("update", false, "write the fixtures that cosign signs: make cosign")

// cosign is a program of version 3, with its keys in a directory.
type cosign struct {
	t            *testing.T
	program, dir string
	password     string
}

// newCosign skips the test unless there is a cosign in PATH, or its path in the variable
// COSIGN:
//
//	go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
func newCosign(t *testing.T, password string) *cosign {
	program := os.Getenv("COSIGN")
	if program == "" {
		var err error
		if program, err = exec.LookPath("cosign"); err != nil {
			t.Skip("there is no cosign in PATH")
		}
	}
	c := &cosign{t, program, t.TempDir(), password}
	c.do("generate-key-pair")
	return c
}

func (c *cosign) run(args ...string) (string, error) {
	cmd := exec.CommandContext(c.t.Context(), c.program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD="+c.password, "HOME="+c.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *cosign) do(args ...string) {
	c.t.Helper()
	if out, err := c.run(args...); err != nil {
		c.t.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// sign signs by the key, in the new format of version 3 or in that of version 2.
func (c *cosign) sign(artifact string, bundle bool) {
	c.t.Helper()
	c.do("sign", "--key", "cosign.key", "--tlog-upload=false", "--use-signing-config=false", "-a", "env=prod", "-y",
		"--allow-http-registry", fmt.Sprintf("--new-bundle-format=%v", bundle), artifact)
}

// TestUpdateFixtures writes the files of ../testdata/cosign, which the tests of package oci
// read where there is no cosign: a layout in a tar whose tags say how its artifact is signed,
// and the keys.
func TestUpdateFixtures(t *testing.T) {
	if !*update {
		t.Skip("without -update")
	}
	const to = "../testdata/cosign"
	c := newCosign(t, "kubewasm")
	s := newServer(t, ggcr(), false)
	client := newClient(t, oci.Config{Registries: plain(s)})
	layout := t.TempDir()
	for tag, bundle := range map[string]bool{"tag": false, "bundle": true} {
		ref := s.ref(t, "zone:"+tag)
		digest := push(t, client, ref, module(tag), oci.PushOptions{Annotations: map[string]string{versionOf: "1.2.0"}})
		c.sign(ref.Name()+"@"+digest, bundle)
		if _, err := client.Copy(t.Context(), ref, oci.Reference{Layout: layout, Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{filepath.Join(c.dir, "cosign.key"), filepath.Join(c.dir, "cosign.pub"), tarOf(t, layout)} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCosign lets cosign verify what we sign, and verifies what cosign signs.
func TestCosign(t *testing.T) {
	c := newCosign(t, "")
	dir := c.dir
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
				c.sign(at, format == "true")
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
				c.do(append(verify, "--key", "our.pub")...)
				if out, err := c.run(append(verify, "--key", "cosign.pub")...); err == nil {
					t.Errorf("cosign takes our signature for its own:\n%s", out)
				}
			})
		}
	}
}
