package bindgen_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen"
)

// hostileNames are names that end what they are written in, in one language or another, and go
// on with code, a directive or a preprocessor's line.
var hostileNames = []string{
	"a.\n\n//go:generate sh -c id\n\nfunc init() { println(`runs`) }\n\n// b",
	"x`}; func init() { println(0xbadc0de) }; type Y struct { Z int `json:y",
	"a */ int evil(void) { return 1; } /*", "a */ export function evil(): void {} /* b",
	`ends with a backslash \`, `ends with a trigraph ??/`, `trigraphs ??' ??! ??<"??/"`, "continued \\\n int evil;", "continued ??/\nint evil;",
	"//go:build ignore", "\n//go:build ignore\n\npackage evil", "\n//go:linkname a runtime.b", "\n//line /etc/passwd:1", "#include \"/etc/passwd\"", "\n#include \"/etc/passwd\"\n", "\n#define kw_str evil\n",
	"\r#define kw_str evil\rint evil;", "\u2028int evil;\u2029fn evil() {}", "\u202eevil\u202c \u2066evil\u2069", "\ufeffevil", "nul\x00evil", "bell\a\b\v\f\x1b[2J\x7f", "\u0085evil",
	"\U0001F600 \U000E0001 \U0010FFFF", "\xff\xfe\xc3", "é日本語", `\u{41}\x41\101\q`, `"; static evil: u32 = 1; "`, `" + evil() + "`, "${evil()}`${evil()}`", "'a'", "`", `\`, `"`, "'", "", " ", "//", "/*", "*/", "*/ // \\", "r#\"evil\"#", "{}", "%s%d%!v(MISSING)", "a-b", "a.b", "a/b", "$ref", "@a", "0", "-1",
	"//kubewasm:name evil", "kubewasm:reads secrets", "\n//kubewasm:matches * secrets\n", "// +build ignore", "+build ignore", "#[no_mangle]", "#![feature(x)]", "@external(\"a\", \"b\")", "import \"C\"", "//export evil", "#cgo LDFLAGS: -Wl,evil",
}

// places are where a source has names and texts. Each returns the package of a source with a text
// at its place.
var places = map[string]func(t testing.TB, text string) (*bindgen.Package, error){
	"a property": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{text: map[string]any{"type": "string"}}, "Widget", "w.yaml")
	},
	"a property with an object": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{text: map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "integer"}}}}, "Widget", "w.yaml")
	},
	"a description": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{"p": map[string]any{"type": "string", "description": "Words " + text}}, "Widget", "w.yaml")
	},
	"a description without words in front": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{"p": map[string]any{"type": "string", "description": text}}, "Widget", "w.yaml")
	},
	"a value": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{"p": map[string]any{"type": "string", "enum": []string{"v " + text}}}, "Widget", "w.yaml")
	},
	"a kind": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{"p": map[string]any{"type": "string"}}, "W"+text, "w.yaml")
	},
	"the name of the file": func(_ testing.TB, text string) (*bindgen.Package, error) {
		return crdWith(map[string]any{"p": map[string]any{"type": "string"}}, "Widget", "w"+text+".yaml")
	},
	"a json_name": func(t testing.TB, text string) (*bindgen.Package, error) {
		return protoWith(t, "optional string a = 1 [json_name = "+protoString(text)+"];")
	},
	"a comment": func(t testing.TB, text string) (*bindgen.Package, error) {
		return protoWith(t, "/* Words "+strings.ReplaceAll(text, "*/", "")+" */ optional string a = 1;")
	},
	"a comment on a line": func(t testing.TB, text string) (*bindgen.Package, error) {
		return protoWith(t, "// "+strings.NewReplacer("\n", " ", "\r", " ").Replace(text)+"\n optional string a = 1;")
	},
}

func crdWith(properties map[string]any, kind, source string) (*bindgen.Package, error) {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{"group": "g", "names": map[string]any{"kind": kind}, "versions": []any{map[string]any{
			"name": "v1", "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": properties}},
			}},
		}}},
	})
	if err != nil {
		return nil, err
	}
	return bindgen.CRD(bindgen.CRDConfig{Source: source, Text: text, Package: "views"})
}

// protoString returns a literal of a .proto file with any bytes.
func protoString(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "\\%03o", s[i])
	}
	return `"` + b.String() + `"`
}

// protoWith returns the package of a file with services and fields of a message.
func protoWith(t testing.TB, fields string) (*bindgen.Package, error) {
	t.Helper()
	return protoOf(t, "syntax = \"proto3\";\npackage p;\nmessage M {\n"+fields+"\n}\nservice S { rpc Do(M) returns (M); }\n", "views")
}

// protoOf returns the package of a .proto file. Types of Kubernetes are those of this module.
func protoOf(t testing.TB, text, name string) (*bindgen.Package, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.proto"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return bindgen.Proto(t.Context(), bindgen.ProtoConfig{File: "m.proto", Dirs: []string{dir}, Package: name})
}

// written returns the files of a package in each language, and those of the host if it has services,
// by the language and the name of the file.
func written(p *bindgen.Package) (map[string]string, error) {
	all := map[string]string{}
	for _, l := range bindgen.Languages {
		files, err := l.Write(p)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			all[l.Name+" "+f.Name] = string(f.Text)
		}
	}
	if len(p.Services) == 0 {
		return all, nil
	}
	files, err := bindgen.WriteHost(p)
	for _, f := range files {
		all["host "+f.Name] = string(f.Text)
	}
	return all, err
}

