package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

// keyFiles writes a new key and its public half.
func keyFiles(t *testing.T) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		return file(t, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return write("key.pem", "PRIVATE KEY", privateDER), write("key.pub", "PUBLIC KEY", publicDER)
}

func TestPushSignCopyAndPull(t *testing.T) {
	private, public := keyFiles(t)
	_, otherPublic := keyFiles(t)
	from, to := "oci-layout:"+filepath.Join(t.TempDir(), "a"), "oci-layout:"+filepath.Join(t.TempDir(), "b")
	sbom := file(t, "sbom.json", "{}")
	module := built(t, "testdata/zone")
	output := filepath.Join(t.TempDir(), "zone.wasm")

	code, pushed, stderr := kubewasm(t, "push", "--annotation", "org.opencontainers.image.vendor=ACME", "--attach", "application/spdx+json="+sbom, module, from+":1.2")
	if code != 0 || !strings.HasPrefix(pushed, from+"@sha256:") {
		t.Fatalf("push: exit code %d, %q: %s", code, pushed, stderr)
	}
	digest := strings.TrimSpace(pushed)[len(from):]
	if code, _, stderr := kubewasm(t, "pull", "--key", public, "--output-file", output, from+":1.2"); code != 1 || !strings.Contains(stderr, "it has no signature") {
		t.Errorf("pull of what is not signed: exit code %d: %s", code, stderr)
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("what is not signed was written")
	}
	if code, out, stderr := kubewasm(t, "sign", "--key", private, from+":1.2"); code != 0 || out != pushed {
		t.Errorf("sign: exit code %d, %q: %s", code, out, stderr)
	}
	if code, out, stderr := kubewasm(t, "copy", from+":1.2", to+":2"); code != 0 || out != to+digest+"\n" {
		t.Errorf("copy: exit code %d, %q: %s", code, out, stderr)
	}
	code, out, stderr := kubewasm(t, "pull", "--key", public, "--output-file", output, to+":2")
	if code != 0 || !strings.HasPrefix(out, output+": "+to+digest+", signed by key.pub, sha256 of the module is ") {
		t.Errorf("pull: exit code %d, %q: %s", code, out, stderr)
	}
	got, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(want, got) {
		t.Error("what was pulled is not what was pushed")
	}
	if code, _, stderr := kubewasm(t, "pull", "--key", otherPublic, "--output-file", output, to+":2"); code != 1 || !strings.Contains(stderr, "it is by another key") {
		t.Errorf("pull by another key: exit code %d: %s", code, stderr)
	}

	// The annotations are those of the metadata and of the flags.
	client, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := oci.ParseReference(to + ":2")
	if err != nil {
		t.Fatal(err)
	}
	a, err := client.Fetch(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	delete(a.Annotations, "io.github.kubewasm.sdk")
	if diff := cmp.Diff(map[string]string{
		"org.opencontainers.image.title": "zone", "org.opencontainers.image.version": "1.2.0",
		"org.opencontainers.image.source": "https://example.com/zone", "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
		"org.opencontainers.image.vendor": "ACME",
		"io.github.kubewasm.kinds":        "scheduler", "io.github.kubewasm.reads": "node.metadata.labels,pod.spec.priority",
	}, a.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}

	// A push with the key signs at once; the registries file says whom to trust.
	if code, _, stderr := kubewasm(t, "push", "--image", "--key", private, module, from+":image"); code != 0 {
		t.Errorf("push with a key: exit code %d: %s", code, stderr)
	}
	config := file(t, "registries.yaml", "trust:\n- repositories: ['*']\n  anyOf:\n  - {name: us, keyFile: "+public+"}\n")
	if code, out, stderr := kubewasm(t, "pull", "--registries", config, "--output-file", output, from+":image"); code != 0 || !strings.Contains(out, "signed by us") {
		t.Errorf("pull of the image: exit code %d, %q: %s", code, out, stderr)
	}
}

func TestRegistryCommandsReportMistakes(t *testing.T) {
	private, public := keyFiles(t)
	module := file(t, "m.wasm", "\x00asm\x01\x00\x00\x00")
	layout := "oci-layout:" + t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"push without a reference", []string{"push", module}, "a reference is missing"},
		{"push with three arguments", []string{"push", module, layout + ":1", "x"}, `unexpected argument "x"`},
		{"push to a digest", []string{"push", module, layout + "@sha256:" + strings.Repeat("0", 64)}, "want a reference with a tag and without a digest"},
		{"push of a text", []string{"push", public, layout + ":1"}, "want the preamble"},
		{"push with half an annotation", []string{"push", "--annotation", "x", module, layout + ":1"}, "want KEY=VALUE"},
		{"push with a missing attachment", []string{"push", "--attach", "a/b=/does/not/exist", module, layout + ":1"}, "no such file"},
		{"pull of nothing", []string{"pull", layout + ":1"}, "is no image layout"},
		{"copy with two mistakes", []string{"copy", "x/y:1", "ghcr.io/Y:1"}, `"x" is no host name`},
		{"sign without a key", []string{"sign", layout + ":1"}, "--key is missing"},
		{"sign with a public key", []string{"sign", "--key", public, layout + ":1"}, "want a PRIVATE KEY"},
		{"sign in an unknown format", []string{"sign", "--format", "x", "--key", private, layout + ":1"}, "want both, bundle or tag"},
		{"an unknown field", []string{"pull", "--registries", file(t, "r.yaml", "trusts: []"), layout + ":1"}, `unknown field "trusts"`},
		{"plain http to another host", []string{"pull", "--plain-http", "a.example.com", "oci-layout:x:y:z!"}, `tag is "z!"`},
	} {
		code, out, stderr := kubewasm(t, tt.args...)
		if code != 1 || out != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, %q, %s, want %q", tt.name, code, out, stderr, tt.want)
		}
	}
}

