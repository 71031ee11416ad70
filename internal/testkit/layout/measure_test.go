package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestFiguresStayWithinTheirBounds holds the figures of [Measure]. A figure that falls has its bound
// lowered.
func TestFiguresStayWithinTheirBounds(t *testing.T) {
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	figures, err := Measure("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		t.Logf("%s: %d, bound %d, target %d", f.Name, f.Value, f.Bound, f.Target)
		if f.Value > f.Bound {
			t.Errorf("%s: %d, more than %d\n%s", f.Name, f.Value, f.Bound, strings.Join(f.Items, "\n"))
		}
	}
}

func TestRooms(t *testing.T) {
	for dir, want := range map[string]string{
		"abi/metadata": "abi", "abi/conformance/testdata/quotes": kits, "hooks/hookstest": kits, "hooks/hookmetrics": "hooks",
		"internal/objects/lookup": products, "internal/framework": kits, "internal/testkit/layout": checks, "internal/testkits": products,
		"host/cases": "kits",
	} {
		if got := roomOf(dir); got != want {
			t.Errorf("%s is in %s, want %s", dir, got, want)
		}
	}
}

func TestArrows(t *testing.T) {
	of := func(name string, imports ...string) source {
		for i := range imports {
			imports[i] = module + "/" + imports[i]
		}
		return source{name: name, imports: append(imports, "fmt")}
	}
	got := arrows([]source{
		of("sched/a.go", "abi", "internal/json", "host", "sched/internal/adapters"),
		of("internal/x/a.go", "host", "internal/y"),
		of("internal/x/b.go", "host"),
		of("host/a.go", "guest/view"),
		of("hooks/a.go", "admission"),
		of("sched/schedtest/a.go", "sched", "guest/sched", "internal/harness"),
		of("cmd/kubewasm/a.go", "internal/testkit/x"),
	})
	want := []string{"cmd -> checks, as in cmd/kubewasm/a.go", "hooks -> admission, as in hooks/a.go", "host -> guest, as in host/a.go", "internal -> host, as in internal/x/a.go"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLeaks(t *testing.T) {
	const secret, public = "package secret\ntype T struct{}\ntype Of[X any] struct{}\n", `package public
import "github.com/kubewasm/kubewasm/x/internal/secret"
type Opaque secret.T
type Alias = secret.T
type unexported interface { f(secret.T) }
type Sealed interface { unexported; Name() string }
type Open interface { g(*secret.T) }
type Struct struct { Field []map[string]secret.T; hidden secret.T }
func (s *Struct) Method() func() secret.T { return nil }
func (s *Struct) private() secret.T { return secret.T{} }
func Func(x ...interface{ M(secret.T) }) {}
func Clean(*Opaque) error { return nil }
var Var chan<- secret.Of[int]
`
	set := token.NewFileSet()
	check := func(path, text string, of types.Importer) *types.Package {
		t.Helper()
		f, err := parser.ParseFile(set, path+".go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&types.Config{Importer: of}).Check(path, set, []*ast.File{f}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	hidden := check(module+"/x/internal/secret", secret, nil)
	got := leaksOf(check(module+"/x", public, importerOf(func(string) (*types.Package, error) { return hidden, nil })))
	for i := range got {
		got[i], _, _ = strings.Cut(got[i], ":")
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"x.Alias", "x.Func", "x.Open.g", "x.Struct.Field", "x.Struct.Method", "x.Var"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type importerOf func(path string) (*types.Package, error)

func (f importerOf) Import(path string) (*types.Package, error) { return f(path) }
