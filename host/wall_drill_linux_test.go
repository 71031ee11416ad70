//go:build amd64 || arm64

package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
	"github.com/kubewasm/kubewasm/internal/wall"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// The planted hole: in this test binary, and in its children, the import drill.try runs machine code
// of the test's choice in the process of the guest. It begins before the init function that would
// serve otherwise.
var _ = func() int {
	wall.Main(wall.Guest, func(child *wall.Child) {
		serveWall(child, func(fn wasmbin.Extern, n int) api.GoModuleFunc {
			if fn.Module != "drill" {
				return walledFunction(fn, n)
			}
			return func(ctx context.Context, _ api.Module, stack []uint64) {
				stack[0] = tryOut(ctx.(*walledContext).walled, stack[0], stack[1])
			}
		})
	})
	return 0
}()

// drillImports are the imports of the guest where it runs in this process.
var drillImports = []Import{{
	Module: "drill", Name: "try", Params: []abi.ValueType{abi.I64, abi.I64}, Results: []abi.ValueType{abi.I64},
	Func: func(_ *Instance, stack []uint64) { stack[0] = tryOut(nil, stack[0], stack[1]) },
}}

// secret is a Secret of the parent's.
var secret [32]byte

const secretText = "the parent's Secret, 32 bytes..."

// scratch is memory for system calls.
var scratch [4096]byte

// attempt is a way out. It returns 0 if it succeeds, and an error number otherwise. w is nil in the
// parent, and arg a number that the row wants: the parent's process id, or a port.
type attempt struct {
	name string
	try  func(w *walled, arg uint64) uint64
	// lies is set if the attempt ends the process, or has the parent end it.
	lies bool
}

// call returns an attempt that makes a system call: it succeeds if the call does.
func call(name string, number uintptr, args ...func(arg uint64) uintptr) attempt {
	return attempt{name: name, try: func(_ *walled, arg uint64) uint64 {
		var a [6]uintptr
		for i, f := range args {
			a[i] = f(arg)
		}
		_, _, errno := syscall.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		return uint64(errno)
	}}
}

func is(n uintptr) func(uint64) uintptr { return func(uint64) uintptr { return n } }

func given(arg uint64) uintptr { return uintptr(arg) }

// text returns the address of a text, which may have the argument in it.
func text(format string) func(uint64) uintptr {
	return func(arg uint64) uintptr {
		s := format
		if strings.Contains(s, "%d") {
			s = fmt.Sprintf(s, arg)
		}
		b := append([]byte(s), 0)
		return uintptr(unsafe.Pointer(&b[0]))
	}
}

func room(uint64) uintptr { return uintptr(unsafe.Pointer(&scratch[0])) }

const here = ^uintptr(99) // AT_FDCWD, -100.