// timeless removes what no two runs have the same: times, and the columns that they make.
func timeless(output string) string {
	return regexp.MustCompile(`([0-9.]+(µs|ms))? +`).ReplaceAllString(output, " ")
}

func TestInspectAndRunTakeReferences(t *testing.T) {
	private, public := keyFiles(t)
	_, otherPublic := keyFiles(t)
	module := built(t, "testdata/zone")
	ref := "oci-layout:" + filepath.Join(t.TempDir(), "plugins") + ":1.2"
	code, pushed, stderr := kubewasm(t, "push", "--key", private, module, ref)
	if code != 0 {
		t.Fatalf("push: exit code %d: %s", code, stderr)
	}
	pushed = strings.TrimSpace(pushed)
	for _, command := range [][]string{{"inspect"}, {"run", "-f", "testdata/cluster.yaml"}} {
		wantCode, want, _ := kubewasm(t, append(command, module)...)
		code, out, stderr := kubewasm(t, append(command, "--key", public, ref)...)
		if diff := cmp.Diff(timeless(strings.ReplaceAll(want, module, pushed)), timeless(out)); diff != "" || code != wantCode {
			t.Errorf("%s of a reference: exit code %d, want %d; output (-of the file +of the reference)\n%s", command[0], code, wantCode, diff)
		}
		if want := "kubewasm: " + pushed + " is signed by key.pub\n"; stderr != want {
			t.Errorf("%s of a reference: %q, want %q", command[0], stderr, want)
		}
		if _, _, stderr := kubewasm(t, append(command, ref)...); stderr != "kubewasm: "+pushed+" is not verified\n" {
			t.Errorf("%s without a key: %s", command[0], stderr)
		}
		for _, tt := range []struct{ name, argument, want string }{
			{"of a reference that is signed by another", ref, "it is by another key"},
			{"of a reference without a tag", "ghcr.io/acme/zone", "there is no file of this name: reference \"ghcr.io/acme/zone\": tag and digest are missing"},
			{"of a file that is missing", "plugins.d/zone.wasm", "no such file"},
			{"of a directory that is missing", "../plugins", "no such file"},
			{"of a layout that is missing", "oci-layout:absent:1", "fetch oci-layout:absent:1: "},
		} {
			code, out, stderr := kubewasm(t, append(command, "--key", otherPublic, tt.argument)...)
			if code != 1 || out != "" || !strings.Contains(stderr, tt.want) {
				t.Errorf("%s %s: exit code %d, %q, %s, want %q", command[0], tt.name, code, out, stderr, tt.want)
			}
		}
	}
}

