package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// FuzzShortcuts holds that what is read without the reader of YAML, or by it once, is what
// it reads, and that nothing follows the document.
func FuzzShortcuts(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Pod"}`, `{"a":1,"a":2}`, `{"a":{"b":[{"c":1,"c":2}]}}`, `{"a":1} {"b":2}`, "{\"a\":1}\n{\"b\":2}", `{"a":"\ud83d\ude00\u00e9"}`, `{"a":1e3,"b":-0.5}`, `{"\u0061":1,"a":2}`, strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600),
		"a: 1\nb: 2\n", "---\na: 1\n", "# c\n\na: 1\n---\nb: 2\n", "  a: 1\nb: 2\n", "a: 1\n...\nb: 2\n", "a: |\n  ---\n  x\n", "a: 'x\n--- y'\n", "- a\n- b\n", "a\n", "%YAML 1.1\n---\na: 1\n", "a: &x {b: 1}\nc: *x\n", "a: {b: 1}}\n", "\ufeffa: 1\n", "a: 1\r\nb: 2\r\n", "a: 1\rb: 2\r--- \rc: 1",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		whole, err := yaml.YAMLToJSONStrict(document)
		if err == nil && oneMapping(document) {
			decoder := goyaml.NewDecoder(bytes.NewReader(document))
			var v any
			if err := decoder.Decode(&v); err != nil {
				t.Fatal(err)
			}
			if err := decoder.Decode(&v); !errors.Is(err, io.EOF) {
				t.Errorf("something follows %q: %v", document, err)
			}
		}
		text := plainJSON(document)
		if text == nil || bytes.ContainsAny(text, ".eE\\") || err != nil {
			return // Numbers of YAML lose their form, and it knows other escapes.
		}
		var got, want any
		for _, read := range []struct {
			text []byte
			to   *any
		}{{text, &got}, {whole, &want}} {
			d := json.NewDecoder(bytes.NewReader(read.text))
			d.UseNumber()
			if err := d.Decode(read.to); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-YAML +JSON):\n%s", document, diff)
		}
	})
}

// TestReadingTakesTheShortcuts holds that YAML as people write it is parsed once, and JSON not
// as YAML: both take several times as long.
func TestReadingTakesTheShortcuts(t *testing.T) {
	if !oneMapping([]byte("# a comment\n---\napiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    ---\n")) {
		t.Error("a mapping is parsed twice")
	}
	if got := string(plainJSON([]byte("\n {\"kind\": \"List\", \"items\": [{}]}\n"))); got != `{"kind":"List","items":[{}]}` {
		t.Errorf("JSON is parsed as YAML: %q", got)
	}
	for _, twice := range []string{`{"a":1,"a":2}`, `{"b":{"a":1,"\u0061":2}}`, `{"b":[{"a":1,"a":1}]}`} {
		if plainJSON([]byte(twice)) != nil {
			t.Errorf("%s has a key twice", twice)
		}
	}
}

// TestReadingEndsWithItsContext ends the context at an object of a List and at a document.
func TestReadingEndsWithItsContext(t *testing.T) {
	item := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	for name, text := range map[string]string{
		"documents": strings.Repeat("---\n"+item+"\n", 2000),
		"a List":    fmt.Sprintf(`{"apiVersion":"v1","kind":"List","items":[%s]}`, strings.TrimSuffix(strings.Repeat(item+",", 2000), ",")),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			_, _, err := ReadOn(ctx, []byte(text), func() {
				if n++; n == 10 {
					cancel()
				}
			})
			if !errors.Is(err, context.Canceled) || n > 256 {
				t.Errorf("%d objects were read, error %v", n, err)
			}
		})
	}
}