// The first three succeed in the parent's own process.
var attempts = []attempt{
	{name: "read a Secret of the parent's", try: func(*walled, uint64) uint64 {
		if string(secret[:]) == secretText {
			return 0
		}
		return uint64(unix.EFAULT)
	}},
	call("open a file", unix.SYS_OPENAT, is(here), text("/etc/passwd"), is(unix.O_RDONLY)),
	{name: "connect to a socket", try: func(_ *walled, port uint64) uint64 {
		fd, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
		if errno != 0 {
			return uint64(errno)
		}
		defer unix.Close(int(fd))
		if err := unix.Connect(int(fd), &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return uint64(unix.ECONNREFUSED)
		}
		return 0
	}},
	call("open the parent's memory", unix.SYS_OPENAT, is(here), text("/proc/%d/mem"), is(unix.O_RDWR)),
	call("open the parent's environment", unix.SYS_OPENAT, is(here), text("/proc/%d/environ"), is(unix.O_RDONLY)),
	call("open its own memory", unix.SYS_OPENAT, is(here), text("/proc/self/mem"), is(unix.O_RDWR)),
	call("make a file", unix.SYS_OPENAT, is(here), text("/tmp/kubewasm-drill"), is(unix.O_CREAT|unix.O_WRONLY), is(0o600)),
	call("read the size of a file", unix.SYS_STATX, is(here), text("/etc/passwd"), is(0), is(unix.STATX_ALL), room),
	call("make a directory", unix.SYS_MKDIRAT, is(here), text("/tmp/kubewasm-drill"), is(0o700)),
	call("make a socket of the system", unix.SYS_SOCKET, is(unix.AF_UNIX), is(unix.SOCK_STREAM), is(0)),
	call("make a netlink socket", unix.SYS_SOCKET, is(unix.AF_NETLINK), is(unix.SOCK_RAW), is(0)),
	call("make a packet socket", unix.SYS_SOCKET, is(unix.AF_PACKET), is(unix.SOCK_RAW), is(0)),
	call("make a pair of sockets", unix.SYS_SOCKETPAIR, is(unix.AF_UNIX), is(unix.SOCK_STREAM), is(0), room),
	call("send a descriptor to the parent", unix.SYS_SENDMSG, is(3), room, is(0)),
	call("trace the parent", unix.SYS_PTRACE, is(unix.PTRACE_SEIZE), given, is(0), is(0)),
	call("be traced", unix.SYS_PTRACE, is(unix.PTRACE_TRACEME)),
	call("read memory of the parent", unix.SYS_PROCESS_VM_READV, given, room, is(1), room, is(1), is(0)),
	call("write memory of the parent", unix.SYS_PROCESS_VM_WRITEV, given, room, is(1), room, is(1), is(0)),
	call("signal the parent", unix.SYS_KILL, given, is(uintptr(unix.SIGCONT))),
	call("signal every process", unix.SYS_KILL, is(^uintptr(0)), is(uintptr(unix.SIGCONT))),
	call("signal a thread of the parent", unix.SYS_TGKILL, given, given, is(uintptr(unix.SIGCONT))),
	call("get a handle of the parent", unix.SYS_PIDFD_OPEN, given, is(0)),
	call("change limits of the parent", unix.SYS_PRLIMIT64, given, is(unix.RLIMIT_NOFILE), is(0), room),
	call("raise its own limits", unix.SYS_PRLIMIT64, is(0), is(unix.RLIMIT_NOFILE), room, is(0)),
	call("fork", unix.SYS_CLONE, is(uintptr(unix.SIGCHLD)), is(0), is(0), is(0), is(0)),
	call("fork with shared memory", unix.SYS_CLONE, is(unix.CLONE_VM|unix.CLONE_VFORK|uintptr(unix.SIGCHLD)), is(0), is(0), is(0), is(0)),
	call("fork by the new call", unix.SYS_CLONE3, room, is(88)),
	call("execute a program", unix.SYS_EXECVE, text("/bin/sh"), is(0), is(0)),
	call("execute a program by its descriptor", unix.SYS_EXECVEAT, is(3), text(""), is(0), is(0), is(unix.AT_EMPTY_PATH)),
	call("make a file in memory", unix.SYS_MEMFD_CREATE, text("drill"), is(0)),
	call("make executable memory", unix.SYS_MMAP, is(0), is(4096), is(unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC), is(unix.MAP_PRIVATE|unix.MAP_ANON), is(^uintptr(0)), is(0)),
	call("make memory that no limit counts", unix.SYS_MMAP, is(0), is(3<<30), is(unix.PROT_READ|unix.PROT_WRITE), is(unix.MAP_SHARED|unix.MAP_ANON|unix.MAP_NORESERVE), is(^uintptr(0)), is(0)),
	call("make a stack that no limit counts", unix.SYS_MMAP, is(0), is(3<<30), is(unix.PROT_READ|unix.PROT_WRITE), is(unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_GROWSDOWN|unix.MAP_NORESERVE), is(^uintptr(0)), is(0)),
	call("make memory executable", unix.SYS_MPROTECT, func(uint64) uintptr { return room(0) &^ 4095 }, is(4096), is(unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC)),
	call("make memory executable with a key", unix.SYS_PKEY_MPROTECT, func(uint64) uintptr { return room(0) &^ 4095 }, is(4096), is(unix.PROT_READ|unix.PROT_EXEC), is(^uintptr(0))),
	call("change the process's personality", unix.SYS_PERSONALITY, is(0x0400000)),
	call("set up io_uring", unix.SYS_IO_URING_SETUP, is(8), room),
	call("add a key", unix.SYS_ADD_KEY, text("user"), text("drill"), room, is(8), is(^uintptr(3))), // KEY_SPEC_USER_KEYRING
	call("use a keyring", unix.SYS_KEYCTL, is(0), is(^uintptr(2)), is(1)),
	call("load a program into the kernel", unix.SYS_BPF, is(5), room, is(64)),
	call("make a userfaultfd", unix.SYS_USERFAULTFD, is(1)),
	call("count events of the processor", unix.SYS_PERF_EVENT_OPEN, room, is(0), is(^uintptr(0)), is(^uintptr(0)), is(0)),
	call("make namespaces", unix.SYS_UNSHARE, is(unix.CLONE_NEWUSER)),
	call("join namespaces", unix.SYS_SETNS, is(3), is(0)),
	call("mount", unix.SYS_MOUNT, text("none"), text("/tmp"), text("tmpfs"), is(0), is(0)),
	call("open a file by its handle", unix.SYS_OPEN_BY_HANDLE_AT, is(here), room, is(0)),
	call("change the root", unix.SYS_CHROOT, text("/")),
	call("change the user", unix.SYS_SETUID, is(0)),
	call("get capabilities", unix.SYS_CAPSET, room, room),
	call("be dumpable", unix.SYS_PRCTL, is(unix.PR_SET_DUMPABLE), is(1)),
	call("outlive the parent", unix.SYS_PRCTL, is(unix.PR_SET_PDEATHSIG), is(0)),
	call("change the filter", unix.SYS_SECCOMP, is(unix.SECCOMP_SET_MODE_FILTER), is(0), room),
	call("make memory of the system's own", unix.SYS_SHMGET, is(0), is(4096), is(0o1600)),
	call("make a queue of messages", unix.SYS_MSGGET, is(0), is(0o1600)),
	call("watch files", unix.SYS_INOTIFY_INIT1, is(0)),
	call("move a page", unix.SYS_MOVE_PAGES, given, is(1), room, is(0), room, is(0)),
	call("read the kernel's log", unix.SYS_SYSLOG, is(3), room, is(16)),
	call("set the clock", unix.SYS_CLOCK_SETTIME, is(0), room),
	call("make a 32-bit call", 0x40000000+39),
	{name: "cut the memory that it shares", try: func(*walled, uint64) uint64 {
		for fd := uintptr(4); fd < 4096; fd++ {
			if _, _, errno := syscall.RawSyscall(unix.SYS_FTRUNCATE, fd, 0, 0); errno == 0 {
				return 0
			}
		}
		return uint64(unix.EBADF)
	}},
	{name: "change a file that is mapped", try: func(*walled, uint64) uint64 {
		// Its machine code, and the images of its guests.
		for fd := uintptr(4); fd < 4096; fd++ {
			if _, _, errno := syscall.RawSyscall6(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0); errno == 0 {
				return 0
			}
			if n, _, _ := syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&scratch[0])), 1); n == 1 {
				return 0
			}
		}
		return uint64(unix.EBADF)
	}},
	{name: "find the machine's address of a page", try: func(*walled, uint64) uint64 {
		page := make([]byte, 4096)
		page[0] = 1
		at := uintptr(unsafe.Pointer(&page[0])) / uintptr(os.Getpagesize()) * 8
		for fd := uintptr(4); fd < 4096; fd++ {
			var entry uint64
			if n, _, _ := syscall.RawSyscall6(unix.SYS_PREAD64, fd, uintptr(unsafe.Pointer(&entry)), 8, at, 0, 0); n == 8 && entry<<9 != 0 {
				return 0
			}
		}
		return uint64(unix.EPERM)
	}},
	{name: "use up the memory", try: func(*walled, uint64) uint64 {
		_, err := unix.Mmap(-1, 0, 8<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if errno, ok := err.(unix.Errno); ok {
			return uint64(errno)
		}
		return 0
	}},
	{name: "use up the threads", lies: true, try: func(*walled, uint64) uint64 {
		for range 500 {
			go func() {
				runtime.LockOSThread()
				var word uint32
				_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0, 0, 0, 0, 0)
			}()
		}
		for {
			runtime.Gosched() // The runtime ends the process when it gets no thread.
		}
	}},
	{name: "send an unknown message", lies: true, try: func(w *walled, _ uint64) uint64 { return lie(w, 99, 0) }},
	{name: "call a host function that is not imported", lies: true, try: func(w *walled, _ uint64) uint64 { return lie(w, opHost, 1<<31) }},
	{name: "ask for the parent's side of a message", lies: true, try: func(w *walled, _ uint64) uint64 { return lie(w, opStart, 0) }},
	{name: "leave without a word", lies: true, try: func(*walled, uint64) uint64 { os.Exit(0); return 0 }},
	{name: "jump to an address without memory", lies: true, try: func(*walled, uint64) uint64 {
		scratch[0] = *(*byte)(unsafe.Add(nil, 12345))
		return 0
	}},
	{name: "never answer", lies: true, try: func(*walled, uint64) uint64 {
		for {
			runtime.Gosched()
		}
	}},
	{name: "ask without end", lies: true, try: func(w *walled, _ uint64) uint64 {
		for {
			lie(w, opMemory, 0)
		}
	}},
}

