package host

import (
	"fmt"
	"runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/cpu"
)

// Engine names the part of wazero that runs guests: the compiler, or the interpreter, which takes
// 50 to 150 times as long for a call and several times the memory for a module. On the interpreter
// a guest traps at a depth of 2,000 nested calls; everything else is the same.
//
// The zero value is the compiler where it can run, and the interpreter elsewhere: on processors
// other than amd64 and arm64, and where the system forbids a process to make memory executable.
// [Runtime.Engine] returns the engine in use.
type Engine string

// The engines.
const (
	// EngineCompiler is the compiler; [NewRuntime] fails where it cannot run.
	EngineCompiler Engine = "compiler"
	// EngineInterpreter is the interpreter. It is the answer to a vulnerability in the compiler,
	// see SECURITY.md.
	EngineInterpreter Engine = "interpreter"
)

// features are the parts of WebAssembly that guests may use, beside version 2.0. Package wasmbin
// guards against wazero's mistakes in them. abi/SPEC.md has a table of them.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTypedFunctionReferences |
	experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// Engine returns the engine that runs the guests. If that is the interpreter although the
// configuration did not choose it, err is the reason: guests are much slower than they could be.
func (rt *Runtime) Engine() (_ Engine, err error) { return rt.engineName, rt.noCompiler }

// chooseEngine returns the engine of a Runtime, and the reason if there is no compiler.
func chooseEngine(want Engine) (_ wazero.RuntimeConfig, is Engine, noCompiler, err error) {
	if want == EngineInterpreter {
		return wazero.NewRuntimeConfigInterpreter(), want, nil, nil
	}
	noCompiler = compilerWorks()
	switch {
	case want != "" && want != EngineCompiler:
		return nil, "", nil, fmt.Errorf("make runtime: engine %q is neither %s nor %s", want, EngineCompiler, EngineInterpreter)
	case noCompiler == nil:
		return wazero.NewRuntimeConfigCompiler(), EngineCompiler, nil, nil
	case want == EngineCompiler:
		return nil, "", nil, fmt.Errorf("make runtime: %w", noCompiler)
	}
	return wazero.NewRuntimeConfigInterpreter(), EngineInterpreter, noCompiler, nil
}

// compilerWorks returns the reason why wazero's compiler cannot run, nil if it can. It follows
// platform.CompilerSupports of wazero, which is internal.
func compilerWorks() error {
	switch runtime.GOOS {
	case "linux", "darwin", "freebsd", "netbsd", "windows":
	case "dragonfly", "solaris", "illumos":
		if runtime.GOARCH == "arm64" {
			return fmt.Errorf("guests are interpreted: the compiler does not support %s/%s", runtime.GOOS, runtime.GOARCH)
		}
	default:
		return fmt.Errorf("guests are interpreted: the compiler does not support %s", runtime.GOOS)
	}
	if runtime.GOARCH != "arm64" && (runtime.GOARCH != "amd64" || !cpu.X86.HasSSE41) {
		return fmt.Errorf("guests are interpreted: the compiler does not support this processor (%s)", runtime.GOARCH)
	}
	if err := makeExecutable(); err != nil {
		return fmt.Errorf("guests are interpreted: memory cannot be made executable, perhaps because of SELinux (execmem), a seccomp profile or systemd's MemoryDenyWriteExecute: %w", err)
	}
	return nil
}
