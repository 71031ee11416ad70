package admissionmsg_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// definition returns a message of admission.proto.
func definition(t testing.TB, name protoreflect.Name) protoreflect.MessageDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../abi"}}}
	files, err := compiler.Compile(t.Context(), "admission.proto")
	if err != nil {
		t.Fatal(err)
	}
	m := files[0].Messages().ByName(name)
	if m == nil {
		t.Fatalf("admission.proto has no message %s", name)
	}
	return m
}

// random makes random messages. Half of all fields stay empty.
type random struct{ *rand.Rand }

func (r random) text() string {
	if r.IntN(2) == 0 {
		return ""
	}
	return strings.Repeat([]string{"ä", "€😀", " text "}[r.IntN(3)], 1+r.IntN(20)) + strconv.Itoa(r.IntN(100))
}

func (r random) texts() []string {
	var list []string
	for range r.IntN(4) {
		list = append(list, r.text())
	}
	return list
}

func (r random) request() *admissionv1.AdmissionRequest {
	req := &admissionv1.AdmissionRequest{
		UID:                types.UID(r.text()),
		Kind:               metav1.GroupVersionKind{Group: r.text(), Version: r.text(), Kind: r.text()},
		Resource:           metav1.GroupVersionResource{Group: r.text(), Version: r.text(), Resource: r.text()},
		SubResource:        r.text(),
		RequestSubResource: r.text(),
		Name:               r.text(),
		Namespace:          r.text(),
		Operation:          admissionv1.Operation(r.text()),
		UserInfo:           authenticationv1.UserInfo{Username: r.text(), UID: r.text(), Groups: r.texts()},
	}
	for i := range r.IntN(20) {
		if i == 0 {
			req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
		req.UserInfo.Extra[r.text()] = r.texts()
	}
	if r.IntN(2) == 0 {
		req.RequestKind = &metav1.GroupVersionKind{Group: r.text(), Version: r.text(), Kind: r.text()}
		req.RequestResource = &metav1.GroupVersionResource{Group: r.text(), Version: r.text(), Resource: r.text()}
	}
	switch r.IntN(3) {
	case 0:
		req.DryRun = new(bool)
	case 1:
		dryRun := true
		req.DryRun = &dryRun
	}
	return req
}

func TestKubernetesReadsWhatAppendRequestWrites(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 1))}
	for range 500 {
		want := r.request()
		data := admissionmsg.AppendRequest([]byte("before"), want)
		if string(data[:6]) != "before" {
			t.Fatalf("AppendRequest wrote over what was there: %.10q", data)
		}
		var got admissionv1.AdmissionRequest
		if err := got.Unmarshal(data[6:]); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("request (-want +got):\n%s", diff)
		}
		if again := admissionmsg.AppendRequest(nil, want); string(again) != string(data[6:]) {
			t.Fatal("equal requests are different bytes")
		}
	}
}

func TestAppendRequestAgreesWithTheDefinition(t *testing.T) {
	request := definition(t, "Request")
	r := random{rand.New(rand.NewPCG(2, 2))}
	for range 500 {
		want := r.request()
		data := admissionmsg.AppendRequest(nil, want)
		m := dynamicpb.NewMessage(request)
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		rejectUnknown(t, m)
		// And back: what another encoder writes of the definition is, for
		// Kubernetes, the same request.
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var got admissionv1.AdmissionRequest
		if err := got.Unmarshal(data); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("request (-want +got):\n%s", diff)
		}
	}
}

// rejectUnknown fails the test if a message has fields that its definition does
// not have.
func rejectUnknown(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if unknown := m.GetUnknown(); len(unknown) != 0 {
		t.Fatalf("%s has unknown fields: %x", m.Descriptor().FullName(), unknown)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if f.MapValue().Message() != nil {
					rejectUnknown(t, v.Message())
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				if f.Message() != nil {
					rejectUnknown(t, v.List().Get(i).Message())
				}
			}
		case f.Message() != nil:
			rejectUnknown(t, v.Message())
		}
		return true
	})
}

func TestParseResultAgreesWithTheDefinition(t *testing.T) {
	definition := definition(t, "Result")
	r := random{rand.New(rand.NewPCG(3, 3))}
	for range 500 {
		m := dynamicpb.NewMessage(definition)
		fill(r, m)
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := admissionmsg.ParseResult(data)
		if err != nil {
			t.Fatal(err)
		}
		clear(data) // It is a guest's memory: nothing may point there.
		if diff := cmp.Diff(resultOf(m), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("result (-want +got):\n%s", diff)
		}
	}
}

func fill(r random, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			for range r.IntN(4) {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(r.text()).MapKey(), protoreflect.ValueOfString(r.text()))
			}
		case f.IsList():
			for range r.IntN(4) {
				if f.Message() == nil {
					m.Mutable(f).List().Append(protoreflect.ValueOfString(r.text()))
					continue
				}
				item := m.Mutable(f).List().NewElement()
				fill(r, item.Message())
				m.Mutable(f).List().Append(item)
			}
		case f.HasPresence() && r.IntN(2) == 0:
		default:
			m.Set(f, protoreflect.ValueOfString(r.text()))
		}
	}
}

