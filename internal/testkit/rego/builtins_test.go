package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/rego/compile"
)

// refused are the builtins that the host does not have, and why.
var refused = map[string]string{
	"http.send":               "the network",
	"net.lookup_ip_addr":      "the network",
	"opa.runtime":             "the environment of a server that there is not",
	"rego.parse_module":       "a parser of Rego",
	"regex.globs_match":       "a search whose time grows with the power of its patterns",
	"strings.render_template": "a language of templates, with loops",
	"providers.aws.sign_req":  "requests to a network",
	"graphql.is_valid":        "a parser of GraphQL", "graphql.parse": "a parser of GraphQL", "graphql.parse_and_verify": "a parser of GraphQL",
	"graphql.parse_query": "a parser of GraphQL", "graphql.parse_schema": "a parser of GraphQL", "graphql.schema_is_valid": "a parser of GraphQL",
}

// varying are the builtins whose results are another each time, or on another day.
var varying = []string{
	"time.now_ns", "rand.intn", "uuid.rfc4122", "crypto.x509.parse_and_verify_certificates", "io.jwt.decode_verify",
	"io.jwt.encode_sign", "io.jwt.encode_sign_raw",
}

// compiledAway are the builtins that no module calls.
var compiledAway = []string{"eq", "assign", "print", "internal.print", "internal.test_case", "rego.metadata.chain", "rego.metadata.rule", "walk"}

// dispatcher is a policy that calls the builtin that the object of the request names, by
// its place in names.
type dispatcher struct {
	engine *admission.Engine
	names  []string
	// hosts are those of the builtins that the module does not have in itself.
	hosts []string
}

// source is the policy. Its arguments are {"j": a value}, {"s": the elements of a set}, or
// {"l": a list of these}.
func (d *dispatcher) source() string {
	var b strings.Builder
	b.WriteString(`package d

flat(x) := x.j

flat(x) := {e | some e in x.s} if is_array(x.s)

arg(i) := flat(input.request.object.args[i])

arg(i) := [flat(e) | some e in input.request.object.args[i].l] if is_array(input.request.object.args[i].l)

out(x) := json.marshal({"type": type_name(x), "value": x})
`)
	for i, name := range d.names {
		arity := ast.BuiltinMap[name].Decl.Arity()
		args := make([]string, arity)
		for j := range args {
			args[j] = fmt.Sprintf("arg(%d)", j)
		}
		call := fmt.Sprintf("%s(%s)", name, strings.Join(args, ", "))
		if infix := ast.BuiltinMap[name].Infix; infix != "" {
			call = strings.Join(args, " "+infix+" ")
		}
		fmt.Fprintf(&b, "\nmain contains out(x) if {\n\tinput.request.object.f == %d\n\tx := %s\n}\n", i, call)
	}
	return b.String()
}

var dispatch = sync.OnceValues(func() (*dispatcher, error) {
	d := &dispatcher{}
	for _, b := range ast.Builtins {
		if refused[b.Name] != "" || b.Relation || slices.Contains(compiledAway, b.Name) || slices.Contains(varying, b.Name) ||
			b.IsDeprecated() || b.Infix != "" || strings.HasPrefix(b.Name, "internal.") || b.Decl.Result() == nil {
			continue
		}
		d.names = append(d.names, b.Name)
	}
	dir, err := os.MkdirTemp("", "rego")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "d.rego")
	if err := os.WriteFile(file, []byte(d.source()), 0o600); err != nil {
		return nil, err
	}
	module, err := compile.File(context.Background(), "d/main", file)
	if err != nil {
		return nil, err
	}
	for _, name := range d.names {
		if bytes.Contains(module, []byte("\x00"+name+"\x00")) || bytes.Contains(module, []byte("\""+name+"\"")) {
			d.hosts = append(d.hosts, name)
		}
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		return nil, err
	}
	cfg := host.Config{Name: "d", Module: host.ModuleConfig{Bytes: module}}
	cfg.Limits.Timeout = time.Minute
	plugin, err := admission.Load(context.Background(), rt, admission.PluginConfig{Dialects: dialects(), Config: cfg})
	if err != nil {
		return nil, err
	}
	d.engine = admission.NewEngine(plugin)
	return d, nil
})