// TestSignWithAKeyOfCosign signs by an encrypted key that cosign wrote: "make cosign".
func TestSignWithAKeyOfCosign(t *testing.T) {
	const key, public = "../../host/oci/testdata/cosign/cosign.key", "../../host/oci/testdata/cosign/cosign.pub"
	ref := "oci-layout:" + filepath.Join(t.TempDir(), "plugins") + ":1"
	module := file(t, "m.wasm", "\x00asm\x01\x00\x00\x00")
	if code, _, stderr := kubewasm(t, "push", module, ref); code != 0 {
		t.Fatalf("push: exit code %d: %s", code, stderr)
	}
	// changed returns the key with another document in it.
	changed := func(old, with string) string {
		data, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		text := strings.Replace(string(block.Bytes), old, with, 1)
		if text == string(block.Bytes) {
			t.Fatalf("the key has no %s", old)
		}
		return file(t, "cosign.key", string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: []byte(text)})))
	}
	null, err := os.Open(os.DevNull) // No terminal.
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	os.Stdin = null
	for _, tt := range []struct{ name, key, password, want string }{
		{"no password", key, "", "COSIGN_PASSWORD is not set, and the standard input is no terminal"},
		{"a wrong password", key, "other", "decrypt key: the password is wrong, or the file was changed"},
		{"another function for the password", changed("scrypt", "bcrypt"), "kubewasm", `it is encrypted by "bcrypt" and "nacl/secretbox"`},
		{"a function that takes a terabyte", changed(`"N":65536`, `"N":1073741824`), "kubewasm", "scrypt has N=1073741824, r=8, p=1, want at most 268435456 bytes"},
		{"a function that takes nothing", changed(`"r":8`, `"r":0`), "kubewasm", "scrypt has N=65536, r=0, p=1"},
		{"a number that is no power of two", changed(`"N":65536`, `"N":65535`), "kubewasm", "read encrypted key: scrypt: N must be"},
		{"a short nonce", changed(`"nonce":"`, `"nonce":"AAAA","x":"`), "kubewasm", "nonce has 3 bytes, want 24"},
		{"no document", changed("{", "["), "kubewasm", "read encrypted key: invalid character"},
	} {
		t.Setenv("COSIGN_PASSWORD", tt.password)
		if tt.password == "" {
			if err := os.Unsetenv("COSIGN_PASSWORD"); err != nil {
				t.Fatal(err)
			}
		}
		code, _, stderr := kubewasm(t, "sign", "--key", tt.key, ref)
		if code != 1 || !strings.HasPrefix(stderr, "kubewasm: "+tt.key+": ") || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d: %s, want %q", tt.name, code, stderr, tt.want)
		}
	}
	t.Setenv("COSIGN_PASSWORD", "kubewasm")
	if code, _, stderr := kubewasm(t, "sign", "--key", key, ref); code != 0 {
		t.Fatalf("sign: exit code %d: %s", code, stderr)
	}
	if code, out, stderr := kubewasm(t, "pull", "--key", public, "--output-file", filepath.Join(t.TempDir(), "m.wasm"), ref); code != 0 || !strings.Contains(out, "signed by cosign.pub") {
		t.Errorf("pull: exit code %d, %s: %s", code, out, stderr)
	}
}
