package conformance_test

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadersInRustSurviveAnyBytes calls the readers of the Rust SDK, as WebAssembly, with objects
// whose bytes were changed, cut or made up. A trap fails the test.
func TestReadersInRustSurviveAnyBytes(t *testing.T) {
	module, err := os.ReadFile(compileRust(t, "hostile"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	// What the module imports of a host is never called.
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		if from == wasi_snapshot_preview1.ModuleName {
			continue
		}
		if builders[from] == nil {
			builders[from] = rt.NewHostModuleBuilder(from)
		}
		builders[from].NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	instance, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	room, walk := instance.ExportedFunction("room"), instance.ExportedFunction("walk")
	read := func(b []byte, json uint64) uint64 {
		t.Helper()
		if len(b) == 0 {
			return 0
		}
		at, err := room.Call(ctx, uint64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		instance.Memory().Write(uint32(at[0]), b)
		got, err := walk.Call(ctx, at[0], uint64(len(b)), json)
		if err != nil {
			t.Fatalf("%v: the bytes are %q", err, b)
		}
		return got[0]
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "é"}},
		Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "c", Image: "image:1", Ports: []corev1.ContainerPort{{HostPort: 80}}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
			Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}},
		},
	}
	object, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if n := read(object, 0); n < 20 {
		t.Fatalf("of a Pod the guest read %d bytes", n)
	}
	r := rand.New(rand.NewPCG(20261123, 0))
	for n := range object {
		read(object[:n], 0)
	}
	for range 5000 {
		b := append([]byte(nil), object...)
		for range r.IntN(8) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		read(b[:r.IntN(len(b))+1], uint64(r.IntN(2)))
		noise := make([]byte, r.IntN(200))
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		read(noise, 0)
		text := make([]byte, r.IntN(200))
		for i := range text {
			text[i] = `{}[]",:\u0a metadatspcl`[r.IntN(23)]
		}
		read(text, 1)
	}
}
