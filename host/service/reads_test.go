package service_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// given returns the bytes that a plugin gets of the object in a field of the request.
func given(t *testing.T, reads []string, field protowire.Number, req *testservice.Message) []byte {
	t.Helper()
	var got []byte
	p, err := testservice.LoadTest(t.Context(), nil, service.Config{Reads: reads, Config: host.Config{Name: "guest", Module: host.ModuleConfig{Source: nativehost.Service{
		Has: func(string) bool { return true },
		Call: func(_ string, request []byte, h nativehost.Objects) ([]byte, codes.Code) {
			for len(request) > 0 {
				number, typ, n := protowire.ConsumeTag(request)
				size := protowire.ConsumeFieldValue(number, typ, request[n:])
				if number == field {
					got = h.Object(abi.Ref(binary.LittleEndian.Uint64(request[n:])))
				}
				request = request[n+size:]
			}
			return nil, codes.OK
		},
	}}}}, asked{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Echo(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return got
}

// Reads name fields of custom resources and of objects that are read whole: no others leave the
// host.
func TestReadsOfCustomResources(t *testing.T) {
	crate := func(kind string) *testservice.Message {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"name": "x", "labels": map[string]any{"a": "b"}},
			"spec": map[string]any{"size": int64(5), "secret": "s3cr3t", "items": []any{map[string]any{"id": "i", "key": "s3cr3t"}}},
		}}
		if kind == "" {
			delete(o.Object, "kind")
		}
		return &testservice.Message{Crate: o}
	}
	const identity = `{"apiVersion":"example.com/v1","kind":"Crate","metadata":{"name":"x"}`
	whole := `{"apiVersion":"example.com/v1","kind":"Crate","metadata":{"labels":{"a":"b"},"name":"x"},"spec":{"items":[{"id":"i","key":"s3cr3t"}],"secret":"s3cr3t","size":5}}`
	for _, test := range []struct {
		name  string
		reads []string
		kind  string
		want  string
	}{
		{"no path", nil, "Crate", whole},
		{"paths of other kinds alone", []string{"pod.metadata.labels"}, "Crate", whole},
		{"a field", []string{"crate.spec.size"}, "Crate", identity + `,"spec":{"size":5}}`},
		{"a field of the elements of a list", []string{"crate.spec.items.id"}, "Crate", identity + `,"spec":{"items":[{"id":"i"}]}}`},
		{"the name alone", []string{"crate.metadata.name"}, "Crate", identity + `}`},
		{"an object of another kind than was meant", []string{"crate.spec.size"}, "Box", strings.Replace(identity, "Crate", "Box", 1) + `}`},
		{"an object without a kind", []string{"crate.spec.size"}, "", strings.Replace(identity, `"kind":"Crate",`, "", 1) + `}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.TrimSpace(string(given(t, test.reads, 43, crate(test.kind)))); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"mode": "fast", "token": "s3cr3t"}}
	got := &corev1.ConfigMap{}
	if err := got.Unmarshal(given(t, []string{"configmap.data[mode]"}, 42, &testservice.Message{ConfigMap: config})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"mode": "fast"}}, got); diff != "" {
		t.Errorf("a ConfigMap (-want +got):\n%s", diff)
	}
}

// A plugin that is told of a change sees the same version, unless the change is in a field that it
// gets.
func TestVersionsOfNarrowedCustomResources(t *testing.T) {
	cfg := config(t)
	cfg.Reads = []string{"crate.spec.size"}
	p := load(t, cfg)
	ref := func(version string, size int64, secret string) abi.Ref {
		t.Helper()
		r, err := p.Ref(&unstructured.Unstructured{Object: map[string]any{
			"kind": "Crate", "metadata": map[string]any{"name": "x", "resourceVersion": version}, "spec": map[string]any{"size": size, "secret": secret},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := ref("1", 5, "a")
	if second := ref("2", 5, "b"); second != first {
		t.Errorf("a change of a field that does not travel: ref %#x after %#x", second, first)
	}
	if third := ref("3", 6, "b"); third == first || third.Slot() != first.Slot() {
		t.Errorf("a change of a field that travels: ref %#x after %#x", third, first)
	}
}

func TestReadsThatLeadNowhere(t *testing.T) {
	for want, reads := range map[string][]string{
		`field path "crat.spec.size": the service has no objects of the kind "crat", only configmap, crate, node, pod`: {"crat.spec.size"},
		`field path "unstructured.spec": the service has no objects of the kind "unstructured"`:                        {"unstructured.spec"},
		`field path "crate.metadata.managedFields": managedFields never travel`:                                        {"crate.metadata.managedFields"},
		`field path "crate.spec..size": a name is empty`:                                                               {"crate.spec..size"},
		`field path "configmap.dat": ConfigMap has no field "dat"; did you mean "data"?`:                               {"configmap.dat"},
		`configuration: 2000 field paths are more than 1000`:                                                           make([]string, 2000),
		`65 names are more than 64`:                 {"crate" + strings.Repeat(".a", 64)},
		`5000006 bytes are more than 1024`:          {"crate." + strings.Repeat("a", 5_000_000)},
		`the key of an entry stands between two br`: {"crate.spec[a"},
	} {
		cfg := config(t)
		cfg.Reads = reads
		if _, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %.300v, want %s", err, want)
		}
	}
}