// encodeArg writes an argument as the policy reads it; ok is false if it cannot.
func encodeArg(v ast.Value, depth int) (arg map[string]any, ok bool) {
	switch v := v.(type) {
	case ast.Set:
		elements := []any{}
		ok = true
		v.Foreach(func(e *ast.Term) {
			j, plain := encodeJSON(e.Value)
			elements, ok = append(elements, j), ok && plain
		})
		return map[string]any{"s": elements}, ok
	case *ast.Array:
		if j, ok := encodeJSON(v); ok {
			return map[string]any{"j": j}, true
		}
		list := []any{}
		ok = depth == 0
		v.Foreach(func(e *ast.Term) {
			if ok {
				var inner map[string]any
				inner, ok = encodeArg(e.Value, 1)
				list = append(list, inner)
			}
		})
		return map[string]any{"l": list}, ok
	}
	j, ok := encodeJSON(v)
	return map[string]any{"j": j}, ok
}

// encodeJSON returns the JSON of a value that has no sets and no other keys than strings.
func encodeJSON(v ast.Value) (any, bool) {
	plain := true
	ast.WalkTerms(ast.NewTerm(v), func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case ast.Set:
			plain = false
		case ast.Object:
			v.Foreach(func(k, _ *ast.Term) {
				if _, ok := k.Value.(ast.String); !ok {
					plain = false
				}
			})
		}
		return !plain
	})
	if !plain {
		return nil, false
	}
	j, err := ast.JSON(v)
	if err == nil {
		_, err = json.Marshal(j) // A number may be none in JSON.
	}
	return j, err == nil
}

// answer is the result of a builtin, nil if it is undefined.
type answer struct {
	Type  string `json:"type"`
	Value any    `json:"value"`
}

// here calls a builtin in the module. failure is the message of a policy that failed.
func (d *dispatcher) here(t testing.TB, name string, args []map[string]any) (result *answer, failure string) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"f": slices.Index(d.names, name), "args": args})
	if err != nil {
		t.Fatal(err)
	}
	r := &admissionv1.AdmissionRequest{UID: "u"}
	r.Object.Raw = raw
	got := d.engine.Validate(t.Context(), r)
	switch {
	case got.Allowed:
		return nil, ""
	case got.Result.Code == 500:
		return nil, got.Result.Message
	}
	decoder := json.NewDecoder(strings.NewReader(strings.TrimPrefix(got.Result.Message, "d: ")))
	decoder.UseNumber()
	if err := decoder.Decode(&result); err != nil {
		t.Fatalf("%s: %v", got.Result.Message, err)
	}
	return result, ""
}

// there calls a builtin of OPA's. ok is false if it panics.
func there(t testing.TB, name string, operands []*ast.Term) (result *answer, ok bool) {
	t.Helper()
	defer func() { ok = recover() == nil }()
	err := topdown.GetBuiltin(name)(topdown.BuiltinContext{
		Context: t.Context(), Metrics: metrics.New(), Cache: builtins.Cache{}, Time: ast.NumberTerm("1"), Capabilities: ast.CapabilitiesForThisVersion(),
	}, operands, func(term *ast.Term) error {
		j, err := ast.JSON(term.Value)
		if err != nil {
			return err
		}
		result = &answer{ast.ValueName(term.Value), j}
		return nil
	})
	if err != nil {
		return nil, true
	}
	return result, true
}

// same reports whether two results are the same value.
func same(a, b *answer) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Type != b.Type {
		return false
	}
	x, y := canonical(a.Value), canonical(b.Value)
	if a.Type == "set" {
		x, y = sortedSet(x), sortedSet(y)
	}
	return reflect.DeepEqual(x, y)
}

