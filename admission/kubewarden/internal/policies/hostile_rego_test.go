package policies_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
)

// hostileRego are expressions of policies that ask a builtin for more than the host
// has. text is a megabyte of the object's, and one is a number of it, since the
// compiler would compute what does not depend on the input.
var hostileRego = []struct{ name, expression, want string }{
	{"sprintf, of one argument again and again", `sprintf(concat("", [s | some i in numbers.range(one, 1000); s := "%[1]s"]), [text])`, "too much time or memory"},
	{"sprintf, of a width", `sprintf(concat("", [s | some i in numbers.range(one, 20); s := "%[1]*[2]d"]), [1000000, one])`, "too much time or memory"},
	{"sprintf, of another width", `sprintf(concat("", [s | some i in numbers.range(one, 20); s := "%1000000d"]), [one])`, "too much time or memory"},
	{"regex.replace, by a long text", `regex.replace(text, "a", text)`, "too much time or memory"},
	{"regex.replace, by many references", `regex.replace(text, "a*", concat("", [s | some i in numbers.range(one, 10000); s := "$0"]))`, "too much time or memory"},
	{"regex.find_n, in the square of a text", `regex.find_n("a.*b|a", text, -1)`, "out of fuel"},
	{"regex.split, by a large program", `regex.split(concat("", [s | some i in numbers.range(one, 30); s := "(a{30}){30}"]), text)`, "too much time or memory"},
	{"regex.split, by folded ranges", `regex.split(concat("", ["(?i)[", concat("", [s | some i in numbers.range(one, 300); s := "a-\\x{10ffff}"]), "]"]), "a")`, "too much time or memory"},
	{"regex.split, by many groups", `regex.split(concat("", [s | some i in numbers.range(one, 2000); s := "()"]), text)`, "too much time or memory"},
	{"yaml.unmarshal, of aliases of a long text", `yaml.unmarshal(sprintf("a: &a %s\nb: [%s 1]", [substring(text, 0, 500000), concat("", [s | some i in numbers.range(one, 10000); s := "*a,"])]))`, "too much time or memory"},
	{"yaml.is_valid, of a long text", `yaml.is_valid(concat("", [text, text]))`, "too much time or memory"},
	{"yaml.marshal, of keys in keys", "yaml.marshal(" + strings.Repeat("{", 60) + "one" + strings.Repeat(":1}", 60) + ")", "too much time or memory"},
	{"json.patch, of a value in itself", `json.patch([], [op | some i in numbers.range(one, 100); op := {"op": "copy", "from": "", "path": "/-", "i": i}])`, "too much time or memory"},
	{"graph.reachable_paths", `graph.reachable_paths({i: numbers.range(one, 12) | some i in numbers.range(one, 12)}, [one])`, "too much time or memory"},
	{"net.cidr_contains_matches", `net.cidr_contains_matches(["::/0" | some i in numbers.range(one, 1000)], ["::/0" | some i in numbers.range(one, 1000)])`, "too much time or memory"},
	{"json.marshal_with_options", `json.marshal_with_options(numbers.range(one, 1000), {"indent": text})`, "too much time or memory"},
	{"units.parse, of an exponent", `units.parse(sprintf("1e99999%d", [one]))`, "too much time or memory"},
	{"json.patch, of copies", `json.patch({"a": text}, [op | some i in numbers.range(one, 100); op := {"op": "copy", "from": "/a", "path": "/b"}])`, "too much time or memory"},
	{"numbers.range_step", `numbers.range_step(0, 1000000000, one)`, "too much time or memory"},
	{"numbers.range_step, to an absurd number", `numbers.range_step(0, 1e1000, one)`, "too much time or memory"},
	{"net.cidr_expand", `net.cidr_expand(sprintf("::/%d", [one]))`, "too much time or memory"},
	{"indexof_n", `indexof_n(text, substring(text, 0, 500000))`, "too much time or memory"},
	{"strings.any_prefix_match", `strings.any_prefix_match([s | some i in numbers.range(one, 5000); s := sprintf("%d", [i])], [s | some i in numbers.range(one, 5000); s := sprintf("a%d", [i])])`, "out of fuel"},
	{"object.subset", `object.subset([i | some i in numbers.range(one, 5000)], [i | some i in numbers.range(one, 5000)])`, "too much time or memory"},
	{"strings.split_n", `strings.split_n(concat("", [text, text]), "", 1)`, "too much time or memory"},
	{"hex.decode, to no text", `hex.decode(replace(concat("", [t | some i in numbers.range(one, 6); t := text]), "a", "f"))`, "too much time or memory"},
	{"semver.compare", `semver.compare(concat("", ["1.0.0-", text]), "1.0.0")`, "too much time or memory"},
	{"arguments that are too long together", `strings.count(concat("", [t | some i in numbers.range(one, 6); t := text]), concat("", [t | some i in numbers.range(one, 6); t := text]))`, "have more than 8388608 bytes"},
	{"dear calls in a loop", `count([x | some i in numbers.range(one, 100000); x := regex.replace(text, "(a|aa)*$", "b")])`, "out of fuel"},
}