// lie sends the parent a message.
func lie(w *walled, op wall.Op, n uint32) uint64 {
	w.lane.Send(wall.Message{Op: op, N: n, Fuel: 1 << 62, Stack: 1 << 63}, []uint64{1 << 63, 1 << 62}, 1<<20)
	_ = w.lane.Wait(nil)
	return 0
}

func tryOut(w *walled, n, arg uint64) uint64 { return attempts[n].try(w, arg) }

// drillPatience is the time of calls that may have to wait for one that never answers: what a busy machine
// needs for the others, many times over.
const drillPatience = 3 * time.Second

// drill loads the guest with the planted hole.
func drill(t *testing.T, rt *Runtime, name string) *Plugin {
	t.Helper()
	p, err := rt.Load(t.Context(), Config{
		Name: name, Module: ModuleConfig{Source: File("testdata/wall/drill.wasm")},
		Limits: Limits{Timeout: drillPatience, Instances: 2},
	}, Adapter{Kind: abi.KindScheduler, Imports: drillImports})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// try has the guest make an attempt, and returns its error number. A process that starts meanwhile is
// waited for.
func try(t *testing.T, p *Plugin, n int, arg uint64) (errno uint64, err error) {
	t.Helper()
	inst, err := p.Acquire(t.Context())
	for errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil {
		inst, err = p.Acquire(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	return inst.Call(t.Context(), abi.Filter, uint64(n), arg, 0)
}

// newWalledRuntime returns a runtime with the least level. The kernel executes no other process for
// an emulator.
func newWalledRuntime(t *testing.T, level Isolation) *Runtime {
	t.Helper()
	if level == IsolationProcess && self.Emulated() {
		t.Skip("an emulator runs this test")
	}
	rt, err := NewRuntime(RuntimeConfig{MinimumIsolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	return rt
}

func TestEscapeDrill(t *testing.T) {
	t.Setenv(debugVariable, "") // It compares the levels.
	copy(secret[:], secretText)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := uint64(listener.Addr().(*net.TCPAddr).Port)
	rt := newWalledRuntime(t, IsolationProcess)
	none := drill(t, newWalledRuntime(t, IsolationNone), "none")
	for n := range attempts[:3] {
		if errno, err := try(t, none, n, port); errno != 0 || err != nil {
			t.Errorf("without a wall: %s: error %d, %v; the drill does not show anything", attempts[n].name, errno, err)
		}
	}
	gathering(t)
	sibling, p, shared := drill(t, rt, "other/sibling"), drill(t, rt, "alone/guest"), drill(t, rt, "guest")
	loadXor(t, rt, "beside", 1, "")
	gather(rt, "")
	process := processOf(t, shared)
	if len(process.modules) != 2 {
		t.Fatalf("the process has %d modules, want that of the drill and another", len(process.modules))
	}
	for n, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			if a.lies {
				p := drill(t, rt, "liar "+strconv.Itoa(n)+"/guest")
				defer p.Close(context.Background())
				errno, err := try(t, p, n, 0)
				if err == nil {
					t.Errorf("the call returns %d, want an error", errno)
				}
				// Another process serves the next call.
				if errno, err := try(t, p, 1, 0); errno == 0 || err != nil {
					t.Errorf("after that the guest answers %d, %v", errno, err)
				}
				return
			}
			for _, arg := range []uint64{uint64(os.Getpid()), port, uint64(sibling.current.Load().compiled.remote.now.Pid())} {
				if errno, err := try(t, p, n, arg); errno == 0 || err != nil {
					t.Errorf("with %d: error %d, %v; want an error number", arg, errno, err)
				}
				if errno, err := try(t, shared, n, arg); errno == 0 || err != nil {
					t.Errorf("in a process that guests share, with %d: error %d, %v; want an error number", arg, errno, err)
				}
			}
		})
	}
	if errno, err := try(t, sibling, 1, 0); errno == 0 || err != nil {
		t.Errorf("the sibling answers %d, %v", errno, err)
	}
	for _, process := range []*remoteProcess{process, p.current.Load().compiled.remote.now} {
		if process.Err() != nil {
			t.Errorf("a process that tried has ended: %v", process.Err())
		}
	}
}

func TestProcessesAreReplaced(t *testing.T) {
	rt := newWalledRuntime(t, IsolationProcess)
	p := drill(t, rt, "guest")
	process := func() *remoteProcess { return p.current.Load().compiled.remote.now }
	signal := func(s unix.Signal) {
		t.Helper()
		if err := unix.Kill(process().Pid(), s); err != nil {
			t.Fatal(err)
		}
	}
	serves := func(when string) {
		t.Helper()
		if errno, err := try(t, p, 1, 0); errno == 0 || err != nil {
			t.Errorf("%s the guest answers %d, %v", when, errno, err)
		}
	}
	never := slices.IndexFunc(attempts, func(a attempt) bool { return a.name == "never answer" })

	serves("at first")
	if session, err := unix.Getsid(process().Pid()); err != nil || session != process().Pid() {
		t.Errorf("the child %d is in session %d, %v: a terminal's signals would end it before its parent", process().Pid(), session, err)
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", process().Pid())); err == nil && dir != "/" {
		t.Errorf("the child is in %s", dir)
	}
	signal(unix.SIGKILL)
	<-process().Done()
	serves("after its process was killed between two calls")
	if !process().reply.Compiled {
		t.Error("another process compiles the module again")
	}

	signal(unix.SIGSTOP)
	if err := unix.Waitid(unix.P_PID, process().Pid(), nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, p, 1, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a process that is stopped: %v, want %v", err, context.DeadlineExceeded)
	}
	serves("after its process was stopped")

	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(50*time.Millisecond, func() { signal(unix.SIGKILL) })
	defer timer.Stop()
	if _, err = inst.Call(t.Context(), abi.Filter, uint64(never), 0, 0); err == nil || !strings.Contains(err.Error(), "process of the guest") {
		t.Errorf("a process that is killed in a call: %v", err)
	}
	inst.Release()
	serves("after its process was killed in a call")

	ctx, cancel := context.WithCancel(t.Context())
	inst, err = p.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancelling := time.AfterFunc(50*time.Millisecond, cancel)
	defer cancelling.Stop()
	if _, err = inst.Call(ctx, abi.Filter, uint64(never), 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a process that does not heed the caller: %v, want %v", err, context.Canceled)
	}
	inst.Release()
	serves("after its caller had gone")

	for range maxEnds {
		signal(unix.SIGKILL)
		<-process().Done()
		inst, err := p.Acquire(t.Context())
		for errors.Is(err, context.DeadlineExceeded) {
			inst, err = p.Acquire(t.Context())
		}
		if err != nil {
			if want := "the last of 5 processes within 1m0s"; !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
			return
		}
		inst.Release()
	}
	t.Errorf("%d processes were replaced", maxEnds)
}

// TestCallsDoNotWaitForAProcessThatStarts has a process that never gets ready, and one that does not in
// time.
func TestCallsDoNotWaitForAProcessThatStarts(t *testing.T) {
	rt := newWalledRuntime(t, IsolationProcess)
	p := drill(t, rt, "guest")
	r := p.current.Load().compiled.remote
	before := r.now
	before.Kill(errors.New("the test ends it"))

	never := &remoteProcess{ready: make(chan struct{})}
	r.mu.Lock()
	r.now = never
	r.mu.Unlock()
	if _, err := p.Acquire(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a process starts: error is %v, want %v", err, context.DeadlineExceeded)
	}
	never.err = before.Err()
	close(never.ready)

	r.mu.Lock()
	most := r.most
	r.most = 1
	r.mu.Unlock()
	if most < leastRestart {
		t.Errorf("a start may take %s, want at least %s", most, leastRestart)
	}
	if _, err := r.process(t.Context()); err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Errorf("a process that starts too slowly: error is %v", err)
	}
	r.mu.Lock()
	r.most = most
	r.mu.Unlock()
	if errno, err := try(t, p, 1, 0); errno == 0 || err != nil {
		t.Errorf("after that the guest answers %d, %v", errno, err)
	}
}

// drillModule returns the guest of the drill with a change.
func drillModule(t *testing.T, change func(m *wasmbin.Module)) []byte {
	t.Helper()
	module, err := os.ReadFile("testdata/wall/drill.wasm")
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasmbin.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	return m.Encode()
}

// TestGlobalsPassTogether counts the messages of a guest with many globals.
func TestGlobalsPassTogether(t *testing.T) {
	const globals = 10_000
	module := drillModule(t, func(m *wasmbin.Module) {
		zero := wasmbin.Global{GlobalType: wasmbin.GlobalType{Type: 0x7f, Mutable: true}, Init: []byte{0x41, 0, 0x0b}}
		m.Globals = slices.Repeat([]wasmbin.Global{zero}, globals)
	})
	p, err := newWalledRuntime(t, IsolationProcess).Load(t.Context(), Config{Name: "globals", Module: ModuleConfig{Bytes: module}, Limits: Limits{Instances: 2, Timeout: time.Minute}}, Adapter{Kind: abi.KindScheduler, Imports: drillImports})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		if n := inst.remote.messages; n > globals/10 {
			t.Errorf("%d messages for an instance with %d globals", n, globals)
		}
	}
}

