package serviceschema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

const kubernetes = `syntax = "proto2"; package k8s.io.api.core.v1; message Pod { optional string a = 1; } message Node {}`

// options are those of abi/options.proto that tests need.
const options = `syntax = "proto2"; package kubewasm; import "google/protobuf/descriptor.proto";
extend google.protobuf.ServiceOptions { optional bool host = 52101; }
extend google.protobuf.MethodOptions { optional string grant = 52101; }`

// compile returns the schema of a .proto file.
func compile(t testing.TB, text string) []byte {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{
		"a.proto":   `syntax = "proto3"; package p; import "k8s.proto"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; ` + text,
		"k8s.proto": kubernetes,
		"github.com/kubewasm/kubewasm/abi/options.proto": options,
	})})}
	files, err := compiler.Compile(t.Context(), "a.proto")
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func service(t testing.TB, text string) protoreflect.ServiceDescriptor {
	t.Helper()
	s, err := serviceschema.Parse(compile(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Find("p.S")
}

// TestEvolution compares an older and a newer schema, in both roles.
func TestEvolution(t *testing.T) {
	const old = `service S { rpc A(M) returns (R); } message M { string a = 1; N n = 2; k8s.io.api.core.v1.Pod pod = 3; } message N { int32 x = 1; } message R { E e = 1; } enum E { Z = 0; }`
	tests := []struct {
		name, newer string
		want        []string
	}{
		{"the same", old, nil},
		{"another method", strings.Replace(old, "returns (R);", "returns (R); rpc B(R) returns (M);", 1), nil},
		{"no method", strings.Replace(old, "rpc A(M) returns (R);", "", 1), nil},
		{"another field", strings.Replace(old, "string a = 1;", "string a = 1; int32 b = 9;", 1), nil},
		{"a field less", strings.Replace(old, "N n = 2;", "", 1), nil},
		{"another value", strings.Replace(old, "Z = 0;", "Z = 0; Y = 1;", 1), nil},
		{"another name of a field", strings.Replace(old, "string a = 1", "string b = 1", 1), nil},
		{"another name of a message", strings.ReplaceAll(old, "N n", "Q n") + " message Q { int32 x = 1; }", nil},
		{"presence", strings.Replace(old, "string a", "optional string a", 1), nil},
		{"a message that contains itself", strings.Replace(old, "int32 x = 1;", "int32 x = 1; N n = 2;", 1), nil},
		{"another number", strings.Replace(old, "string a = 1", "string a = 4", 1), []string{"p.M.a is field"}},
		{"another type", strings.Replace(old, "string a", "bytes a", 1), []string{"field 1 of p.M is "}},
		{"another type in a part", strings.Replace(old, "int32 x", "sint32 x", 1), []string{"field 1 of p.N is "}},
		{"a list", strings.Replace(old, "string a", "repeated string a", 1), []string{"repeated string a in the"}},
		{"a map", strings.Replace(old, "N n", "map<string, N> n", 1), []string{"map<string, message> n in the"}},
		{"another object", strings.Replace(old, "v1.Pod", "v1.Node", 1), []string{"has k8s.io.api.core.v1.Pod", "has k8s.io.api.core.v1.Node"}},
		{"a message instead of an object", strings.Replace(old, "k8s.io.api.core.v1.Pod pod", "N pod", 1), []string{"has k8s.io.api.core.v1.Pod", "has p.N"}},
		{"a stream", strings.Replace(old, "A(M)", "A(stream M)", 1), []string{"p.S.A streams"}},
		{"three changes", strings.NewReplacer("string a = 1", "bytes a = 1", "int32 x", "bool x", "E e", "string e").Replace(old), []string{"field 1 of p.M", "field 1 of p.N", "field 1 of p.R"}},
	}
	// What a tool for .proto files (buf breaking, categories WIRE and WIRE_JSON) calls breaking, and
	// is not in the table above. Names of fields do not travel; those of values are their meaning.
	with := func(parts string) string { return `service S { rpc A(M) returns (M); } ` + parts }
	type evolution = struct {
		old, newer string
		want       []string
	}
	for name, e := range map[string]evolution{
		"values change places": {`message M { E e = 1; } enum E { Z = 0; RED = 1; GREEN = 2; }`, `message M { E e = 1; } enum E { Z = 0; GREEN = 1; RED = 2; }`,
			[]string{"RED of p.E is", "GREEN of p.E is"}},
		"a value has another number":               {`message M { repeated E e = 1; } enum E { Z = 0; RED = 1; }`, `message M { repeated E e = 1; } enum E { Z = 0; RED = 2; }`, []string{"RED of p.E is"}},
		"a value is replaced":                      {`message M { E e = 1; } enum E { Z = 0; RED = 1; }`, `message M { E e = 1; } enum E { Z = 0; BLUE = 1; }`, []string{"value 1 of p.E is"}},
		"a value gets a second name":               {`message M { E e = 1; } enum E { Z = 0; RED = 1; }`, `message M { E e = 1; } enum E { option allow_alias = true; Z = 0; BLUE = 1; RED = 1; }`, nil},
		"a value less":                             {`message M { E e = 1; } enum E { Z = 0; RED = 1; }`, `message M { E e = 1; } enum E { Z = 0; }`, nil},
		"an enumeration in a map":                  {`message M { map<string, E> e = 1; } enum E { Z = 0; RED = 1; }`, `message M { map<string, E> e = 1; } enum E { Z = 0; BLUE = 1; }`, []string{"value 1 of p.E is"}},
		"another enumeration with the same values": {`message M { E e = 1; } enum E { Z = 0; RED = 1; }`, `message M { F e = 1; } enum F { Z = 0; RED = 1; }`, nil},
		"a field moves into a oneof":               {`message M { int32 a = 1; oneof o { int32 b = 2; } }`, `message M { oneof o { int32 a = 1; int32 b = 2; } }`, []string{"field 1 of p.M is in"}},
		"a field moves to another oneof":           {`message M { oneof o { int32 a = 1; int32 b = 2; } oneof q { int32 c = 3; } }`, `message M { oneof o { int32 a = 1; } oneof q { int32 b = 2; int32 c = 3; } }`, []string{"is in the oneof"}},
		"two oneofs become one":                    {`message M { oneof o { int32 a = 1; } oneof q { int32 b = 2; } }`, `message M { oneof o { int32 a = 1; int32 b = 2; } }`, []string{"field 2 of p.M is in the oneof"}},
		"a oneof gets another name":                {`message M { oneof o { int32 a = 1; int32 b = 2; } }`, `message M { oneof p { int32 a = 1; int32 b = 2; } }`, nil},
		"a oneof gets another field":               {`message M { oneof o { int32 a = 1; } }`, `message M { oneof o { int32 a = 1; int32 b = 2; } }`, nil},
		"a oneof of optional fields":               {`message M { optional int32 a = 1; optional int32 b = 2; }`, `message M { oneof o { int32 a = 1; int32 b = 2; } }`, []string{"field 1 of p.M is in", "field 2 of p.M is in"}},
	} {
		t.Run(name, func(t *testing.T) { evolve(t, with(e.old), with(e.newer), e.want) })
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { evolve(t, old, test.newer, test.want) })
	}
}

// evolve compares two schemas in both roles.
func evolve(t *testing.T, old, changed string, want []string) {
	t.Helper()
	older, newer := service(t, old), service(t, changed)
	for what, err := range map[string]error{
		"an old guest on a new host": serviceschema.Compatible(older, newer),
		"a new guest on an old host": serviceschema.Compatible(newer, older),
	} {
		if len(want) == 0 && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", what, err, want)
			}
		}
	}
}

