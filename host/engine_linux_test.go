package host_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// The process that forbids itself executable memory finds this.
const noExecutable = "KUBEWASM_TEST_NO_EXECUTABLE"

// TestEngineOfAProcessWithoutExecutableMemory holds that guests run on the interpreter there, that a
// program learns it, and that it can refuse.
func TestEngineOfAProcessWithoutExecutableMemory(t *testing.T) {
	if os.Getenv(noExecutable) == "" {
		if rt, err := host.NewRuntime(host.RuntimeConfig{}); err != nil {
			t.Fatal(err)
		} else if engine, why := rt.Engine(); (why == nil) != (engine == host.EngineCompiler) {
			t.Errorf("the engine is %s: %v", engine, why)
		}
		if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
			return // There is nothing to forbid.
		}
		cmd := self.Command(t, []string{noExecutable + "=1"}, "-test.run", "^"+t.Name()+"$", "-test.v")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("error %v\n%s", err, out)
		}
		return
	}
	// PR_SET_MDWE of Linux 6.3, as systemd's MemoryDenyWriteExecute.
	if err := unix.Prctl(unix.PR_SET_MDWE, unix.PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0); errors.Is(err, unix.EINVAL) {
		t.Log("this kernel does not forbid it")
		return
	} else if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	engine, why := rt.Engine()
	if engine != host.EngineInterpreter || why == nil || !strings.Contains(why.Error(), "MemoryDenyWriteExecute") {
		t.Errorf("the engine is %s: %v", engine, why)
	}
	p, err := rt.Load(t.Context(), host.Config{Name: "noop", Module: host.ModuleConfig{File: "testdata/noop.wasm"}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	p.Close(t.Context())
	if rt, err := host.NewRuntime(host.RuntimeConfig{Engine: host.EngineInterpreter}); err != nil {
		t.Error(err)
	} else if engine, why := rt.Engine(); engine != host.EngineInterpreter || why != nil {
		t.Errorf("asked for, the engine is %s: %v", engine, why)
	}
	if _, err := host.NewRuntime(host.RuntimeConfig{Engine: host.EngineCompiler}); err == nil {
		t.Error("a runtime that must compile was made")
	}
}

func TestEngineThatIsNone(t *testing.T) {
	want := `make runtime: engine "jit" is neither compiler nor interpreter`
	if _, err := host.NewRuntime(host.RuntimeConfig{Engine: "jit"}); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