func TestDescriptionsOfModulesAreBounded(t *testing.T) {
	reply := wallReply{Info: &wasmbin.Info{Globals: make([]wasmbin.GlobalExport, maxGlobals+1)}}
	if reply.check(pageSize) == nil {
		t.Errorf("%d globals are accepted", len(reply.Info.Globals))
	}
	reply = wallReply{Info: new(wasmbin.Info), Weak: slices.Repeat([]string{strings.Repeat("x", 1<<20)}, 100)}
	if err := reply.check(pageSize); err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Join(reply.Weak, "")); n > maxWeak*maxWeakBytes {
		t.Errorf("%d bytes are kept of the reasons for a weaker wall", n)
	}
}

// TestImportsThatDoNotFitAMessage loads a guest that imports a function of more parameters than a
// message has room for.
func TestImportsThatDoNotFitAMessage(t *testing.T) {
	const params = wall.MaxWords + 1
	module := drillModule(t, func(m *wasmbin.Module) {
		m.Imports = append(m.Imports, wasmbin.Import{Module: "m", Name: "f", Type: uint32(len(m.Types))})
		m.Types = append(m.Types, wasmbin.RecGroup{Types: []wasmbin.FuncType{{Params: slices.Repeat([]wasmbin.ValType{0x7f}, params)}}})
	})
	_, err := newWalledRuntime(t, IsolationProcess).Load(t.Context(), Config{Name: "wide", Module: ModuleConfig{Bytes: module}}, Adapter{
		Kind:    abi.KindScheduler,
		Imports: []Import{{Module: "m", Name: "f", Params: slices.Repeat([]abi.ValueType{abi.I32}, params), Func: func(*Instance, []uint64) {}}},
	})
	if want := "import m.f has 25 parameters or results"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q in it", err, want)
	}
}

