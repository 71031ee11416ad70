package yamlsize_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	tests := []struct {
		name, document string
		limit          int
		want           error // ErrTooLong, or nil.
	}{
		{"an ordinary document", "a: [1, two, {b: null}]\nc: *d", 1 << 20, errMalformed},
		{"an alias", "a: &a [1, 2]\nb: *a", 1 << 20, nil},
		{"a document that is too long itself", "a: " + long, 1 << 15, yamlsize.ErrTooLong},
		{"many aliases of a long text", "a: &a " + long + "\nb: [" + strings.Repeat("*a,", 1000) + "*a]", 1 << 20, yamlsize.ErrTooLong},
		{"a long text as a key", "? &a " + long + "\n: b\nc: [" + strings.Repeat("{*a : 1},", 1000) + "{*a : 2}]", 1 << 20, yamlsize.ErrTooLong},
		{"aliases of aliases", "a: &a [" + strings.Repeat("x,", 9) + "x]\nb: &b [" + strings.Repeat("*a,", 9) + "*a]\nc: &c [" + strings.Repeat("*b,", 9) + "*b]\nd: &d [" + strings.Repeat("*c,", 9) + "*c]\ne: [" + strings.Repeat("*d,", 9) + "*d]", 1 << 16, yamlsize.ErrTooLong},
		{"more of them than the parser takes", bomb(9), 1 << 30, yamlsize.ErrTooLong},
		{"a long text that is merged", "a: &a {x: " + long + "}\nb: [" + strings.Repeat("{<<: *a},", 1000) + "{<<: *a}]", 1 << 20, yamlsize.ErrTooLong},
		{"brackets without end", strings.Repeat("[", 1<<20), 1 << 20, errMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := yamlsize.Check([]byte(test.document), test.limit)
			if test.want == errMalformed {
				if err == nil || errors.Is(err, yamlsize.ErrTooLong) {
					t.Errorf("error is %v, want another", err)
				}
			} else if !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
		})
	}
}

var errMalformed = errors.New("malformed")

// bomb is a document of levels lists of ten aliases each.
func bomb(levels int) string {
	text := "a: &a [x]\n"
	for i := range levels {
		name, before := string(rune('b'+i)), string(rune('a'+i))
		text += name + ": &" + name + " [" + strings.Repeat("*"+before+",", 9) + "*" + before + "]\n"
	}
	return text
}

// FuzzCheck: what passes is not much longer as JSON.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("a: &a [1, two]\nb: *a\n? *a\n: c"))
	f.Add([]byte("a: &a {b: c}\nd: {<<: *a, e: f}"))
	f.Add([]byte("? !!binary aGk=\n: 1e400"))
	f.Fuzz(func(t *testing.T, document []byte) {
		const limit = 1 << 12
		if yamlsize.Check(document, limit) != nil {
			return
		}
		raw, err := yaml.YAMLToJSON(document)
		if err != nil {
			return
		}
		// A character may be written with six, a number with some twenty.
		if len(raw) > 32*limit || !json.Valid(raw) {
			t.Errorf("%q is %d bytes of JSON", document, len(raw))
		}
	})
}
