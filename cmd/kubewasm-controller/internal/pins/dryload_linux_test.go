//go:build amd64 || arm64

package pins

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/host"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// TestLoadDry loads modules in a process of their own.
func TestLoadDry(t *testing.T) {
	const refused = `{"a":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}`
	for _, c := range []struct {
		name, kind, module, spec string
		// want is a part of the reason, empty for a module that can be loaded.
		want string
	}{
		{"a policy", plugin.ClusterAdmissionPolicy, "host/testdata/admission.wasm", `{"match":{},"unknown":1}`, ""},
		{"a policy of a namespace", plugin.AdmissionPolicy, "admission/testdata/asker.wasm", `{"grants":["objects"]}`, ""},
		{"a policy that looks objects up", plugin.ClusterAdmissionPolicy, "admission/testdata/asker.wasm", `{"objects":[{"resource":"pods"}]}`, ""},
		{"a policy that converts", plugin.ClusterAdmissionPolicy, "admission/testdata/converter.wasm", `{"grants":["objects"],"converts":[{"group":"example.com","kind":"CronTab"}]}`, ""},
		{"a policy of Kubewarden's", plugin.ClusterAdmissionPolicy, "admission/kubewarden/internal/policies/testdata/verdict/wapc.wasm", `{"dialect":{"kubewarden":{}}}`, ""},
		{"one that is a program", plugin.ClusterAdmissionPolicy, "admission/kubewarden/internal/policies/testdata/verdict/wasi.wasm", `{}`, ""},
		{"a policy in Rego", plugin.AdmissionPolicy, "admission/kubewarden/internal/policies/testdata/verdict/opa.wasm", `{}`, ""},
		{"a policy of Stellar's", plugin.ClusterAdmissionPolicy, "admission/testdata/verdict/stellar.wasm", `{}`, ""},
		{"a plugin of the scheduler", plugin.SchedulerPlugin, "host/testdata/good.wasm", `{"guestConfig":{"a":"b"}}`, ""},
		{"a configuration that the guest refuses", plugin.SchedulerPlugin, "host/testdata/good.wasm", `{"guestConfig":` + refused + `}`, "configure returned Error"},
		{"a configuration of which the controller knows a part", plugin.SchedulerPlugin, "host/testdata/good.wasm", `{"guestConfig":` + refused + `,"guestConfigFrom":[{}]}`, ""},
		{"a module of another kind", plugin.NodeHook, "host/testdata/admission.wasm", `{}`, "the guest implements no hook function, only: validate"},
		{"no module", plugin.AdmissionPolicy, "go.mod", `{}`, "it is no WebAssembly module"},
		{"no guest", plugin.ClusterAdmissionPolicy, "host/testdata/nomarker.wasm", `{}`, `export "kubewasm_abi_v1" is missing`},
		{"a start that loops", plugin.SchedulerPlugin, "host/testdata/startloops.wasm", `{"limits":{"fuel":1000000}}`, "out of fuel"},
		{"a start that loops for an hour", plugin.SchedulerPlugin, "host/testdata/startloops.wasm", `{"limits":{"fuel":9000000000000000000,"timeout":"1h"}}`, "the module is not loaded within 1s"},
		{"an import without a grant", plugin.ClusterAdmissionPolicy, "admission/testdata/asker.wasm", `{}`, `import k8s.io/api.get_object needs the grant "objects"`},
		{"an import that nobody serves", plugin.SchedulerPlugin, "host/testdata/badimports.wasm", `{}`, "import "},
		{"a grant that there is not", plugin.ClusterAdmissionPolicy, "host/testdata/admission.wasm", `{"grants":["x"]}`, `grant "x" is unknown`},
		{"a memory over the limit", plugin.SchedulerPlugin, "host/testdata/bigmemory.wasm", `{"limits":{"memoryBytes":65536}}`, "memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			module, err := os.ReadFile("../../../../" + c.module)
			if err != nil {
				t.Fatal(err)
			}
			timeout := loadTimeout
			if strings.HasSuffix(c.want, " 1s") {
				timeout = time.Second
			}
			err = loadDry(t.Context(), dryLoad{Kind: c.kind, Name: "p", MemoryBytes: leastMemory}, []byte(c.spec), module, timeout)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("error %v", err)
			case c.want != "" && (!errors.As(err, new(notLoadableError)) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestTheControllerDoesNotParse holds that the controller takes no more memory for a module with many
// exports than for passing its bytes on.
func TestTheControllerDoesNotParse(t *testing.T) {
	const exports = 50_000
	var names []byte
	for i := range exports {
		name := fmt.Sprint("export-", i)
		names = append(append(append(names, byte(len(name))), name...), 0, 0)
	}
	section := func(id byte, content []byte) []byte {
		return append(binary.AppendUvarint([]byte{id}, uint64(len(content))), content...)
	}
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00")
	module = append(module, section(7, append(binary.AppendUvarint(nil, exports), names...))...)
	module = append(module, "\x0a\x04\x01\x02\x00\x0b"...)
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	var err error
	parses := allocated(func() { _, err = host.Inspect(module) })
	if err != nil {
		t.Fatal(err)
	}
	passes := allocated(func() {
		err = loadDry(t.Context(), dryLoad{Kind: plugin.NodeHook, Name: "p", MemoryBytes: leastMemory}, []byte("{}"), module, loadTimeout)
	})
	if !errors.As(err, new(notLoadableError)) {
		t.Errorf("error %v", err)
	}
	t.Logf("%d bytes: %d to parse them, %d to have them loaded", len(module), parses, passes)
	if passes > 256<<10 || parses < 1<<20 {
		t.Errorf("a load takes %d bytes of the controller's memory, and parsing takes %d", passes, parses)
	}
}

// TestDryLoadsEndWithTheController ends the context of a load.
func TestDryLoadsEndWithTheController(t *testing.T) {
	module, err := os.ReadFile("../../../../host/testdata/startloops.wasm")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(time.Second, cancel).Stop()
	spec := []byte(`{"limits":{"fuel":9000000000000000000,"timeout":"1h"}}`)
	if err := loadDry(ctx, dryLoad{Kind: plugin.SchedulerPlugin, Name: "p", MemoryBytes: leastMemory}, spec, module, loadTimeout); err == nil || errors.As(err, new(notLoadableError)) {
		t.Errorf("error %v", err)
	}
}