func TestIsolationIsRefusedByName(t *testing.T) {
	t.Setenv(debugVariable, "")
	for _, test := range []struct {
		name       string
		minimum    Isolation
		configured Isolation
		profiler   *Profiler
		want       string
	}{
		{"a level that is none", "", "vm", nil, `isolation is "vm", want none or process`},
		{"less than the minimum", IsolationProcess, IsolationNone, nil, "isolation is none, and the operator's minimum is process"},
		{"a profile", "", IsolationProcess, new(Profiler), "no profile can be collected"},
		{"a profile at the minimum", IsolationProcess, "", new(Profiler), "no profile can be collected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := newWalledRuntime(t, test.minimum).Load(t.Context(), Config{
				Name: "p", Module: ModuleConfig{Source: File("testdata/noop.wasm")}, Isolation: test.configured, Profiler: test.profiler,
			}, Adapter{Kind: abi.KindScheduler})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q in it", err, test.want)
			}
		})
	}
	if _, err := NewRuntime(RuntimeConfig{MinimumIsolation: "most"}); err == nil || !strings.Contains(err.Error(), `MinimumIsolation is "most"`) {
		t.Errorf("error is %v", err)
	}
	p := drill(t, newWalledRuntime(t, IsolationProcess), "guest")
	if s := p.Stats(); s.Isolation != IsolationProcess {
		t.Errorf("the level is %q", s.Isolation)
	} else {
		t.Logf("weaker: %q", s.Weaker)
	}
}

