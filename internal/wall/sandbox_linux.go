//go:build amd64 || arm64

package wall

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/internal/snapmem"
)

// shutIn takes everything from the process that serving does not need, and leaves it so many bytes of
// private memory and threads. weak are the parts that the kernel or the program does not have. After an error the
// process must end.
func shutIn(data, threads uint64) (weak []string, err error) {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4)) // It also ends the runtime's reads of the cgroup.
	debug.SetGCPercent(50)
	// The runtime's poller must have its descriptors before no more can be made.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	// The kernel ends the child before the parent when memory runs out.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	if err := closeFiles(); err != nil {
		weak = append(weak, fmt.Sprintf("files that the parent shares are not closed: %v", err))
	}
	if err := dropCapabilities(); err != nil {
		weak = append(weak, fmt.Sprintf("capabilities are not dropped: %v", err))
	}
	// It opens the list of the process's pages, which has no addresses for a process without
	// capabilities.
	snapmem.Prepare()
	data += threads * threadBytes()
	files := unix.Rlimit{Max: maxFiles}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	for _, l := range []struct {
		resource int
		most     uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_MEMLOCK, 0}, {unix.RLIMIT_MSGQUEUE, 0}, {unix.RLIMIT_DATA, data}, {unix.RLIMIT_NOFILE, min(files.Max, maxFiles)}} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return nil, err
		}
	}
	// In a user namespace it counts the threads of this process alone.
	if os.Getpid() == 1 {
		_ = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: threads, Max: threads})
	} else {
		weak = append(weak, "threads are not bounded: the process has no namespace")
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	if err := landlock(); err != nil {
		weak = append(weak, fmt.Sprintf("no Landlock: %v", err))
	}
	return weak, install(filter(true))
}

// maxFiles is the maximum number of files of a child, which its parent sends: those of snapshots.
const maxFiles = 4096

// threadBytes returns the private memory of a thread. In a program with C it has a stack as long as the
// limit of stacks, most of which is never touched.
func threadBytes() uint64 {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno != unix.ENOTSUP {
		return 0 // Of Go's heap.
	}
	stack := unix.Rlimit{Cur: unix.RLIM_INFINITY}
	_ = unix.Getrlimit(unix.RLIMIT_STACK, &stack)
	if stack.Cur == unix.RLIM_INFINITY {
		stack.Cur = 8 << 20 // More than C libraries take then.
	}
	return stack.Cur + 64<<10
}

// closeFiles closes all files but the standard streams, which are /dev/null, the channel, and those of
// the runtime's poller.
func closeFiles() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		fd, _ := strconv.Atoi(name)
		if fd <= channel || fd == int(dir.Fd()) {
			continue
		}
		target, unknown := os.Readlink("/proc/self/fd/" + name)
		if err = errors.Join(err, unknown); !strings.HasPrefix(target, "anon_inode:[event") {
			_ = unix.Close(fd)
		}
	}
	return err
}

// landlock forbids every access that Landlock knows.
func landlock() error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return errno
	}
	// The accesses to files, to the network, and across domains, by version.
	var rules struct{ files, net, scopes uint64 }
	size := uintptr(8)
	rules.files = 1<<13 - 1
	if abi >= 2 {
		rules.files |= 1 << 13
	}
	if abi >= 3 {
		rules.files |= 1 << 14
	}
	if abi >= 4 {
		rules.net, size = 3, 16
	}
	if abi >= 5 {
		rules.files |= 1 << 15
	}
	if abi >= 6 {
		rules.scopes, size = 3, 24
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	return allThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// allThreads calls the kernel on each thread. It does not work in a program with C.
func allThreads(call, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.AllThreadsSyscall(call, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// dropCapabilities drops all capabilities. Most ways to start a child leave it none.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	if data == [2]unix.CapUserData{} {
		return nil
	}
	data = [2]unix.CapUserData{}
	return allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
}

// Lock forbids the process to make memory executable from now on. It is called when the module is
// compiled.
func Lock() error { return install(filter(false)) }

// install installs a filter of system calls on all threads.
func install(program []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// allowed are the system calls of Go's runtime, and of the channel.
var allowed = append([]uint32{
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_MADVISE, unix.SYS_MUNMAP, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_GETTID, unix.SYS_GETPID,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETRANDOM, unix.SYS_RESTART_SYSCALL, unix.SYS_EPOLL_PWAIT,
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_FSTAT, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_RECVMSG, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
}, allowedHere...)

// filter returns the filter of system calls. Those that are not allowed fail with EPERM, so that the
// runtime does without what it can do without.
func filter(compiling bool) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		has    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K

		number, arch, argument0 = 0, 4, 16 // Offsets in seccomp_data.

		threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
		newSpaces   = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	)
	no, allow := uint32(unix.SECCOMP_RET_ERRNO|unix.EPERM), uint32(unix.SECCOMP_RET_ALLOW)
	f := []unix.SockFilter{
		{Code: load, K: arch},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: number},
	}
	for _, call := range allowed {
		f = append(f, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: answer, K: allow})
	}
	// when appends rules for one system call, which must answer.
	when := func(call uint32, rules ...unix.SockFilter) {
		f = append(f, unix.SockFilter{Code: equal, K: call, Jf: uint8(len(rules))})
		f = append(f, rules...)
	}
	word := func(n int) unix.SockFilter { return unix.SockFilter{Code: load, K: uint32(argument0 + 8*n)} }
	// A thread, and not a process. clone3 has its flags in memory, where a filter cannot look.
	when(unix.SYS_CLONE, word(0),
		unix.SockFilter{Code: has, K: newSpaces, Jt: 2},
		unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: threadFlags},
		unix.SockFilter{Code: equal, K: threadFlags, Jt: 1},
		unix.SockFilter{Code: answer, K: no}, unix.SockFilter{Code: answer, K: allow})
	when(unix.SYS_CLONE3, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	// Signals to threads of the process.
	when(unix.SYS_TGKILL, word(0),
		unix.SockFilter{Code: equal, K: uint32(os.Getpid()), Jt: 1},
		unix.SockFilter{Code: answer, K: no}, unix.SockFilter{Code: answer, K: allow})
	// Memory that no limit counts: what processes share without a file, and what grows downwards.
	uncounted := []unix.SockFilter{
		word(3),
		{Code: has, K: unix.MAP_GROWSDOWN, Jt: 2},
		{Code: has, K: unix.MAP_ANONYMOUS, Jf: 2},
		{Code: has, K: unix.MAP_SHARED, Jf: 1},
		{Code: answer, K: no},
	}
	executable := []unix.SockFilter{word(2), {Code: has, K: unix.PROT_EXEC, Jf: 1}, {Code: answer, K: no}}
	if compiling {
		executable = nil
	}
	yes := unix.SockFilter{Code: answer, K: allow}
	when(unix.SYS_MMAP, append(slices.Concat(uncounted, executable), yes)...)
	when(unix.SYS_MPROTECT, append(executable, yes)...)
	if compiling { // For Lock.
		when(unix.SYS_SECCOMP, unix.SockFilter{Code: answer, K: allow})
	}
	return append(f, unix.SockFilter{Code: answer, K: no})
}