// resultOf reads a message by the names of the definition.
func resultOf(m protoreflect.Message) *admissionmsg.Result {
	field := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	r := &admissionmsg.Result{Reason: field(m, "reason").String(), AuditAnnotations: map[string]string{}}
	for list, i := field(m, "fieldErrors").List(), 0; i < list.Len(); i++ {
		e := list.Get(i).Message()
		out := admissionmsg.FieldError{Field: field(e, "field").String(), Type: field(e, "type").String(), Message: field(e, "message").String()}
		if f := e.Descriptor().Fields().ByName("badValue"); e.Has(f) {
			value := e.Get(f).String()
			out.BadValue = &value
		}
		r.FieldErrors = append(r.FieldErrors, out)
	}
	for list, i := field(m, "warnings").List(), 0; i < list.Len(); i++ {
		r.Warnings = append(r.Warnings, list.Get(i).String())
	}
	field(m, "auditAnnotations").Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		r.AuditAnnotations[k.String()] = v.String()
		return true
	})
	return r
}

func TestParseResultRefusesWhatIsMalformed(t *testing.T) {
	text := func(b []byte, field protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	number := func(field protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), 1)
	}
	tests := []struct {
		name, want string
		data       []byte
	}{
		{"cut off in a tag", "read a tag", []byte{0x80}},
		{"cut off in a length", "read field 3", []byte{0x1a}},
		{"cut off in a text", "read field 1", text(nil, 1, "reason")[:4]},
		{"length beyond everything", "read field 3", []byte{0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}},
		{"field number 0", "read a tag", []byte{0x02, 0x00}},
		{"field number beyond the largest", "field number is 1610662398, more than 536870911", []byte{0xf0, 0x9f, 0x98, 0x80, 0x30, 0x30}},
		{"group without end", "read field 9", protowire.AppendTag(nil, 9, protowire.StartGroupType)},
		{"reason as a number", "field reason has wire type 0, want 2", number(1)},
		{"warning as a number", "field warnings has wire type 0, want 2", number(3)},
		{"field error as a number", "field fieldErrors has wire type 0, want 2", number(2)},
		{"annotation as a number", "field auditAnnotations has wire type 0, want 2", number(4)},
		{"reason that is not UTF-8", `field reason is not UTF-8: "a\xff"`, text(nil, 1, "a\xff")},
		{"message of a field error that is not UTF-8", "fieldErrors: field message is not UTF-8", text(nil, 2, string(text(nil, 3, "\xff")))},
		{"field of a field error as a number", "fieldErrors: field field has wire type 0", text(nil, 2, string(number(1)))},
		{"key of an annotation as a number", "auditAnnotations: field key has wire type 0", text(nil, 4, string(number(1)))},
		{"value of an annotation that is not UTF-8", "auditAnnotations: field value is not UTF-8", text(nil, 4, string(text(nil, 2, "\xff")))},
		{"field error that is cut off", "fieldErrors: read field 1", text(nil, 2, string(text(nil, 1, "spec"))[:4])},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, err := admissionmsg.ParseResult(test.data)
			if !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ParseResult = %v, %v; want %q", r, err, test.want)
			}
		})
	}
}

func TestParseResultSkipsUnknownFields(t *testing.T) {
	data := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 7)
	data = protowire.AppendString(protowire.AppendTag(data, 1, protowire.BytesType), "first")
	data = protowire.AppendString(protowire.AppendTag(data, 1, protowire.BytesType), "last")
	data = protowire.AppendFixed64(protowire.AppendTag(data, 98, protowire.Fixed64Type), 7)
	got, err := admissionmsg.ParseResult(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&admissionmsg.Result{Reason: "last"}, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestAppendRequestDoesNotAllocate(t *testing.T) {
	r := random{rand.New(rand.NewPCG(4, 4))}
	request := r.request()
	request.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
	for i := range 16 {
		request.UserInfo.Extra[strconv.Itoa(i)] = []string{"a", "b"}
	}
	buffer := make([]byte, 0, 64<<10)
	if n := testing.AllocsPerRun(100, func() { admissionmsg.AppendRequest(buffer, request) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzParseResult(f *testing.F) {
	r := random{rand.New(rand.NewPCG(5, 5))}
	definition := definition(f, "Result")
	for range 20 {
		m := dynamicpb.NewMessage(definition)
		fill(r, m)
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = append(make([]byte, 0, len(data)), data...)
		got, err := admissionmsg.ParseResult(data)
		if err != nil {
			if got != nil || !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("ParseResult = %v, %v", got, err)
			}
			return
		}
		m := dynamicpb.NewMessage(definition)
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatalf("ParseResult takes %x, protobuf does not: %v", data, err)
		}
		if diff := cmp.Diff(resultOf(m), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("result of %x (-protobuf +got):\n%s", data, diff)
		}
	})
}

func BenchmarkAppendRequest(b *testing.B) {
	request := &admissionv1.AdmissionRequest{
		UID:       "705ab4f5-6393-11e8-b7cc-42010a800002",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name:      "web-7d4b9c6f5d-x2x9z",
		Namespace: "shop",
		Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{
			Username: "system:serviceaccount:kube-system:replicaset-controller",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		},
	}
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer = admissionmsg.AppendRequest(buffer[:0], request)
	}
}