func sortedSet(v any) []string {
	var list []string
	for _, e := range v.([]any) {
		raw, _ := json.Marshal(e)
		list = append(list, string(raw))
	}
	slices.Sort(list)
	return list
}

// canonical writes numbers in one way.
func canonical(v any) any {
	switch v := v.(type) {
	case json.Number:
		if f, _, err := big.ParseFloat(string(v), 10, 200, big.ToNearestEven); err == nil {
			return f.Text('g', 40)
		}
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = canonical(e)
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k, e := range v {
			m[k] = canonical(e)
		}
		return m
	}
	return v
}

// call is a call of a builtin that a test of OPA's makes.
type call struct {
	name     string
	operands []*ast.Term
}

// recorded returns the calls of builtins in OPA's own tests.
func recorded(t *testing.T, d *dispatcher) []call {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/open-policy-agent/opa").Output()
	if err != nil {
		t.Fatal(err)
	}
	var calls []call
	seen := map[string]bool{}
	for _, name := range d.hosts {
		original := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(bctx topdown.BuiltinContext, all []*ast.Term, iter func(*ast.Term) error) error {
			operands := all[:ast.BuiltinMap[name].Decl.Arity()]
			if key := fmt.Sprint(name, operands); !seen[key] {
				seen[key] = true
				calls = append(calls, call{name, operands})
			}
			return original(bctx, all, iter)
		})
		defer topdown.RegisterBuiltinFunc(name, original)
	}
	for _, test := range cases.MustLoad(filepath.Join(strings.TrimSpace(string(out)), "v1/test/cases/testdata/v1")).Sorted().Cases {
		if strings.Contains(test.Filename, "netlookup") || strings.Contains(test.Filename, "providers-aws") {
			continue
		}
		options := []func(*rego.Rego){rego.Query(test.Query)}
		for i, module := range test.Modules {
			options = append(options, rego.Module(fmt.Sprintf("%d.rego", i), module))
		}
		if test.Data != nil {
			options = append(options, rego.Store(inmem.NewFromObject(*test.Data)))
		}
		switch {
		case test.InputTerm != nil:
			if term, err := ast.ParseTerm(*test.InputTerm); err == nil {
				options = append(options, rego.ParsedInput(term.Value))
			}
		case test.Input != nil:
			options = append(options, rego.Input(*test.Input))
		}
		_, _ = rego.New(options...).Eval(t.Context()) // Many tests are of errors.
	}
	return calls
}

// Every builtin that is not refused answers what OPA's own does in OPA's own tests.
func TestBuiltinsAnswerAsInOPA(t *testing.T) {
	d, err := dispatch()
	if err != nil {
		t.Fatal(err)
	}
	compared, wrong, beyond := map[string]int{}, map[string]int{}, 0
	for _, c := range recorded(t, d) {
		args := make([]map[string]any, len(c.operands))
		ok := true
		for i := range args {
			var encodes bool
			args[i], encodes = encodeArg(c.operands[i].Value, 0)
			ok = ok && encodes
		}
		if !ok {
			continue
		}
		want, _ := there(t, c.name, c.operands)
		got, failure := d.here(t, c.name, args)
		compared[c.name]++
		switch {
		case failure != "" && strings.Contains(failure, "too much time or memory"):
			beyond++
			t.Logf("%s(%.200s) is more than the host does", c.name, fmt.Sprint(c.operands))
		case failure != "":
			t.Errorf("%s(%.200s): %s", c.name, fmt.Sprint(c.operands), failure)
		case !same(got, want):
			if wrong[c.name]++; wrong[c.name] <= 8 {
				t.Errorf("%s(%.400s)\n is %s\nwant %s", c.name, fmt.Sprint(c.operands), show(got), show(want))
			}
		}
	}
	total := 0
	for _, n := range compared {
		total += n
	}
	t.Logf("%d calls of %d builtins, %d are more than the host does", total, len(compared), beyond)
	for name, n := range wrong {
		t.Logf("%s: %d wrong of %d", name, n, compared[name])
	}
}

