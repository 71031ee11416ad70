package wasmlayer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/wasmlayer"
)

// archive returns a compressed tar of names and contents.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return compressed(t, b.Bytes())
}

func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	const module = wasmlayer.Magic + "\x01\x00\x00\x00"
	manifest := `{"wasm":[{"entrypoint":"policy/main","module":"/policy.wasm"}]}`
	for name, tt := range map[string]struct {
		layer []byte
		want  string // Of the error; empty: it has the module.
	}{
		"the module itself":            {[]byte(module), ""},
		"the module, compressed":       {compressed(t, []byte(module)), ""},
		"a bundle of OPA":              {archive(t, "/data.json", "{ }\n", "/policy.rego", "package policy", "/policy.wasm", module, "/.manifest", manifest), ""},
		"data of something else":       {archive(t, "data.json", `{"a": 1}`, "plugin.wasm", module), ""},
		"a bundle with data":           {archive(t, "/data.json", `{"a": 1}`, "/policy.wasm", module, "/.manifest", manifest), "a bundle of OPA with data"},
		"a bundle with much data":      {archive(t, "/data.json", "{"+strings.Repeat(" ", 2000)+`"a": 1}`, "/policy.wasm", module, "/.manifest", manifest), "a bundle of OPA with data"},
		"a bundle for OPA itself":      {archive(t, "/data.json", "{}", "/policy.rego", "package policy", "/.manifest", "{}"), "want opa build -t wasm"},
		"a module that is too large":   {compressed(t, append([]byte(module), make([]byte, 1<<20)...)), "more than 1024 bytes"},
		"a compression that is broken": {compressed(t, []byte(module))[:20], "unexpected EOF"},
		"an archive without a module":  {archive(t, "a.txt", "x"), "it has no .wasm file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wasmlayer.Unpack(tt.layer, 1024)
			switch {
			case tt.want == "" && (err != nil || string(got) != module):
				t.Errorf("%q, %v", got, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}