// TestMalformedMessages plays a child that writes whatever it likes, whenever it has the turn and
// sometimes when it has not, while host functions work on its memory.
func TestMalformedMessages(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationNone), "guest")
	v := *p.current.Load()
	v.imports = nil
	for _, list := range [][]Import{wasiImports, commonImports} {
		for i := range list {
			v.imports = append(v.imports, &list[i])
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	ops := []wall.Op{opHost, opHost, opHost, opYield, opMemory, opFail, opDone}
	done, broken, most := 0, 0, 100_000
	if self.Emulated() {
		most = 10_000 // Memories of tests keep their address space, of which an emulator has little.
	}
	for done < most {
		inst := played(t, &v, func(lane *wall.Lane) error {
			done++
			for range random.IntN(8) {
				binary.LittleEndian.PutUint32(lane.Room()[random.IntN(1<<12)*4:], random.Uint32()>>random.IntN(32))
			}
			var words [wall.MaxWords]uint64
			for i := range words {
				words[i] = random.Uint64() >> random.IntN(64)
			}
			m := wall.Message{Op: ops[random.IntN(len(ops))], N: uint32(random.IntN(len(v.imports) + 1)), Fuel: int64(random.Uint64()), Stack: random.Uint64()}
			if random.IntN(8) == 0 {
				m.Op, m.N = wall.Op(random.Uint32()>>random.IntN(32)), random.Uint32()
			}
			lane.Send(m, words[:], random.IntN(1<<17))
			return nil
		})
		r := inst.remote
		for range 50 {
			fn := inst.module.ExportedFunction("filter")
			_, _ = inst.run(t.Context(), &fn, "filter", recording.ByFunction, 3, nil)
			if r.err != nil {
				broken++
				break
			}
			inst.broken = false
		}
		inst.linear.Free()
		r.free()
	}
	if broken == 0 {
		t.Error("no message broke a rule")
	}
}

// played returns an instance whose child the test plays: answer is called while that has the turn.
func played(t *testing.T, v *version, answer func(lane *wall.Lane) error) *Instance {
	t.Helper()
	inst := &Instance{plugin: v.plugin, version: v, output: output{limit: 1 << 10}}
	inst.ctx = callContext{parent: t.Context(), inst: inst}
	if err := v.newRemoteMemory(inst, pageSize, 4*pageSize); err != nil {
		t.Fatal(err)
	}
	r := inst.remote
	r.process = &remoteProcess{Process: wall.NewProcess(-1)}
	inst.module, inst.memory, r.view.bytes = r, &r.view, inst.linear.Reallocate(pageSize)
	inst.meter.bind(r)
	inst.meter.slice = fuelSlice
	lane := r.lane.Other()
	r.lane.Spin = 0
	r.check = func() error { return answer(&lane) } // The parent is about to sleep.
	return inst
}

// TestProcessesEndBeforeTheirFunctionsAreFound ends a process, or has it deny a function, while an instance
// is started.
func TestProcessesEndBeforeTheirFunctionsAreFound(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationNone), "guest")
	for _, test := range []struct {
		name, want string
		answer     func(lane *wall.Lane) error
	}{
		{"the process ends", "find the function \"filter\": it ends", func(*wall.Lane) error { return errors.New("it ends") }},
		{"the process denies it", "find the function \"filter\": none", func(lane *wall.Lane) error {
			lane.Send(wall.Message{Op: opFail}, nil, copy(lane.Room(), "none"))
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inst := played(t, p.current.Load(), test.answer)
			defer inst.remote.free()
			defer inst.linear.Free()
			if err := inst.version.start(t.Context(), inst); err == nil {
				t.Error("the start has no error")
			}
			inst.broken, inst.version = false, p.current.Load()
			inst.version.resolve(inst)
			var trap *TrapError
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); !errors.As(err, &trap) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the call returns %v, want a trap with %q", err, test.want)
			}
		})
	}
}

// TestFilesStayOpenForAProcessThatStarts frees a module whose process is not ready yet: the numbers of files
// that it will be sent must not become those of others.
func TestFilesStayOpenForAProcessThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{now: &remoteProcess{ready: make(chan struct{})}, domain: new(Runtime).domain("")}
		for _, file := range []*int{&r.file, &r.code} {
			var err error
			if *file, err = wall.NewFile(1); err != nil {
				t.Fatal(err)
			}
		}
		go r.free()
		synctest.Wait()
		for _, file := range []int{r.file, r.code} {
			if _, err := unix.FcntlInt(uintptr(file), unix.F_GETFD, 0); err != nil {
				t.Errorf("a file of a process that starts: %v", err)
			}
		}
		close(r.now.ready)
	})
}

// TestQuestionsOutOfPlace plays a child that asks before each of its answers.
func TestQuestionsOutOfPlace(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationNone), "guest")
	v := *p.current.Load()
	runs := 0
	v.imports = []*Import{{Module: "m", Name: "f", Func: func(*Instance, []uint64) { runs++ }}}
	for op := opStart; op <= opReset; op++ {
		for question, may := range map[wall.Op]bool{
			opHost: op == opStart || op == opCall, opYield: op == opStart || op == opCall, opMemory: op == opStart || op == opCall || op == opGrow,
		} {
			asked := false
			inst := played(t, &v, func(lane *wall.Lane) error {
				reply := question
				if asked {
					reply = opDone
				}
				asked = true
				lane.Send(wall.Message{Op: reply}, []uint64{2 * pageSize}, 0)
				return nil
			})
			runs = 0
			if _, err := inst.remote.exchange(op, 0, nil, "", nil); (err == nil) != may || runs != 0 && !may {
				t.Errorf("message %d, and question %d: %v, and %d host functions have run", op, question, err, runs)
			}
			inst.linear.Free()
			inst.remote.free()
		}
	}
}