// A policy that asks for too much fails, and the request is denied. The host is as
// before.
func TestHostileRego(t *testing.T) {
	var source strings.Builder
	source.WriteString("package p\n\ntext := input.request.object.text\n\none := input.request.object.one\n\nmain contains text if input.request.object.case == -2\n\nmain contains \"done\" if input.request.object.case == -1\n")
	for i, test := range hostileRego {
		fmt.Fprintf(&source, "\nmain contains \"done\" if {\n\tinput.request.object.case == %d\n\tx := %s\n\tx != \"nothing\"\n}\n", i, test.expression)
	}
	cfg := config(t, "hostile", regoSource(t, "p/main", source.String()))
	// The fuel ends a call, also where all takes ten times as long.
	cfg.Limits.Instances, cfg.Limits.Timeout = 1, 5*time.Minute
	cfg.Limits.ResultBytes = 8 << 20
	e := admission.NewEngine(load(t, cfg))
	ask := func(i int) string {
		r := e.Validate(t.Context(), requestOf(fmt.Sprintf(`{"case":%d,"one":1,"text":%q}`, i, strings.Repeat("a", 1<<20))))
		if r.Allowed {
			return "allowed"
		}
		return strings.TrimPrefix(r.Result.Message, "hostile: ")
	}
	if got, want := ask(-2), `plugin "hostile": its message, warnings and annotations have 1048576 bytes, more than 262144`; got != want {
		t.Errorf("answer is %.300s\nwant %s", got, want)
	}
	for i, test := range hostileRego {
		t.Run(test.name, func(t *testing.T) {
			var got string
			took := allocated(func() { got = ask(i) })
			if !strings.HasPrefix(got, `plugin "hostile": opa_eval trapped: `) || !strings.Contains(got, test.want) || len(got) > 1000 {
				t.Errorf("answer is %.300s\nwant %s", got, test.want)
			}
			if limit := 512 << 20; took > limit {
				t.Errorf("%d bytes were allocated, more than %d", took, limit)
			}
			if got := ask(-1); got != "done" {
				t.Errorf("the next answer is %.300s", got)
			}
		})
	}
}

// A module may have the exports of a policy and be none.
func TestHostileModulesOfOPA(t *testing.T) {
	tests := []struct{ name, lie, want string }{
		{"a builtin for the argument of a builtin", "0", "builtin 0 is called by what writes the arguments of another"},
		{"an argument without end", "1", "text at 65536 does not end within"},
		{"an argument behind the memory", "2", "address 4294967295 is out of bounds"},
		{"memory that is not there", "3", "out of bounds"},
		{"a builtin that there is not", "4", "there is no builtin 99"},
		{"an argument of brackets without end", "5", "the value is nested more than 1000 deep"},
		{"a number where a text should be", "6", ""},
		{"a builtin again and again", "7", "out of fuel"},
		{"a long farewell", "8", "the policy gave up: aaa"},
		{"very many lines", "9", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var log syncBuilder
			cfg := config(t, "hostile", "testdata/hostile/opa.wasm")
			cfg.GuestConfig = []byte(`{"n":"` + test.lie + `"}`)
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			e := admission.NewEngine(load(t, cfg))
			for range 2 {
				switch got := e.Validate(t.Context(), requestOf(`{}`)); {
				case test.want == "" && !got.Allowed:
					t.Errorf("answer is %+v", got.Result)
				case test.want != "" && (got.Allowed || !strings.Contains(got.Result.Message, test.want) || len(got.Result.Message) > 20_000):
					t.Errorf("answer is %t: %.300v\nwant %s", got.Allowed, got.Result, test.want)
				}
				if n := len(log.String()); n > 1<<20 {
					t.Errorf("the log has %d bytes", n)
				}
			}
		})
	}
}

// A module may have the exports by which data is changed, and lie about them. What it does is
// its own failure, also at the second request.
func TestHostileData(t *testing.T) {
	for _, test := range []struct{ name, lie, want string }{
		{"memory that is not there", "0", "out of bounds"},
		{"objects that it does not take", "1", "the policy does not take the object kubernetes/pods/a/"},
		{"data that it does not change", "2", "the policy does not change its data at kubernetes/pods/a/"},
		{"a change without end", "3", "out of fuel"},
		{"a heap at the end of all memory", "4", "are out of bounds of the guest's memory"},
		{"a heap below its beginning", "5", "the policy"},
		{"a removal that traps", "6", "opa_data trapped: wasm error: unreachable"},
		{"a stash that gives up", "7", "the policy gave up"},
		{"no lie", "8", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := &objects{}
			cfg := config(t, "hostile", "testdata/hostile/data.wasm")
			cfg.GuestConfig = []byte(`{"n":"` + test.lie + `"}`)
			cfg.Cluster, cfg.ContextAwareResources = &keeper{kept: map[string]*objects{"v1/pods": pods}}, []capabilities.Kind{{APIVersion: "v1", Kind: "Pod"}}
			cfg.Limits.Instances, cfg.Limits.Fuel = 1, 50_000_000
			e := admission.NewEngine(load(t, cfg))
			// More than the memory that it has given for the settings.
			large := []byte(`{"x":"` + strings.Repeat("x", 10_000) + `"}`)
			one, two := &host.Object{Namespace: "a", Name: "p", JSON: large}, &host.Object{Namespace: "a", Name: "q", JSON: []byte(`{}`)}
			failed := false
			for _, list := range [][]*host.Object{{one}, {one}, {one, two}, {two}, nil, {one}} {
				pods.set(nil, list...)
				got := e.Validate(t.Context(), requestOf(`{}`))
				if got.Allowed {
					continue
				}
				failed = true
				if test.want == "" || !strings.Contains(got.Result.Message, test.want) || len(got.Result.Message) > 20_000 {
					t.Errorf("answer is %.300v\nwant %s", got.Result, test.want)
				}
			}
			if failed != (test.want != "") {
				t.Errorf("failed is %t", failed)
			}
		})
	}
}