// checkData fails if what is written for a hostile text differs from what is written for a
// harmless one in anything but names, literals and comments. A text may be refused.
func checkData(t *testing.T, place, text string) {
	t.Helper()
	hostile, err := places[place](t, text)
	if err != nil {
		return
	}
	got, err := written(hostile)
	if err != nil {
		if strings.Contains(err.Error(), "format ") {
			t.Errorf("%s %q: %v", place, text, err)
		}
		return
	}
	// C names fields whose names are no identifiers by another macro.
	plain := "a-b"
	if regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(text) {
		plain = "ab"
	}
	harmless, err := places[place](t, plain)
	if err != nil {
		t.Fatal(err)
	}
	want, err := written(harmless)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%s %q: %d files, want %d", place, text, len(got), len(want))
	}
	for name, file := range got {
		language, _, _ := strings.Cut(name, " ")
		if bad := strings.IndexFunc(file, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); bad >= 0 || !utf8.ValidString(file) {
			t.Errorf("%s %q: %s has the character %q", place, text, name, file[max(bad, 0)])
		}
		if diff := cmp.Diff(skeleton(language, want[name]), skeleton(language, file)); diff != "" {
			t.Errorf("%s %q: %s (-want +got):\n%s\n%s", place, text, name, diff, file)
		}
	}
}

// TestNamesAreData writes code for hostile names and texts in each place of a source.
func TestNamesAreData(t *testing.T) {
	for place := range places {
		t.Run(place, func(t *testing.T) {
			for _, text := range hostileNames {
				checkData(t, place, text)
			}
		})
	}
}

// FuzzNames writes code for any text in each place of a source.
func FuzzNames(f *testing.F) {
	names := slices.Sorted(func(yield func(string) bool) {
		for place := range places {
			if !yield(place) {
				return
			}
		}
	})
	for i, text := range hostileNames {
		f.Add(text, byte(i))
	}
	f.Fuzz(func(t *testing.T, text string, place byte) {
		if len(text) > 300 {
			return
		}
		checkData(t, names[int(place)%len(names)], text)
		compileHostile(t, names[int(place)%len(names)], text)
	})
}

// escapes are what may stand behind a backslash in a literal.
var escapes = map[string]*regexp.Regexp{
	"go":   regexp.MustCompile(`^([abfnrtv\\'"]|[0-7]{3}|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})`),
	"host": regexp.MustCompile(`^([abfnrtv\\'"]|[0-7]{3}|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})`),
	"rust": regexp.MustCompile(`^([nrt\\0'"\n]|x[0-9a-f]{2}|u\{[0-9a-f]{1,6}\})`),
	"c":    regexp.MustCompile(`^([abfnrtv\\'"]|[0-7]{3})`),
	"as":   regexp.MustCompile(`^([bfnrtv0\\'"]|u[0-9a-f]{4})`),
}

// skeleton returns the tokens of a text without comments: I for a name or a number, S for a
// literal, and all else as it is, with the directives at the beginning of lines.
func skeleton(language, text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "//go:") || strings.HasPrefix(line, "//line") || strings.HasPrefix(line, "#") || strings.HasPrefix(strings.TrimSpace(line), "// +build") {
			directive, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			out = append(out, directive)
		}
	}
	if language == "c" {
		text = strings.NewReplacer("??/", `\`, "??'", "^", "??!", "|", "??<", "{", "??>", "}", "??=", "#", "??(", "[", "??)", "]", "??-", "~").Replace(text)
		text = regexp.MustCompile(`\\[ \t]*\n`).ReplaceAllString(text, "")
	}
	ends := "\n"
	if language != "go" && language != "host" && language != "rust" {
		ends = "\n\r\u2028\u2029"
	}
	word := func(r rune) bool {
		return r == '_' || r == '$' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case strings.HasPrefix(text, "//"):
			if size = strings.IndexAny(text, ends); size < 0 {
				size = len(text)
			}
		case strings.HasPrefix(text, "/*"):
			if size = strings.Index(text[2:], "*/"); size < 0 {
				return append(out, "an open comment")
			}
			size += 4
		case r == '"' || r == '`' || r == '\'' && language != "rust":
			end := 1
			for ; ; end++ {
				if end >= len(text) || r != '`' && text[end] == '\n' {
					return append(out, "an open literal")
				}
				if rune(text[end]) == r {
					break
				}
				if text[end] != '\\' || r == '`' {
					continue
				}
				escape := escapes[language].FindString(text[end+1:])
				if escape == "" {
					return append(out, "a wrong escape "+text[end:min(end+8, len(text))])
				}
				end += len(escape)
			}
			// A long literal has several parts.
			if n := len(out); language == "go" || language == "host" {
				if n >= 2 && out[n-1] == "+" && out[n-2] == "S" {
					out = out[:n-2]
				}
			} else if n >= 1 && out[n-1] == "S" {
				out = out[:n-1]
			}
			out, size = append(out, "S"), end+1
		case word(r):
			text = strings.TrimPrefix(text, "r#")
			if size = strings.IndexFunc(text, func(r rune) bool { return !word(r) }); size < 0 {
				size = len(text)
			}
			out = append(out, "I")
		case r == ' ' || r == '\n' || r == '\t':
		default:
			out = append(out, text[:size])
		}
		text = text[size:]
	}
	return out
}