// TestSizesOfMemories plays a child whose memory gets other sizes.
func TestSizesOfMemories(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationNone), "guest")
	for _, test := range []struct {
		size, answer uint64
		breaks       bool
	}{
		{size: pageSize, answer: pageSize + 1},
		{size: 2 * pageSize, answer: 2*pageSize + 1},
		{size: 4 * pageSize, answer: 4*pageSize + 1},
		{size: 5 * pageSize},
		{size: 1 << 63},
		{size: 0, breaks: true},
		{size: pageSize + 1, breaks: true},
		{size: pageSize - 1, breaks: true},
		{size: math.MaxUint64, breaks: true},
	} {
		var answer [1]uint64
		asked := false
		inst := played(t, p.current.Load(), func(lane *wall.Lane) error {
			if asked {
				lane.Receive(answer[:])
				lane.Send(wall.Message{Op: opDone}, nil, 0)
				return nil
			}
			asked = true
			lane.Send(wall.Message{Op: opMemory}, []uint64{test.size}, 0)
			return nil
		})
		_, err := inst.remote.exchange(opCall, 0, nil, "", nil)
		if (err != nil) != test.breaks || answer[0] != test.answer {
			t.Errorf("%d bytes: the answer is %d, and the error %v, want %d", test.size, answer[0], err, test.answer)
		}
		if n, want := uint64(len(inst.remote.view.bytes)), max(pageSize, test.answer-min(1, test.answer)); n != want {
			t.Errorf("%d bytes: the memory has %d, want %d", test.size, n, want)
		}
		inst.linear.Free()
		inst.remote.free()
	}
}

// TestReadsOfTooMuch counts the messages for a read that the limits refuse.
func TestReadsOfTooMuch(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationNone), "guest")
	v := *p.current.Load()
	v.limits.ResultBytes = pageSize / 2
	inst := played(t, &v, func(lane *wall.Lane) error {
		lane.Send(wall.Message{Op: opDone}, nil, 0)
		return nil
	})
	defer inst.remote.free()
	defer inst.linear.Free()
	func() {
		defer func() {
			if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "more than the limit") {
				t.Errorf("the read ends with %v", err)
			}
		}()
		_, _ = inst.Dialect().Peek(0, pageSize)
	}()
	if n := inst.remote.messages; n != 0 {
		t.Errorf("%d messages for bytes that the guest does not get read", n)
	}
}

// TestErrorsOfChildrenAreBounded has a child fail with as much text as a message has room for.
func TestErrorsOfChildrenAreBounded(t *testing.T) {
	much := strings.Repeat("\xff", wall.MaxText/2)
	for _, cause := range []any{nil, errors.New("cause"), "cause"} {
		if n := len(remoteError(much+stackTrace+much, cause).Error()); n > maxErrorBytes+maxStackBytes+100 {
			t.Errorf("with the cause %v the error has %d bytes", cause, n)
		}
	}
	const short = "out of bounds memory access\nwasm stack trace:\n\tm.f()"
	if got := remoteError(short, nil).Error(); got != short {
		t.Errorf("the error is %q, want %q", got, short)
	}
}

// TestEndedProcessesAreNotWantOfMemory has a snapshot that a child refuses, or that it does not answer about.
func TestEndedProcessesAreNotWantOfMemory(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationNone), "guest")
	for _, ends := range []bool{false, true} {
		inst := played(t, p.current.Load(), func(lane *wall.Lane) error {
			if ends {
				return errors.New("it ends")
			}
			lane.Send(wall.Message{Op: opFail}, nil, copy(lane.Room(), "no room"))
			return nil
		})
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		inst.remote.process = &remoteProcess{Process: wall.NewProcess(pair[0])}
		if err = inst.adopt(inst.version.snapshot); err == nil {
			t.Fatal("the snapshot is adopted")
		}
		if err = inst.noMemory(err); errors.Is(err, ErrMemory) == ends {
			t.Errorf("the process ends: %t, and the error is %v", ends, err)
		}
		unix.Close(pair[1])
		inst.remote.process.Close()
		inst.linear.Free()
		inst.remote.free()
	}
}

