package service_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
)

// hostCall is a call that the guest of testdata/calls.wat makes: the number of a host function
// and its arguments.
type hostCall [7]uint64

// The host functions of services, as the guest numbers them.
const (
	end uint64 = iota
	request
	response
	answer
	serve
	ask
	object
	part
	entry
	functions
)

// program encodes calls for the guest.
func program(calls ...hostCall) []byte {
	var b []byte
	for _, c := range append(calls, hostCall{end}) {
		for _, n := range c {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	return b
}

// callsConfig is the guest with a configuration, which are its calls in services.
func callsConfig(t testing.TB, guestConfig []byte) service.Config {
	t.Helper()
	wasm, err := os.ReadFile("testdata/calls.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if wasm, err = metadata.AddSection(wasm, abi.SchemaSection, testservice.Schema()); err != nil {
		t.Fatal(err)
	}
	return service.Config{Config: host.Config{
		Name: "guest", Module: host.ModuleConfig{Bytes: wasm}, Grants: []string{"ask"}, GuestConfig: guestConfig,
		Limits: host.Limits{Fuel: 10_000_000, Timeout: time.Minute, Instances: 1},
	}}
}

const (
	memory = 32 << 16 // The length of the guest's memory.
	wild   = math.MaxUint32
	data   = 0x1003 // Where the bytes of a request of some length begin.
	room   = 0x10000
	bounds = "are out of bounds"
)

// TestHostileCalls has a guest call each host function of services with arguments that are out
// of place. A call ends as SPEC says, and the next one is served.
func TestHostileCalls(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1", Labels: map[string]string{"app": "shop"}}}
	p, err := testservice.LoadTest(t.Context(), runtime(t), callsConfig(t, nil), asked{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := p.Ref(pod)
	if err != nil {
		t.Fatal(err)
	}
	valid := uint64(ref)
	tests := []struct {
		name  string
		calls []hostCall
		want  string // A part of the error, or "= " and the last result.
	}{
		{"request into nothing", []hostCall{{request, memory, 1}}, "kubewasm/service.request: bytes [2097152, 2097153) " + bounds},
		{"request across the end", []hostCall{{request, memory - 1, 2}}, bounds},
		{"request that wraps", []hostCall{{request, wild, wild}}, bounds},
		{"request anywhere with no room", []hostCall{{request, wild, 0}}, "= 187"},
		{"response from nothing", []hostCall{{response, memory, 1}}, "kubewasm/service.response: bytes"},
		{"response that wraps", []hostCall{{response, wild, 2}}, bounds},
		{"response of all memory", []hostCall{{response, 0, memory}}, "2097152 bytes are more than the limit of 1048576"},
		{"an empty response from anywhere", []hostCall{{response, wild, 0}}, "= 0"},
		{"an answer before a question", []hostCall{{answer, room, 100}}, "= 0"},
		{"answer into nothing", []hostCall{{answer, memory - 8, 9}}, "kubewasm/service.answer: bytes"},
		{"answer that wraps", []hostCall{{answer, 1, wild}}, bounds},
		{"serve in a method", []hostCall{{serve, 64, 22}}, "call kubewasm/service.serve: it belongs to services"},
		{"serve from nothing", []hostCall{{serve, memory, 1}}, "kubewasm/service.serve: bytes"},
		{"a question from nothing", []hostCall{{ask, memory, 4}}, "kubewasm.test.v1.Host.Ask: bytes"},
		{"a question that wraps", []hostCall{{ask, wild - 1, 8}}, bounds},
		{"a question that is too long", []hostCall{{ask, 0, memory}}, "2097152 bytes are more than the limit of 1048576"},
		{"an empty question from anywhere", []hostCall{{ask, wild, 0}, {answer, room, 100}}, "= 11"},
		{"a question that is no message", []hostCall{{ask, 64, 21}}, "call kubewasm.test.v1.Host.Ask: "},
		{"object 0", []hostCall{{object, 0, room, 100}}, "ref 0x0 names no object of the call"},
		{"an object of a version to come", []hostCall{{object, valid + 1<<32, room, 100}}, "names no object of the call"},
		{"an object of another slot", []hostCall{{object, valid + 1, room, 100}}, "names no object of the call"},
		{"an object into nothing", []hostCall{{object, valid, memory, 1}}, "k8s.io/api.object: bytes"},
		{"an object that wraps", []hostCall{{object, valid, wild, wild}}, bounds},
		{"a part of object 0", []hostCall{{part, 0, 1, math.MaxUint64, room, 100}}, "ref 0x0 names no object of the call"},
		{"a part that there is not", []hostCall{{part, valid, wild, math.MaxUint64, room, 100}}, "= 0"},
		{"a part without fields", []hostCall{{part, valid, 1, 0, room, 100}}, "= 0"},
		{"a part into nothing", []hostCall{{part, valid, 1, math.MaxUint64, memory, 100}}, "k8s.io/api.object_part: bytes"},
		{"an entry of object 0", []hostCall{{entry, 0, 11, 128, 3, room, 100}}, "ref 0x0 names no object of the call"},
		{"an entry", []hostCall{{entry, valid, 11, 128, 3, room, 100}}, "= 4"},
		{"an entry that there is not", []hostCall{{entry, valid, 11, 128, 2, room, 100}}, "= 4294967295"},
		{"an entry of no map", []hostCall{{entry, valid, wild, 128, 3, room, 100}}, "= 4294967295"},
		{"a key from nothing", []hostCall{{entry, valid, 11, memory, 3, room, 100}}, "k8s.io/api.object_entry: bytes"},
		{"a key that is too long", []hostCall{{entry, valid, 11, 0, memory, room, 100}}, "2097152 bytes are more than the limit"},
		{"an entry into nothing", []hostCall{{entry, valid, 11, 128, 3, memory, 1}}, "k8s.io/api.object_entry: bytes"},
		{"an entry that there is not into nothing", []hostCall{{entry, valid, 11, 128, 2, memory, 1}}, bounds},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := p.Echo(t.Context(), &testservice.Message{Data: program(test.calls...), Blobs: [][]byte{make([]byte, 60)}, Pod: pod})
			if result, ok := strings.CutPrefix(test.want, "= "); ok {
				if err != nil || fmt.Sprint(got.F64) != result && len(test.calls) == 1 || err == nil && got.F64 == 0 && result != "0" {
					t.Errorf("got %v, %v, want %s", got, err, result)
				}
			} else if err == nil || !strings.Contains(err.Error(), test.want) || !errors.As(err, new(*host.TrapError)) {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
			served(t, p)
		})
	}
}

// served fails the test if the plugin does not serve a call without calls of the host.
func served(t testing.TB, p *testservice.Test) {
	t.Helper()
	if got, err := p.Echo(t.Context(), &testservice.Message{Data: program(hostCall{request, 0, 0})}); err != nil || got.F64 != 114 {
		t.Errorf("the next call: %v, %v", got, err)
	}
}

// TestPluginsReadWhatTheyAreGranted reads an entry of labels and one of annotations, and counts the
// bytes of a spec.
func TestPluginsReadWhatTheyAreGranted(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1", Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"app": "annotated"}},
		Spec:       corev1.PodSpec{NodeName: "n1", SchedulerName: "s"},
	}
	const none = math.MaxUint32
	for name, test := range map[string]struct {
		reads                     []string
		label, annotation, fields uint64
	}{
		"everything":       {nil, 4, 9, 8},
		"another kind":     {[]string{"node.metadata.labels"}, 4, 9, 8},
		"labels":           {[]string{"pod.metadata.labels"}, 4, none, 0},
		"one annotation":   {[]string{"pod.metadata.annotations[app]", "pod.spec.nodeName"}, none, 9, 4},
		"another entry":    {[]string{"pod.metadata.labels[tier]"}, none, none, 0},
		"the name, always": {[]string{"pod.metadata.name"}, none, none, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := callsConfig(t, nil)
			cfg.Reads = test.reads
			p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{})
			if err != nil {
				t.Fatal(err)
			}
			ref, err := p.Ref(pod)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range []struct {
				call hostCall
				want uint64
			}{
				{hostCall{entry, uint64(ref), 11, 128, 3, room, 100}, test.label},
				{hostCall{entry, uint64(ref), 12, 128, 3, room, 100}, test.annotation},
				{hostCall{part, uint64(ref), 2, 1<<10 | 1<<19, room, 100}, test.fields},
				{hostCall{part, uint64(ref), 1, 1 << 1, room, 100}, 5},
			} {
				got, err := p.Echo(t.Context(), &testservice.Message{Data: program(call.call), Pod: pod})
				if err != nil || got.F64 != call.want {
					t.Errorf("%v: got %v, %v, want %d", call.call, got, err, call.want)
				}
			}
		})
	}
	cfg := callsConfig(t, nil)
	cfg.FailurePolicy, cfg.Reads = host.KeepLast, []string{"pod.metadata.lables", "pdo.spec", "configmap.dat", "pod.metadata.labels[a"}
	_, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{})
	for _, want := range []string{
		`failurePolicy is "KeepLast"`, `field path "pod.metadata.lables": ObjectMeta has no field "lables"; did you mean "labels"?`,
		`field path "pdo.spec": the service has no objects of the kind "pdo", only configmap, crate, node, pod`,
		`field path "configmap.dat": ConfigMap has no field "dat"; did you mean "data"?`, `field path "pod.metadata.labels[a": the key of an entry stands between two brackets`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestHostileServices has a guest call the host while it is asked for its services.
func TestHostileServices(t *testing.T) {
	serves := hostCall{serve, 64, 22}
	tests := []struct {
		name  string
		calls []hostCall
		want  string // Empty if it is loaded.
	}{
		{"nothing is served", []hostCall{{answer, room, 0}}, "does not fit the service kubewasm.test.v1.Test of this host: it implements "},
		{"from nothing", []hostCall{{serve, memory, 1}}, bounds},
		{"names that wrap", []hostCall{{serve, wild, 22}}, bounds},
		{"names of all memory", []hostCall{{serve, 0, memory}}, "2097152 bytes are more than the limit"},
		{"names of many bytes", []hostCall{{serve, 0, 1 << 20}}, "call kubewasm/service.serve: 1048576 bytes are more than 16384"},
		{"very many names", []hostCall{{serve, 128, 16384}}, `it implements app, "", "", "", "", "", "", "", and 16370 others`},
		{"bytes that are no name", []hostCall{{serve, 4096, 8}}, `it implements "\x04", "", "", "", "", "", ""`},
		{"a name without an end", []hostCall{{serve, 96, 21}}, ""},
		{"half a name", []hostCall{{serve, 64, 9}}, `it implements "kubewasm."`},
		{"twice, of which the last counts", []hostCall{{serve, 64, 9}, serves}, ""},
		{"twice, and then nothing", []hostCall{serves, {serve, wild, 0}}, "does not fit"},
		{"a response", []hostCall{{response, 64, 22}, serves}, ""},
		{"the request of no call", []hostCall{{request, room, 100}, serves}, ""},
		{"a question", []hostCall{{ask, wild, 0}, serves}, ""},
		{"an object", []hostCall{{object, 1<<32 | 1, room, 100}, serves}, "names no object of the call"},
		{"a part", []hostCall{{part, 1<<32 | 1, 1, 2, room, 100}, serves}, "names no object of the call"},
		{"an entry", []hostCall{{entry, 1<<32 | 1, 11, 128, 3, room, 100}, serves}, "names no object of the call"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := testservice.LoadTest(t.Context(), runtime(t), callsConfig(t, program(test.calls...)), asked{})
			switch {
			case test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			case err == nil:
				served(t, p)
			}
		})
	}
}

