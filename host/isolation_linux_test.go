//go:build amd64 || arm64

package host

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// refusedVariable has the number of a system call that the kernel refuses the process and its children.
const refusedVariable = "KUBEWASM_TEST_REFUSED"

// The level of strangers is the operator's, or that of a process. On a system that runs none it is none,
// with the reason in the state of the plugin, while a plugin that demands a process is refused.
func TestIsolationOfStrangers(t *testing.T) {
	t.Setenv(debugVariable, "") // As users have it.
	if self.Emulated() {
		t.Skip("an emulator runs this test")
	}
	if call, err := strconv.Atoi(os.Getenv(refusedVariable)); err == nil {
		refuse(t, uint32(call))
		rt := newWalledRuntime(t, "")
		level, err := rt.Isolation(t.Context())
		if level != IsolationNone || err == nil || call == unix.SYS_SECCOMP && !strings.Contains(err.Error(), "seccomp") {
			t.Fatalf("the level is %q, %v", level, err)
		}
		p := loadLevel(t, rt, level)
		if n, err := ask(t.Context(), p, 5, 0, 0); n != 4 || err != nil {
			t.Errorf("the guest answers %d, %v", n, err)
		}
		if s := p.Stats(); s.Isolation != IsolationNone || len(s.Weaker) != 1 || s.Weaker[0] != err.Error() {
			t.Errorf("the state is %q, %q, want the reason %q", s.Isolation, s.Weaker, err)
		}
		_, err = rt.Load(t.Context(), Config{Name: "demands", Module: ModuleConfig{Bytes: xorModule(2)}, Isolation: IsolationProcess}, Adapter{Kind: abi.KindScheduler})
		if !errors.As(err, new(*LoadError)) {
			t.Errorf("a plugin that demands a process: %v", err)
		}
		return
	}
	for minimum, want := range map[Isolation]Isolation{"": IsolationProcess, IsolationNone: IsolationNone, IsolationProcess: IsolationProcess} {
		t.Run("minimum "+string(minimum), func(t *testing.T) {
			rt := newWalledRuntime(t, minimum)
			level, err := rt.Isolation(t.Context())
			if level != want || err != nil {
				t.Fatalf("the level is %q, %v, want %q", level, err, want)
			}
			p := loadLevel(t, rt, level)
			if inst, err := p.Acquire(t.Context()); err != nil {
				t.Error(err)
			} else {
				if inst.remote != nil != (want == IsolationProcess) {
					t.Errorf("the guest has a process: %v", inst.remote != nil)
				}
				inst.Release()
			}
			if s := p.Stats(); s.Isolation != want || want == IsolationNone && len(s.Weaker) != 0 {
				t.Errorf("the state is %q, %q", s.Isolation, s.Weaker)
			}
			rt.mu.Lock()
			defer rt.mu.Unlock()
			if len(rt.domains) > 1 {
				t.Errorf("there are %d domains", len(rt.domains))
			}
		})
	}
	for name, call := range map[string]int{"files in memory": unix.SYS_MEMFD_CREATE, "seccomp": unix.SYS_SECCOMP, "sockets": unix.SYS_SOCKETPAIR} {
		t.Run("a system without "+name, func(t *testing.T) {
			cmd := self.Command(t, []string{refusedVariable + "=" + strconv.Itoa(call)}, "-test.run=^TestIsolationOfStrangers$", "-test.v")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestIsolationOfStrangers") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// loadLevel loads a plugin with a level.
func loadLevel(t *testing.T, rt *Runtime, level Isolation) *Plugin {
	t.Helper()
	p, err := rt.Load(t.Context(), Config{
		Name: "p", Module: ModuleConfig{Bytes: xorModule(1)}, Isolation: level, Limits: Limits{Timeout: time.Minute},
	}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// refuse has the kernel refuse a system call.
func refuse(t *testing.T, call uint32) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: uint32(unix.SECCOMP_RET_ERRNO | unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		t.Fatal(errno)
	}
}