func show(a *answer) string {
	if a == nil {
		return "undefined"
	}
	raw, _ := json.Marshal(a.Value)
	return fmt.Sprintf("%s %.600s", a.Type, raw)
}

// FuzzBuiltins: builtins answer what OPA's own do, whatever they are asked, unless it is
// more than the host does. Arguments are JSON, and {"set": […]} is a set.
func FuzzBuiltins(f *testing.F) {
	d, err := dispatch()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range seeds {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, arguments string) {
		if !slices.Contains(d.hosts, name) || len(arguments) > 2000 {
			return
		}
		// A schema that refers to itself overflows OPA's stack.
		if strings.Contains(arguments, "$ref") && !slices.Contains(seeds, [2]string{name, arguments}) {
			return
		}
		var list []any
		decoder := json.NewDecoder(strings.NewReader(arguments))
		decoder.UseNumber()
		if decoder.Decode(&list) != nil || len(list) != ast.BuiltinMap[name].Decl.Arity() {
			return
		}
		operands, args := make([]*ast.Term, len(list)), make([]map[string]any, len(list))
		for i, v := range list {
			value, err := ast.InterfaceToValue(v)
			if o, ok := v.(map[string]any); ok && o["set"] != nil && len(o) == 1 {
				if elements, ok := o["set"].([]any); ok && err == nil {
					set := ast.NewSet()
					for _, e := range elements {
						set.Add(ast.NewTerm(ast.MustInterfaceToValue(e)))
					}
					value = set
				}
			}
			if err != nil {
				return
			}
			operands[i] = ast.NewTerm(value)
			var ok bool
			if args[i], ok = encodeArg(value, 0); !ok {
				return
			}
		}
		got, failure := d.here(t, name, args)
		for _, most := range []string{"too much time or memory", "out of fuel", "elsewhere"} {
			if strings.Contains(failure, most) {
				return // OPA may take all the memory that there is.
			}
		}
		want, ok := there(t, name, operands)
		switch {
		case !ok: // OPA panics.
		case failure != "":
			t.Errorf("%s(%s): %s", name, arguments, failure)
		case name == "json.verify_schema" && got != nil && want != nil:
			// Why a schema cannot be read is said in other words.
			if got.Value.([]any)[0] != want.Value.([]any)[0] {
				t.Errorf("%s(%s)\n is %s\nwant %s", name, arguments, show(got), show(want))
			}
		case name == "json.match_schema" && got != nil && want != nil:
			// OPA's order of mistakes is that of a map.
			x, y := got.Value.([]any), want.Value.([]any)
			if x[0] != y[0] || !slices.Equal(sortedSet(canonical(x[1])), sortedSet(canonical(y[1]))) {
				t.Errorf("%s(%s)\n is %s\nwant %s", name, arguments, show(got), show(want))
			}
		case !same(got, want):
			t.Errorf("%s(%s)\n is %s\nwant %s", name, arguments, show(got), show(want))
		}
	})
}