// FuzzHostCalls has a guest make calls with any arguments. It gets an answer or ends, and the
// plugin serves the next call.
func FuzzHostCalls(f *testing.F) {
	p, err := testservice.LoadTest(f.Context(), runtime(f), callsConfig(f, nil), asked{})
	if err != nil {
		f.Fatal(err)
	}
	for n := request; n < functions; n++ {
		for _, at := range []uint64{0, 64, memory - 1, memory, wild} {
			f.Add(program(hostCall{n, at, 8, at, 8, at, 8}))
			f.Add(program(hostCall{n, 1<<32 | at, 1, 2, at, 8, 8}))
		}
	}
	f.Add(program(hostCall{ask, data, 50}, hostCall{answer, room, 100}, hostCall{response, room, 50}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "shop"}}}
	f.Fuzz(func(t *testing.T, calls []byte) {
		// Room for the end, and for a request in the memory of the guest.
		calls = slices.Concat(calls[:min(len(calls), 3000)/56*56], program())
		got, err := p.Echo(t.Context(), &testservice.Message{Data: calls, Pod: pod})
		if err != nil && !errors.As(err, new(*host.TrapError)) || err == nil && got == nil {
			t.Errorf("got %v, %v", got, err)
		}
		served(t, p)
	})
}

// TestLoadRefusesASchemaThatHangsItsParser loads a module of 2.4 KB with a schema of public imports
// that are reached along 2^40 ways.
func TestLoadRefusesASchemaThatHangsItsParser(t *testing.T) {
	set := &descriptorpb.FileDescriptorSet{}
	for k := range 40 {
		for _, side := range []string{"a", "b"} {
			f := &descriptorpb.FileDescriptorProto{Name: proto.String(fmt.Sprint(side, k))}
			if k > 0 {
				f.Dependency, f.PublicDependency = []string{fmt.Sprint("a", k-1), fmt.Sprint("b", k-1)}, []int32{0, 1}
			}
			set.File = append(set.File, f)
		}
	}
	section, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	wasm, err := os.ReadFile("testdata/calls.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if wasm, err = metadata.AddSection(wasm, abi.SchemaSection, section); err != nil {
		t.Fatal(err)
	}
	cfg := service.Config{Config: host.Config{Name: "guest", Module: host.ModuleConfig{Bytes: wasm}, Grants: []string{"ask"}}}
	if _, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{}); err == nil || !strings.Contains(err.Error(), "are reached in more than 10000 ways") {
		t.Errorf("got %v", err)
	}
}
