package bindgen_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen/testdata/kinds"
	"github.com/kubewasm/kubewasm/internal/crontab"
)

// fill sets the fields of a message at random.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(3) == 0 {
			continue
		}
		switch {
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range r.IntN(4) {
				if v, ok := fillValue(r, fd, list.NewElement, depth); ok {
					list.Append(v)
				}
			}
		case fd.IsMap():
			entries := m.Mutable(fd).Map()
			for range r.IntN(4) {
				if v, ok := fillValue(r, fd.MapValue(), entries.NewValue, depth); ok {
					entries.Set(protoreflect.ValueOfString(text(r)).MapKey(), v)
				}
			}
		default:
			if v, ok := fillValue(r, fd, func() protoreflect.Value { return m.NewField(fd) }, depth); ok {
				m.Set(fd, v)
			}
		}
	}
}

func text(r *rand.Rand) string {
	return strings.Repeat("ä\"x", r.IntN(3)) + strings.Repeat("long", r.IntN(2)*50)
}

func fillValue(r *rand.Rand, fd protoreflect.FieldDescriptor, message func() protoreflect.Value, depth int) (protoreflect.Value, bool) {
	n := r.Uint64() >> r.IntN(64)
	if r.IntN(2) == 0 {
		n = -n
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text(r)), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(r))), true
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 0), true
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n)), true
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n)), true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n)), true
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n), true
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32([]float64{0, 1.5, -1e20, math.Inf(1), math.Inf(-1)}[r.IntN(5)])), true
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 1.5, -1e200, math.Inf(1), math.Inf(-1)}[r.IntN(5)]), true
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(r.IntN(values.Len())).Number()), true
	}
	if depth == 0 {
		return protoreflect.Value{}, false
	}
	v := message()
	fill(r, v.Message(), depth-1)
	return v, true
}

// compare compares a message with its view.
func compare(t *testing.T, path string, m protoreflect.Message, v reflect.Value) {
	t.Helper()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		var name strings.Builder
		for _, part := range strings.Split(string(fd.Name()), "_") {
			name.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
		path := path + "." + name.String()
		if fd.HasPresence() {
			if has := v.MethodByName("Has" + name.String()).Call(nil)[0].Bool(); has != m.Has(fd) {
				t.Fatalf("%s: Has is %v", path, has)
			}
			if fd.Kind() == protoreflect.MessageKind && !m.Has(fd) {
				continue // An Inner in an Inner in an Inner, without end.
			}
		}
		got, want := v.MethodByName(name.String()).Call(nil)[0], m.Get(fd)
		switch {
		case fd.IsList():
			if got.Len() != want.List().Len() {
				t.Fatalf("%s has %d elements, want %d", path, got.Len(), want.List().Len())
			}
			for i := range got.Len() {
				compareValue(t, path, fd, want.List().Get(i), got.Index(i))
			}
		case fd.IsMap():
			if n := got.MethodByName("Len").Call(nil)[0].Int(); int(n) != want.Map().Len() {
				t.Fatalf("%s has %d entries, want %d", path, n, want.Map().Len())
			}
			for key, value := range want.Map().Range {
				found := got.MethodByName("Lookup").Call([]reflect.Value{reflect.ValueOf(key.String())})
				if !found[1].Bool() {
					t.Fatalf("%s has no key %q", path, key)
				}
				compareValue(t, path, fd.MapValue(), value, found[0])
			}
		default:
			compareValue(t, path, fd, want, got)
		}
	}
}

func compareValue(t *testing.T, path string, fd protoreflect.FieldDescriptor, want protoreflect.Value, got reflect.Value) {
	t.Helper()
	switch fd.Kind() {
	case protoreflect.MessageKind:
		compare(t, path, want.Message(), got)
	case protoreflect.EnumKind:
		if got.Int() != int64(want.Enum()) {
			t.Fatalf("%s is %d, want %d", path, got.Int(), want.Enum())
		}
	case protoreflect.BytesKind:
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("%s is %q, want %q", path, got.Bytes(), want.Bytes())
		}
	default:
		if got.Interface() != want.Interface() {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
	}
}

func TestEveryKindOfField(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"testdata/kinds"}}}
	files, err := compiler.Compile(t.Context(), "kinds.proto")
	if err != nil {
		t.Fatal(err)
	}
	everything := files[0].Messages().ByName("Everything")
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		m := dynamicpb.NewMessage(everything)
		fill(r, m, 3)
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "protobuf", m, reflect.ValueOf(kinds.EverythingFromProto(raw)))
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "JSON", m, reflect.ValueOf(kinds.EverythingFromJSON(text)))
	}
	if kinds.ColourDarkBlue != -7 || kinds.EverythingInnerStateOpen != 0 || kinds.EverythingInnerStateClosed != 1 {
		t.Error("constants are wrong")
	}
}

func TestFieldsOfACustomResource(t *testing.T) {
	v := crontab.CronTabFromJSON([]byte(`{
		"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "backup", "labels": {"app": "db"}, "generation": 3},
		"spec": {
			"schedule": "0 3 * * *", "replicas": 3, "deadline": null, "threshold": 0.5, "suspend": true, "policy": "Forbid",
			"since": "2026-11-21T03:00:00.5+01:00", "secret": "aGlkZGVu", "port": "http", "memory": "1.5Gi", "unknown": [{}],
			"args": ["-a", "b c"], "codes": [1, -2], "matrix": [[1, 2], []], "labels": {"a": "b"}, "limits": {"low": 1, "high": "90%"},
			"queues": {"fast": {"length": 7}},
			"containers": [{"image": "cron:1", "env": [{"name": "A", "value": "1"}, {"name": "B"}]}, {"image": "log:2"}],
			"template": {"kind": "Pod"}, "anything": 7
		}
	}`))
	s := v.Spec()
	env := s.Containers()[0].Env()
	got := []any{
		v.APIVersion(), v.Kind(), v.Metadata().Name(), v.Metadata().Labels().Get("app"), v.Metadata().Generation(), v.HasStatus(), v.Status().Active(),
		s.Schedule(), s.Replicas(), s.HasDeadline(), s.Threshold(), s.Suspend(), s.Policy() == crontab.CronTabSpecPolicyForbid,
		s.Since().String(), string(s.Secret()), s.Port().String(), s.Memory().String(),
		s.Args(), s.Codes(), string(s.Matrix()[0]), s.Labels().Get("a"), s.Limits().Get("low").IntVal, s.Limits().Get("high").StrVal,
		s.Queues().Get("fast").Length(), len(s.Containers()), env[0].Value(), env[1].Name(), env[1].HasValue(), string(s.Template()), string(s.Anything()),
	}
	want := []any{
		"stable.example.com/v1", "CronTab", "backup", "db", int64(3), false, int64(0),
		"0 3 * * *", int32(3), false, 0.5, true, true,
		"2026-11-21T02:00:00.5Z", "hidden", "http", "1536Mi",
		[]string{"-a", "b c"}, []int64{1, -2}, "[1, 2]", "b", int32(1), "90%",
		int64(7), 2, "1", "B", false, `{"kind": "Pod"}`, "7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
