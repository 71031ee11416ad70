package metadata_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi/metadata"
)

func module(t testing.TB) []byte {
	t.Helper()
	module, err := os.ReadFile("../../host/testdata/good.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func TestAddAndFind(t *testing.T) {
	plain := module(t)
	if m, err := metadata.Find(plain); m != nil || err != nil {
		t.Errorf("a module that says nothing: %v, %v", m, err)
	}
	first := &metadata.Metadata{Name: "zone", Version: "1.2.0", Kinds: []string{"scheduler"}, Reads: []string{"node.metadata.labels"}, SDK: "example.com/sdk v1.0.0", ABI: 1,
		Matches: []metadata.Rule{{Operations: []string{"CREATE"}, APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods", "pods/ephemeralcontainers"}}}}
	with, err := metadata.Add(plain, first)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(with, plain) {
		t.Error("the other sections changed")
	}
	got, err := metadata.Find(with)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	again, err := metadata.Add(with, &metadata.Metadata{ABI: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(again, []byte("\x08kubewasm{")); n != 1 {
		t.Errorf("after the second Add there are %d sections, want 1", n)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{"abi": 1}`:                             "",
		`{"abi": 1, "future": true}`:             "",
		`{`:                                      "metadata: unexpected end of JSON input",
		`[]`:                                     "metadata: json: cannot unmarshal array",
		`{"abi": 2, "kinds": ["hook", "robot"]}`: "metadata: abi is 2, want 1\nkind \"robot\" is none of scheduler, admission, hook, service",
		`{"abi": 1, "name": "a\nb"}`:             `metadata: name "a\nb" has more than 253 bytes, or some that are no text`,
		`{"abi": 1, "matches": [{"operations": ["*"], "apiGroups": ["", "*", "apps"], "apiVersions": ["*", "v1"], "resources": ["*", "*/*", "pods/*", "pods/status"]}]}`: "",
		`{"abi": 1, "matches": [{"operations": ["create"], "apiGroups": ["Apps"], "apiVersions": ["apps/v1"], "resources": ["Pods"]}]}`:                                  "metadata: matches: operations has \"create\", want CREATE, UPDATE, DELETE, CONNECT or *\nmatches: apiGroups has \"Apps\", want a group such as apps, nothing for the core group, or *\nmatches: apiVersions has \"apps/v1\", want a version such as v1, without its group, or *\nmatches: resources has \"Pods\", want a resource in lower case and the plural, such as pods or pods/status, or *",
		`{"abi": 1, "matches": [{}]}`: "metadata: matches: operations is empty\nmatches: apiGroups is empty\nmatches: apiVersions is empty\nmatches: resources is empty",
		strings.Repeat(" ", 64<<10+1): "metadata: 65537 bytes are more than 65536",
	} {
		_, err := metadata.Parse([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("Parse(%.40s): %v, want %s", text, err, want)
		}
	}
	if _, err := metadata.Add([]byte("\x7fELF"), &metadata.Metadata{ABI: 1}); err == nil || err.Error() != "not a WebAssembly module" {
		t.Errorf("Add to something else: %v", err)
	}
	if _, err := metadata.Add(module(t), &metadata.Metadata{}); err == nil {
		t.Error("metadata without an ABI were added")
	}
}

// FuzzFind reads hostile bytes; what it can read, Add must be able to write.
func FuzzFind(f *testing.F) {
	plain := module(f)
	f.Add(plain)
	with, err := metadata.Add(plain, &metadata.Metadata{Name: "zone", ABI: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(with)
	f.Fuzz(func(t *testing.T, module []byte) {
		m, err := metadata.Find(module)
		if err != nil || m == nil {
			return
		}
		again, err := metadata.Add(module, m)
		if err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		got, err := metadata.Find(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
	})
}