// held returns the numbers of files and of mappings in memory that belong to children.
func held(t *testing.T) (files, mappings int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		for _, kind := range []string{"memfd:kubewasm", "socket:", "pidfd"} {
			if strings.Contains(target, kind) {
				files++
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return files, bytes.Count(maps, []byte("memfd:kubewasm"))
}

// TestRestartsLeakNothing ends the process of a guest again and again.
func TestRestartsLeakNothing(t *testing.T) {
	p := drill(t, newWalledRuntime(t, IsolationProcess), "guest")
	r := p.current.Load().compiled.remote
	restart := func() {
		r.mu.Lock()
		r.ends = nil
		now := r.now
		r.mu.Unlock()
		if err := unix.Kill(now.Pid(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-now.Done()
		if errno, err := try(t, p, 1, 0); errno == 0 || err != nil {
			t.Fatalf("the guest answers %d, %v", errno, err)
		}
	}
	restart()
	files, mappings := held(t)
	for range restarts {
		restart()
	}
	if f, m := held(t); f > files || m > mappings {
		t.Errorf("%d files and %d mappings of children, %d and %d before %d restarts", f, m, files, mappings, restarts)
	}
}

// restarts is the number of restarts that are tried.
const restarts = 20

func BenchmarkIsolation(b *testing.B) {
	for _, level := range []Isolation{IsolationNone, IsolationProcess} {
		b.Run(string(level), func(b *testing.B) {
			rt, err := NewRuntime(RuntimeConfig{MinimumIsolation: level})
			if err != nil {
				b.Fatal(err)
			}
			defer rt.Close(context.Background())
			p, err := rt.Load(b.Context(), Config{Name: "noop", Module: ModuleConfig{Source: File("testdata/noop.wasm")}}, Adapter{Kind: abi.KindScheduler})
			if err != nil {
				b.Fatal(err)
			}
			inst, err := p.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer inst.Release()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := inst.Call(b.Context(), abi.Filter, 0, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// stores are the instructions that write to memory, in a module whose function filter takes the number of
// one of them, an address and a value.
var stores = func() (list [][]byte) {
	address := []byte{0x20, 1, 0xa7}               // local.get 1, i32.wrap_i64
	value, number := []byte{0x20, 2}, []byte{0xa7} // local.get 2; i32.wrap_i64
	add := func(parts ...[]byte) { list = append(list, slices.Concat(parts...)) }
	for op := byte(0x36); op <= 0x3e; op++ { // From i32.store to i64.store32.
		var convert []byte
		switch op {
		case 0x36, 0x3a, 0x3b: // Those of i32.
			convert = number
		case 0x38: // f32.store
			convert = []byte{0xa7, 0xbe} // i32.wrap_i64, f32.reinterpret_i32
		case 0x39: // f64.store
			convert = []byte{0xbf} // f64.reinterpret_i64
		}
		add(address, value, convert, []byte{op, 0, 0})
	}
	vector := slices.Concat(value, []byte{0xfd, 0x12}) // i64x2.splat
	add(address, vector, []byte{0xfd, 0x0b, 0, 0})     // v128.store
	for lane := byte(0x58); lane <= 0x5b; lane++ {     // From v128.store8_lane to v128.store64_lane.
		add(address, vector, []byte{0xfd, lane, 0, 0, 1})
	}
	length := []byte{0x20, 2, 0x42, 0xff, 0xff, 3, 0x83, 0xa7}    // value & 65535, i32.wrap_i64
	add(address, value, number, length, []byte{0xfc, 11, 0})      // memory.fill
	add(address, []byte{0x41, 0}, length, []byte{0xfc, 10, 0, 0}) // memory.copy from 0
	add(address, []byte{0x41, 0, 0x41, 8, 0xfc, 8, 0, 0})         // memory.init of 8 bytes
	add([]byte{0x41, 1, 0x40, 0, 0x1a})                           // memory.grow by a page
	add(value, []byte{0x24, 0})                                   // global.set
	add([]byte{0})                                                // unreachable
	return list
}()

// storesModule returns the module of stores, with 24 pages of memory.
func storesModule() []byte {
	leb := func(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }
	section := func(id byte, body ...byte) []byte { return slices.Concat([]byte{id}, leb(len(body)), body) }
	filter := []byte{0} // No more locals.
	for n, store := range stores {
		filter = slices.Concat(filter, []byte{0x20, 0, 0x42}, leb(n), []byte{0x51, 0x04, 0x40}, store, []byte{0x0b}) // if local.get 0 == n
	}
	filter = append(filter, 0x41, 0, 0x0b)
	marker := []byte{0, 0x42, 0x80, 1, 0x0b}
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, 2, 0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f),
		section(3, 2, 0, 1),
		section(5, 1, 1, 24, 0x90, 3), // Up to 400.
		section(6, 1, 0x7e, 1, 0x42, 7, 0x0b),
		section(7, []byte("\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x06filter\x00\x01")...),
		section(12, 2),
		section(10, slices.Concat([]byte{2}, leb(len(marker)), marker, leb(len(filter)), filter)...),
		section(11, slices.Concat([]byte{2, 1, 8}, []byte("segment."), []byte{0, 0x41, 0x80, 0x20, 0x0b, 6}, []byte("active"))...))
}

// TestResetsMissNothing has a guest write to random places by every instruction that can, the host write,
// and the memory grow, and compares all of it with the snapshot after each reset.
func TestResetsMissNothing(t *testing.T) {
	p, err := newWalledRuntime(t, IsolationProcess).Load(t.Context(), Config{
		Name: "stores", Module: ModuleConfig{Bytes: storesModule()}, Reset: ResetPerCall, Limits: Limits{Instances: 1, Timeout: time.Minute},
	}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	s := p.current.Load().snapshot
	random := rand.New(rand.NewPCG(3, 4))
	const memory = 24 * pageSize
	written := map[int]int{}
	for round := range 100 {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		globals := make([]uint64, len(s.globals))
		if got := inst.remote.image(globals); !bytes.Equal(got, s.image.Bytes()) || !slices.Equal(globals, s.globals) || uint64(inst.memory.Size()) != s.size {
			inst.Release() // The cleanup waits for it.
			t.Fatalf("round %d begins with %d bytes that are not the snapshot's, or globals %d, want %d", round, len(got), globals, s.globals)
		}
		many := random.IntN(8)
		if random.IntN(16) == 0 {
			many = 150 // More pages than are kept.
		}
		for range many {
			n, at := random.IntN(len(stores)), uint64(random.IntN(memory-1<<16))
			if n == len(stores)-1 && many > 8 {
				continue
			}
			if _, err := inst.Call(t.Context(), abi.Filter, uint64(n), at, random.Uint64()); (err != nil) != (n == len(stores)-1) {
				t.Errorf("instruction %d: %v", n, err)
			}
			written[n]++
		}
		for range random.IntN(4) {
			inst.put(uint32(random.IntN(memory-1<<17)), bytes.Repeat([]byte{byte(round)}, random.IntN(1<<17)))
		}
		inst.Release()
	}
	for n := range stores {
		if written[n] == 0 {
			t.Errorf("instruction %d has not run", n)
		}
	}
	if n := p.current.Load().compiled.remote.now.instances.Load(); n != 1 {
		t.Errorf("%d instances were made, want one that is reset", n)
	}
}
