package layout

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// boundedLists are slices to a limit of something that is no text, by their files: lists, bytes
// that are read into, hashes. Whatever is text goes through package cut.
var boundedLists = map[string][]string{
	"admission/kubewarden/capabilities/provider.go":          {"addresses[:min(len(addresses), maxAddresses)]"},
	"internal/boolexpr/boolexpr.go":                          {"rest[:min(max(n, 1), len(rest))]"}, // A token, of which the parser knows the end.
	"cmd/kubewasm/run.go":                                    {"t.failures[:min(len(t.failures), maxFailures)]"},
	"cmd/kubewasm/status.go":                                 {"s.Processes[:mostLogged]"},
	"cmd/kubewasm-controller/internal/rollouts/page.go":      {"rows[:min(len(rows), maxRows)]"},
	"cmd/kubewasm-controller/internal/rollouts/revisions.go": {"numbers[:max(0, len(numbers)-limit)]"},
	"examples/controller/autoscaler/decide.go":               {"text[:min(len(text), 4*n)]"}, // An example imports nothing internal, and makes it valid itself.
	"host/oci/client.go":                                     {"all[:min(len(all), maxReferrers)]"},
	"internal/replay/about.go":                               {"e.Data[:min(len(e.Data), 4<<10)]"}, // Words of ASCII are looked for in it.
	"host/service/internal/message/append.go":                {"b[:start+18]"},
	"host/wasi.go":                                           {"room[:min(left, piece)]"},
	"internal/json/append.go":                                {"s[:min(len(s), utf8.UTFMax)]"}, // One character is decoded.
	"internal/snapmem/image.go":                              {"splits[:maxSpans-1]"},
	"internal/wasmbin/decode.go":                             {"bin[:min(len(bin), len(preamble))]"},
	"sched/wasmextension.go":                                 {"texts[:min(len(texts), 2*maxAttributes)]"},
	"internal/wall/lane_linux.go":                            {"l.text[:min(l.length.Load(), MaxText)]"}, // It bounds a length of the other process.
	"host/wall_linux.go":                                     {"w.words[:maxParams]", "r.Weak[:min(len(r.Weak), maxWeak)]"},
}

// ofNoText are functions that take lists, or bytes that are no text.
var ofNoText = []string{"append", "copy", "Join", "EncodeToString", "Read", "ReadAt", "ReadFull", "Clone", "Equal"}

// cutsOf returns the expressions of a file that slice something to a limit, x[:limit], as text
// would be cut anywhere. A limit is a call of min, a number of two digits, or a name that says so.
// What is ranged over, given to one of ofNoText or made an array is no text.
func cutsOf(name string, source []byte) (found []string, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var noText []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			noText = append(noText, n.X)
		case *ast.CallExpr:
			name := ""
			switch fn := n.Fun.(type) {
			case *ast.Ident:
				name = fn.Name
			case *ast.SelectorExpr:
				name = fn.Sel.Name
			case *ast.ArrayType:
				name = ofNoText[0]
			}
			if slices.Contains(ofNoText, name) {
				for _, arg := range n.Args {
					noText = append(noText, arg)
				}
			}
		}
		s, ok := n.(*ast.SliceExpr)
		if !ok || slices.Contains(noText, n) || s.Low != nil || s.High == nil || !isLimit(s.High) {
			return true
		}
		var text bytes.Buffer
		if err := format.Node(&text, set, s); err == nil {
			found = append(found, text.String())
		}
		return true
	})
	return found, nil
}

// isLimit reports whether an expression is a limit, by its form and its names.
func isLimit(high ast.Expr) bool {
	found := false
	ast.Inspect(high, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.Ident); ok && fn.Name == "min" {
				found = true
			}
		case *ast.BinaryExpr:
			if n.Op == token.SHR || n.Op == token.SHL {
				return false
			}
		case *ast.BasicLit:
			if size, err := strconv.Atoi(n.Value); err == nil && size >= 16 {
				found = true
			}
		case *ast.Ident:
			name := strings.ToLower(n.Name)
			for _, word := range []string{"max", "limit", "most"} {
				found = found || strings.Contains(name, word) && name != "max"
			}
		}
		return !found
	})
	return found
}

// TestTextsAreCutInOnePlace holds that no text is cut at a byte: it would end inside a
// character, and such a label ends a page of metrics.
func TestTextsAreCutInOnePlace(t *testing.T) {
	left := map[string][]string{}
	for name, list := range boundedLists {
		left[name] = slices.Clone(list)
	}
	for name, source := range shipped(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") || strings.HasPrefix(name, "internal/cut/") || bytes.HasPrefix(source, []byte("// Code generated")) {
			continue
		}
		found, err := cutsOf(name, source)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range found {
			if i := slices.Index(left[name], text); i >= 0 {
				left[name] = slices.Delete(left[name], i, i+1)
				continue
			}
			t.Errorf("%s: %s: cut a text by package cut. If it is a list, or bytes that are no text, add it to boundedLists", name, text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		for _, text := range left[name] {
			t.Errorf("%s: %s is no longer there: remove it from boundedLists", name, text)
		}
	}
}

func TestCutsAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"s[:min(len(s), n)]": true, "s[:maxText]": true, "s[:200]": true, "s[:limit-1]": true, "string(b[:c.limits.OutputBytes])": true, "why[:most]": true,
		"s[:i]": false, "s[:len(s)-1]": false, "s[:max(i, 0)]": false, "s[2:200]": false, "s[:8]": false, "s[:n:n]": false,
		"strings.Join(list[:min(len(list), 16)], sep)": false, "hex.EncodeToString(sum[:16])": false, "[16]byte(sum[:16])": false, "func() { for range s[:maxList] {} }": false,
	} {
		found, err := cutsOf("a.go", []byte("package a\nvar x = "+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(found) != 0; got != want {
			t.Errorf("%s is a cut: %t, want %t", text, got, want)
		}
	}
}
