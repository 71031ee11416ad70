package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
		"a: 1\nb: 2\n", "a:\n- b: c\n  d:\n  - e\n  - f: 10Mi\n-g: h\n", "a:\n  b:\n  - \"c\"\n  - 'd'\n  e: null\nf: {}\n", "---\na: 1\n", "# c\n\na: 1\n---\nb: 2\n", "  a: 1\nb: 2\n", "a: 1\n...\nb: 2\n", "a: |\n  ---\n  x\n", "a: 'x\n--- y'\n", "- a\n- b\n", "a\n", "%YAML 1.1\n---\na: 1\n", "a: &x {b: 1}\nc: *x\n", "a: {b: 1}}\n", "A\n:", "A:0\n:", "\ufeffa: 1\n", "a: 1\r\nb: 2\r\n", "a: 1\rb: 2\r--- \rc: 1",
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
		if text := plainYAML(document); text != nil {
			if err != nil || !oneMapping(document) && bytes.Contains(document, []byte("\n---")) {
				t.Fatalf("%q is taken for a plain document: %v", document, err)
			}
			if diff := cmp.Diff(numbered(t, whole), numbered(t, text)); diff != "" {
				t.Errorf("%q (-YAML +plain):\n%s", document, diff)
			}
		}
		text := plainJSON(document)
		if text == nil || bytes.ContainsAny(text, ".eE\\") || err != nil {
			return // Numbers of YAML lose their form, and it knows other escapes.
		}
		if diff := cmp.Diff(numbered(t, whole), numbered(t, text)); diff != "" {
			t.Errorf("%q (-YAML +JSON):\n%s", document, diff)
		}
	})
}

// numbered decodes JSON whose numbers keep their form.
func numbered(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// TestPlainYAML holds which documents are read without the reader of YAML, and as what.
func TestPlainYAML(t *testing.T) {
	for document, want := range map[string]string{
		"a: 1\nb: x\n": `{"a":1,"b":"x"}`,
		"---\n# c\na:\n  b:\n  # d\n  - c: 100m\n    d:\n\n  - e: {}\n": `{"a":{"b":[{"c":"100m","d":null},{"e":{}}]}}`,
		"a:\n- b\n- \"c: d\"\n- 'e #'\n- --f=:80\ng: null":              `{"a":["b","c: d","e #","--f=:80"],"g":null}`,
		"a:\n    b: http://c:80/d\n":                                    `{"a":{"b":"http://c:80/d"}}`,
		// The reader of YAML is to say what these are.
		"a: 1\na: 2": "", "a: 'x\n  y'": "", "a: b\n  c\n": "", "a: |\n  b\n": "", "a: y": "", "on: 1": "", "a: 1.5": "", "a: 012": "", "a: 1:30": "", "a: 2026-01-01": "",
		"a: b # c": "", "a: b: c": "", "a: *b": "", "a: {b: c}": "", "a: \"\\n\"": "", "a: é": "", "a:\tb": "", "- a": "", "a:\n   b: 1\n  c: 2": "", "a: b ": "", "": "", "a: 1\n---\nb: 2": "", "a: 12345678901234567890": "", "a:\n- - b": "", "---\n---\na: 1": "", "---\n# c\n\n---\na: 1": "", "a: \"": "", "a: '": "", "a: \"b\" c": "",
	} {
		if got := string(plainYAML([]byte(document))); got != want {
			t.Errorf("%q is %q, want %q", document, got, want)
		}
	}
}

// TestNothingIsLeftOutAfterAnEmptyDocument holds that a mapping after an empty document is a mistake,
// whether it is plain or not.
func TestNothingIsLeftOutAfterAnEmptyDocument(t *testing.T) {
	for _, document := range []string{"---\n---\na: 1\n", "---\n# c\n--- \na: 1.5\n", "---\n\n---\na: [1]\n"} {
		if got, err := JSON([]byte(document)); err == nil {
			t.Errorf("%q is %s, want an error", document, got)
		}
	}
}

// TestPlainYAMLAgreesWithTheReader reads random documents, which are plain or nearly.
func TestPlainYAMLAgreesWithTheReader(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { // Mostly one of the first.
		if random.IntN(4) != 0 {
			list = list[:8]
		}
		return list[random.IntN(len(list))]
	}
	keys := []string{"a:", "b: ", "c:  ", "kind: ", "a.b/c-d_e: ", "metadata:", "spec:", "A:", "'q': ", "y: ", "null: ", "d:e: ", "", "-a: "}
	values := []string{
		"", "", "", "x", "x y", "1", "0", "01", "-1", "+1", "1.5", "100m", "1k", "1M", "128Mi", "1e3", "0x1F", "0b1", "1_000", "1:30", "12345678901234567", "true", "True", "no", "null", "Null", "~", "{}", "[]", "{a: b}", "[a]", "|", ">-",
		`"a b"`, `"a\n"`, `"a`, `"`, `''`, `""`, `'it''s'`, `'a: b'`, `'"'`, `'`, "a: b", "a #b", "a#b", "#b", "http://c:80/d", "--x=1", "--", "---", "-", "- x", "- y: z", "/a", "*", "&a", "!t", "%a", "@a", "`", "a:", "x ", "é", "a\tb", ".inf", ".nan", "inf", "nan", "e5", "2026-01-01", "<<", "=", "a,b", "a]", "$(A)", "a?b", "a|b", "Infinity", "o7", "0o7", "1Ei", "1E", "9E", "5m", "1n",
	}
	plain := 0
	for range 60_000 {
		var document []byte
		for depth := range 1 + random.IntN(8) {
			indent := 2 * random.IntN(min(depth, 3)+1)
			if random.IntN(12) == 0 {
				indent++
			}
			item := ""
			if random.IntN(3) == 0 {
				item = "- "
			}
			document = fmt.Appendf(document, "%s%s%s%s\n", strings.Repeat(" ", indent), item, pick(keys), pick(values))
		}
		text := plainYAML(document)
		if text == nil {
			continue
		}
		plain++
		want, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			t.Fatalf("%q is taken for plain: %v", document, err)
		}
		if diff := cmp.Diff(numbered(t, want), numbered(t, text)); diff != "" {
			t.Fatalf("%q (-YAML +plain):\n%s", document, diff)
		}
	}
	if plain < 1000 {
		t.Errorf("%d of the documents are plain, want more", plain)
	}
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
