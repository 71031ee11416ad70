package assemblyscript_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// hostileHost is a host that answers with any bytes.
type hostileHost struct {
	// answer is what each host function answers that hands out bytes.
	answer []byte
	// said are the bytes that the guest handed over last.
	said []byte
}

// instance returns the exported function of a guest, run without limits.
func (h *hostileHost) instance(t *testing.T, file, function string) func() (uint64, error) {
	t.Helper()
	ctx := t.Context()
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt := wazero.NewRuntime(ctx)
	t.Cleanup(func() { rt.Close(context.Background()) })
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]wazero.HostModuleBuilder{}
	for _, f := range compiled.ImportedFunctions() {
		in, name, _ := f.Import()
		if modules[in] == nil {
			modules[in] = rt.NewHostModuleBuilder(in)
		}
		params, results := f.ParamTypes(), f.ResultTypes()
		call := func(_ context.Context, m api.Module, stack []uint64) {
			last := len(params) - 2
			switch {
			case len(results) == 0 && len(params) == 2: // It takes bytes.
				said, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
				if !ok {
					panic("bytes beyond the memory")
				}
				h.said = bytes.Clone(said)
			case len(results) == 1 && results[0] == api.ValueTypeI32 && last >= 0: // It hands bytes out.
				if buf, limit := uint32(stack[last]), uint32(stack[last+1]); uint32(len(h.answer)) <= limit {
					if !m.Memory().Write(buf, h.answer) {
						panic("a buffer beyond the memory")
					}
				}
				stack[0] = uint64(len(h.answer))
			case len(results) == 1:
				stack[0] = 0
			}
		}
		modules[in].NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(call), params, results).Export(name)
	}
	for _, m := range modules {
		if _, err := m.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	instance, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		t.Fatal(err)
	}
	exported := instance.ExportedFunction(function)
	return func() (uint64, error) {
		h.said = nil
		results, err := exported.Call(ctx)
		if err != nil {
			return 0, err
		}
		return results[0], nil
	}
}

// mutated returns a message with some bytes changed, cut off or repeated.
func mutated(r *rand.Rand, message []byte) []byte {
	b := bytes.Clone(message)
	for range 1 + r.IntN(4) {
		if len(b) == 0 {
			return b
		}
		i := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[i] = byte(r.Uint32())
		case 1:
			b[i] ^= 1 << r.IntN(8)
		case 2:
			b = b[:i]
		case 3:
			b = append(b[:i:i], append(bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(12)), b[i:]...)...)
		case 4:
			b = append(b, b[i:]...)
		}
	}
	return b
}

// deep returns a message that has itself in field 11 as often.
func deep(times int) []byte {
	var b []byte
	for range times {
		b = append(binary.AppendUvarint([]byte{11<<3 | 2}, uint64(len(b))), b...)
		if len(b) > 1<<20 {
			break
		}
	}
	return b
}

// TestMalformedMessages lets guests read messages that no host sends. They must not trap, and
// what they answer must depend on nothing but the message.
func TestMalformedMessages(t *testing.T) {
	request := hookmsg.AppendRequest(nil, &hookmsg.Request{
		Stage: hookmsg.PreCreateContainer, Level: hookmsg.LevelContainer,
		PodLabels: map[string]string{"app": "web", "tier": "batch", "é": "ü"},
	})
	values := []byte("\x0a\x05hello\x12\x03\x00\x01\x02\x18\x01\x20\x7f\x28\x09\x35\x01\x02\x03\x04\x39\x00\x00\x00\x00\x00\x00\xf0\x3f\x40\x03\x4a\x03\x01\x02\x03\x52\x05\x0a\x01a\x10\x07\x5a\x04\x0a\x02in\x60\x05")
	for _, test := range []struct {
		name, guest, function string
		message               []byte
	}{
		{"a hook", "conformance/hook", "hook", request},
		{"a service", "conformance/service", "kubewasm.conformance.v1.Quotes/Echo", values},
		{"an admission plugin", "conformance/admission", "validate", []byte("\x0a\x03uid\x12\x0a\x12\x02v1\x1a\x04Pod\x00\x2a\x03web\x3a\x06CREATE")},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &hostileHost{}
			call := h.instance(t, build(t, test.guest), test.function)
			r := rand.New(rand.NewPCG(1, 2))
			for n := range 5_000 {
				m := mutated(r, test.message)
				if n == 0 {
					m = deep(100)
				}
				h.answer = m
				code, err := call()
				if err != nil {
					t.Fatalf("message %x: %v", m, err)
				}
				said := h.said
				h.answer = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(200)) // Other bytes in the same memory.
				if _, err := call(); err != nil {
					t.Fatalf("message %x: %v", h.answer, err)
				}
				h.answer = m
				again, err := call()
				if err != nil || again != code || !bytes.Equal(h.said, said) {
					t.Fatalf("message %x: got %d %x, then %d %x, %v", m, code, said, again, h.said, err)
				}
			}
		})
	}
}

// TestMalformedObjects lets the policy read JSON that no API server sends.
func TestMalformedObjects(t *testing.T) {
	pod := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"app":"web","own\u0065r":"é\n\"x"},"annotations":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"registry.example.com/c:latest","ports":[{"containerPort":80}]},{"name":"d","image":"x"}],"priority":1e3}}`)
	h := &hostileHost{}
	call := h.instance(t, build(t, "testdata/reader"), "validate")
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 5_000 {
		m := mutated(r, pod)
		switch n {
		case 0:
			m = append(bytes.Repeat([]byte(`{"spec":[`), 20_000), '"')
		case 1:
			m = []byte(`{"metadata":{"labels":{"a":"\`)
		}
		h.answer = m
		code, err := call()
		if err != nil {
			t.Fatalf("object %q: %v", m, err)
		}
		said := h.said
		h.answer = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(500))
		if _, err := call(); err != nil {
			t.Fatalf("object %q: %v", h.answer, err)
		}
		h.answer = m
		if again, err := call(); err != nil || again != code || !bytes.Equal(h.said, said) {
			t.Fatalf("object %q: got %d %q, then %d %q, %v", m, code, said, again, h.said, err)
		}
	}
}

// samplePod returns a Pod that may break the policy in any of its ways.
func samplePod(r *rand.Rand) *corev1.Pod {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for range r.IntN(4) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[pick("app", "owner", "tier", "a\"b", "é")] = pick("", "x", "日本", "\\")
	}
	container := func() corev1.Container {
		return corev1.Container{Name: pick("web", "side", "ü"), Image: pick("registry.example.com/", "", "other/", "Registry.example.com/") + pick("web", "\"w\n", "é") + pick("", ":1", ":latest", ":latest2")}
	}
	for range r.IntN(3) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, container())
	}
	for range r.IntN(4) {
		p.Spec.Containers = append(p.Spec.Containers, container())
	}
	if r.IntN(3) == 0 {
		c := container()
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image}})
	}
	return p
}