// seeds are calls of builtins that were, or might be, answered in another way.
var seeds = [][2]string{
	{"semver.is_valid", `["v1.2.3-rc.1+5"]`}, {"semver.is_valid", `[1]`}, {"semver.compare", `["v1.0.0-a.10", "1.0.0-a.9.x"]`}, {"semver.compare", `["1.0.0-99999999999999999999", "1.0.0-9"]`},
	{"units.parse", `["1e3Ki"]`}, {"units.parse", `["1.5e-2m"]`}, {"units.parse", `["\"10M\""]`}, {"units.parse", `["1E"]`}, {"units.parse", `["+5kI"]`}, {"units.parse_bytes", `["1e3KiB"]`}, {"units.parse_bytes", `["5b"]`}, {"units.parse_bytes", `["-1.5gb"]`},
	{"json.patch", `[{"a": [1, 2]}, [{"op": "add", "path": "a/-", "value": 3}, {"op": "move", "from": "a/0", "path": "b"}]]`},
	{"json.patch", `[{"a": {"b": 1}}, [{"op": "replace", "path": "", "value": [1]}, {"op": "copy", "from": "/0", "path": "/0"}, {"op": "test", "path": ["0"], "value": 1}]]`},
	{"json.patch", `[[1, [2]], [{"op": "remove", "path": "/1/0"}, {"op": "add", "path": [1, 0], "value": null}]]`}, {"json.patch", `[{"set": [1, "a"]}, [{"op": "add", "path": [2], "value": 2}, {"op": "remove", "path": "a"}]]`},
	{"yaml.unmarshal", `["a: yes\nb: on\nc: 0o14\nd: 1_000\ne: 2023-01-01\nf: .inf"]`}, {"yaml.unmarshal", `["on: 1\n1: x\n1.5: y\ntrue: z\n"]`}, {"yaml.unmarshal", `["a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n  x: 3\n"]`}, {"yaml.unmarshal", `["a: 1\n---\nb: 2\n"]`},
	{"yaml.unmarshal", `["a: 0x1F\nb: 010\nc: 1e3\nd: ~\ne: !!str 5\nf: !!binary aGk=\na: 7"]`}, {"yaml.is_valid", `["  a:\nb: 1"]`}, {"yaml.marshal", `[{"a": ["yes", 1, 1.5, null, "x: y", "", "2023-01-01"], "b": {}}]`},
	{"sprintf", `["%5d|%-8s|%08.3f|%+d|%x|%q|%v|%t", [1, "a", 2.5, 3, "hi", "q", [1], true]]`}, {"sprintf", `["%*d %.*f %[2]*[1]d", [5, 1, 2, 3.14159]]`}, {"sprintf", `["%2000d", [1]]`}, {"sprintf", `["%d %d", [1e3, 1.0]]`}, {"sprintf", `["%s", [{"a": null}]]`},
	{"regex.template_match", `["urn:foo:{.*}", "urn:foo:bar:baz", "{", "}"]`}, {"regex.template_match", `["<<a>>b", "x", "<", ">"]`}, {"regex.split", `["a*", "baac"]`}, {"regex.replace", `["foo", "(o)", "$1$1x"]`}, {"regex.find_n", `["a.", "paranormal", 2]`},
	{"uuid.parse", `["00000000-0000-1000-8000-00000000cafe"]`}, {"uuid.parse", `["urn:uuid:000003e8-48b9-21ee-b200-325096b39f47"]`}, {"time.diff", `[1689178496000000000, [1500000000000000000, "Europe/Berlin"]]`}, {"time.diff", `[[1706659200000000000, "UTC"], 1709251199000000000]`},
	{"time.parse_duration_ns", `["1y2w3d4h5ms"]`}, {"time.parse_duration_ns", `["-1.5d"]`}, {"time.add_date", `[1700000000000000000, 1, -13, 40]`}, {"time.format", `[[1700000000000000000, "America/New_York", "RFC1123"]]`}, {"time.date", `[[1.5]]`}, {"time.clock", `[[]]`},
	{"net.cidr_merge", `[["10.0.0.0/25", "10.0.0.128/25", "10.0.1.0/24", "192.168.0.1", "2001:db8::/33", "2001:db8:8000::/33"]]`}, {"net.cidr_merge", `[["0.0.0.0/0", "::/0"]]`}, {"net.cidr_contains_matches", `["10.0.0.0/8", ["10.1.0.0/16", ["192.168.0.1", "x"]]]`}, {"net.cidr_contains_matches", `[{"a": "::/96"}, {"b": "::ffff:1.2.3.4"}]`}, {"net.cidr_expand", `["::ffff:1.2.3.0/126"]`}, {"net.cidr_is_valid", `["10.0.0.1/33"]`},
	{"json.match_schema", `[{"a": 1, "b": ["x"]}, {"properties": {"a": {"type": "string"}, "b": {"items": {"minLength": 2, "pattern": "^y"}}}, "required": ["c"], "additionalProperties": false}]`},
	{"json.match_schema", `[[1, 2.5, "a"], {"items": [{"type": "integer"}, {"multipleOf": 2, "maximum": 1}], "additionalItems": {"enum": [1, "b"]}, "uniqueItems": true, "contains": {"const": 9}}]`},
	{"json.match_schema", `[{"n": {"n": 5}}, {"$ref": "#/definitions/n", "definitions": {"n": {"properties": {"n": {"anyOf": [{"$ref": "#/definitions/n"}, {"type": "null"}]}}, "type": "object"}}}]`},
	{"json.match_schema", `[{"a": 3}, {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}, "dependencies": {"a": ["d"]}, "propertyNames": {"maxLength": 0}, "patternProperties": {"^a": {"exclusiveMinimum": 3}}}]`},
	{"json.match_schema", `[{"a": "x@y.z", "b": "10.0.0.256"}, {"properties": {"a": {"format": "email"}, "b": {"format": "ipv4"}}, "oneOf": [{}, true], "not": {}, "allOf": [false, {"minProperties": 3}]}]`}, {"json.match_schema", `["{\"a\": 1}", "{\"type\": [\"array\", \"null\"]}"]`},
	{"json.match_schema", `[{}, {"oneOf": [], "anyOf": [], "allOf": []}]`}, {"json.match_schema", `[{"": {"": "0"}}, {"properties": {"": {"properties": {"": {"format": "ipv4"}}}}}]`}, {"json.verify_schema", `[{"type": "odd"}]`}, {"json.verify_schema", `[{"required": "a"}]`}, {"json.verify_schema", `[{"minimum": 1, "exclusiveMinimum": true, "multipleOf": 0}]`}, {"json.marshal_with_options", `[{"a": [1, {"b": "<"}], "c": {}}, {"indent": "  ", "prefix": "> "}]`}, {"json.marshal_with_options", `[[1], {"pretty": false, "indent": "x"}]`},
	{"graph.reachable_paths", `[{"a": ["b", "c"], "b": ["a", "d"], "c": []}, ["a", "x"]]`}, {"object.subset", `[{"a": [1, 2, 3], "b": {"c": 1}}, {"a": [2, 3], "b": {}}]`}, {"object.subset", `[[1, 1], {"set": [1, 2]}]`}, {"object.subset", `[[], {"set": []}]`},
	{"uri.parse", `["https://u:p@example.com:8080/a%2fb?q=1#f"]`}, {"uri.is_valid", `[":"]`}, {"io.jwt.decode", `["eyJhbGciOiJub25lIn0.eyJhIjoxfQ."]`}, {"io.jwt.verify_hs256", `["eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.x", "secret"]`},
	{"urlquery.decode_object", `["a=1&b=%20&a=2;c"]`}, {"urlquery.encode_object", `[{"a": ["x", "y z"], "b": "&"}]`}, {"strings.split_n", `["a,b,c", ",", -2]`}, {"strings.any_prefix_match", `[["ab"], {"set": ["a", "x"]}]`}, {"indexof_n", `["sad äöü", "ä"]`}, {"hex.decode", `["fF0g"]`}, {"numbers.range_step", `[0, 10, 1e20]`}, {"glob.quote_meta", `["*.a[b]{c}\\?-"]`},
	{"crypto.parse_private_keys", `["x"]`}, {"crypto.x509.parse_certificates", `["aGk="]`}, {"base64url.encode_no_pad", `["ä?>"]`},
}