func TestFindMethod(t *testing.T) {
	s, err := serviceschema.Parse(compile(t, `service S { rpc A(M) returns (M); rpc AB(M) returns (M); } service TS { rpc A(M) returns (M); } message M {}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"S/A": "p.S.A", "p.S/A": "p.S.A", "TS/A": "p.TS.A", "S/B": "no method", "A": "no method", "": "no method", "/A": "no method",
	} {
		m, err := s.FindMethod(text)
		if got := fmt.Sprint(m, err); err == nil && string(m.FullName()) != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%q: got %v, want %s", text, got, want)
		}
	}
}

// objects are objects of tests, by their JSON.
type objects struct{ all []string }

func (o *objects) Ref(of protoreflect.FullName, object []byte) (abi.Ref, error) {
	if of == "k8s.io.api.core.v1.Node" {
		return 0, serviceschema.ErrNoObject
	}
	o.all = append(o.all, string(object))
	return abi.Ref(len(o.all)), nil
}

func (o *objects) Object(ref abi.Ref) (any, error) {
	if ref == 0 || int(ref) > len(o.all) {
		return nil, fmt.Errorf("ref %#x names nothing", uint64(ref))
	}
	return json.RawMessage(o.all[ref-1]), nil
}

func (o *objects) Value(_ protoreflect.FullName, value []byte) ([]byte, error) { return value, nil }

func (o *objects) DecodeValue(_ protoreflect.FullName, b []byte) (any, error) { return b, nil }

const everyKind = `service S { rpc A(M) returns (M); }
enum E { Z = 0; ONE = 1; }
message M {
  string s = 1; bytes b = 2; bool t = 3; int32 i = 4; uint64 u = 5; sint32 z = 6; fixed32 f = 7; sfixed64 g = 8; float x = 9; double y = 10;
  E e = 11; M m = 12; repeated M ms = 13; repeated int32 is = 14; map<string, sint64> by = 15; k8s.io.api.core.v1.Pod pod_of = 16; repeated k8s.io.api.core.v1.Pod pods = 17;
  repeated double ys = 18; google.protobuf.Timestamp at = 19; repeated google.protobuf.Duration spans = 20;
}`

func TestMessagesInYAML(t *testing.T) {
	d := service(t, everyKind).Methods().Get(0).Input()
	in := `{"s":"ü","b":"AAE=","t":true,"i":-1,"u":"18446744073709551615","z":-2,"f":3,"g":-4,"x":1.5,"y":-0.25,"e":"ONE",
		"m":{"ms":[{"s":"a"},{}],"is":[1,-1]},"by":{"k":-7},"podOf":{"kind":"Pod"},"pods":[{"n":1},{"n":2}],"ys":[0,"Infinity"],
		"at":"2026-01-02T03:04:05.5+01:00","spans":["1.5s","-2h"]}`
	want := `{"at":"2026-01-02T02:04:05.5Z","b":"AAE=","by":{"k":-7},"e":"ONE","f":3,"g":-4,"i":-1,"m":{"is":[1,-1],"ms":[{"s":"a"},{}]},"podOf":{"kind":"Pod"},"pods":[{"n":1},{"n":2}],"s":"ü","spans":["1.5s","-2h0m0s"],"t":true,"u":18446744073709551615,"x":1.5,"y":-0.25,"ys":[0,"+Inf"],"z":-2}`
	o := &objects{}
	b, err := serviceschema.Encode(d, []byte(in), o)
	if err != nil {
		t.Fatal(err)
	}
	out, err := serviceschema.Decode(d, b, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = serviceschema.Encode(d, []byte(`{"s":1,"i":1.5,"m":[],"is":{},"by":[],"x":"a","e":"TWO","other":1,"at":"noon","spans":[1],"pod_of":1,"podOf":2,"b":"?"}`), o)
	for _, want := range []string{
		"s: want string, not 1", "i: want int32, not 1.5", "m: want a message, not []", "is: want a list", "by: want a map",
		`x: want float, not "a"`, `e: want enum, not "TWO"`, `there is no field "other" in p.M`, "is there twice", "b: want base64",
		`at: parsing time "noon"`, "spans[0]: want a text, not 1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// FuzzSchema parses any bytes as a schema, and compares what is one with another.
func FuzzSchema(f *testing.F) {
	valid := compile(f, everyKind)
	f.Add(valid)
	f.Add([]byte{})
	for _, hostile := range hostileSchemas() {
		section, err := proto.Marshal(hostile.set)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(section)
	}
	host := service(f, everyKind)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := serviceschema.Parse(b)
		if err != nil {
			return
		}
		for _, guest := range s.Services {
			_ = serviceschema.Compatible(guest, host)
			_ = serviceschema.Compatible(host, guest)
		}
		_, _ = s.FindMethod("S/A")
	})
}

// FuzzDecode decodes any bytes by a schema.
func FuzzDecode(f *testing.F) {
	d := service(f, everyKind).Methods().Get(0).Input()
	f.Add([]byte{10, 1, 'a', 98, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := serviceschema.Decode(d, b, &objects{})
		if err != nil {
			return
		}
		if _, err := json.Marshal(out); err != nil {
			t.Error(err)
		}
	})
}
