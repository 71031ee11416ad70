//go:build amd64 || arm64

package wall

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guest is the role of a child that runs guests. A role is the name by which a program knows that it is a
// child.
const Guest = "kubewasm-guest"

// channel is the descriptor of a child's socket.
const channel = 3

// unshut is the exit code of a child that shutIn fails for.
const unshut = 3

// maxPacket is the maximum size of a packet.
const maxPacket = 64 << 10

// Process is a child.
type Process struct {
	process *os.Process
	socket  int
	// Weak are the reasons for which the wall is lower than it could be.
	Weak []string

	// sending is held for reading while the socket is used: its number may be another file's once it is
	// closed.
	sending sync.RWMutex

	mu     sync.Mutex
	lanes  map[*Lane]struct{}
	closed bool
	err    error
	done   chan struct{}
}

// user is the user of children, if the parent may choose one. No file of a container belongs to it.
const user = 65532

// ways are the ways to start a child, the best first.
func ways() []way {
	const spaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	uid, gid := os.Geteuid(), os.Getegid()
	own := func(id, host int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: host, Size: 1}}
	}
	if uid == 0 {
		other := &syscall.Credential{Uid: user, Gid: user}
		return []way{
			{attr: syscall.SysProcAttr{Cloneflags: spaces, UidMappings: own(user, user), GidMappings: own(user, user), GidMappingsEnableSetgroups: true, Credential: other}},
			{attr: syscall.SysProcAttr{Credential: other}, weak: "no namespaces"},
			{weak: "no user of its own and no namespaces"},
		}
	}
	return []way{
		{attr: syscall.SysProcAttr{Cloneflags: spaces, UidMappings: own(user, uid), GidMappings: own(user, gid)}},
		{weak: "no user of its own and no namespaces"},
	}
}

type way struct {
	attr syscall.SysProcAttr
	weak string
}

// starter starts processes on one thread, which never ends: a child dies with the thread that has
// started it.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// NewProcess returns the parent's side of a child at the other end of a socket, which Close closes.
func NewProcess(socket int) *Process {
	return &Process{socket: socket, lanes: map[*Lane]struct{}{}, done: make(chan struct{})}
}

// Start starts a child in a role, with so many bytes of private memory and so many threads at most.
func Start(role string, bytes uint64, threads int) (*Process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start a process for a guest: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "channel")
	defer theirs.Close()
	p := NewProcess(pair[0])
	started := make(chan error)
	starter() <- func() {
		var errs []error
		for _, w := range ways() {
			attr := w.attr
			attr.Pdeathsig = unix.SIGKILL
			attr.Setsid = true // Signals of a terminal are for the parent.
			p.process, err = os.StartProcess("/proc/self/exe", []string{role, strconv.FormatUint(bytes, 10), strconv.Itoa(threads)}, &os.ProcAttr{Dir: "/", Env: []string{}, Files: []*os.File{nil, nil, nil, theirs}, Sys: &attr})
			if err == nil {
				if w.weak != "" {
					p.Weak = append(p.Weak, fmt.Sprintf("%s: %v", w.weak, errors.Join(errs...)))
				}
				break
			}
			errs = append(errs, err)
		}
		if p.process == nil {
			started <- errors.Join(errs...)
			return
		}
		started <- nil
	}
	if err := <-started; err != nil {
		unix.Close(p.socket)
		return nil, fmt.Errorf("start a process for a guest: %w", err)
	}
	// A child that does not read must not stop the parent.
	timeout := unix.Timeval{Sec: 1}
	_ = unix.SetsockoptTimeval(p.socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	go p.wait()
	return p, nil
}

// wait reaps the process.
func (p *Process) wait() {
	state, err := p.process.Wait()
	switch {
	case err != nil:
	case state.ExitCode() == unshut:
		err = errors.New("the process of the guest cannot be shut in: the kernel has no seccomp, or refuses it")
	default:
		err = fmt.Errorf("the process of the guest has ended: %s", state)
	}
	p.end(err)
}

// end records that the process serves no more.
func (p *Process) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	close(p.done)
	for l := range p.lanes {
		l.wake()
	}
	_ = unix.Shutdown(p.socket, unix.SHUT_RDWR)
}

// Err returns the reason why the process serves no more, nil if it serves.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Done is closed when the process serves no more.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.process.Pid }

// ProcessorTime returns the time of processors that the process has used, 0 if it is not known.
func (p *Process) ProcessorTime() time.Duration {
	var t unix.Timespec
	// The number of the clock of a process, see clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^p.Pid())<<3|2, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Kill ends the process. Err returns reason from now on, unless the process had ended before.
func (p *Process) Kill(reason error) {
	p.end(reason)
	if p.process != nil {
		_ = p.process.Kill()
	}
}

// Close ends the process, and frees its socket. Nobody may use it any more.
func (p *Process) Close() {
	p.Kill(errors.New("the process of the guest was closed"))
	p.sending.Lock()
	defer p.sending.Unlock()
	if !p.closed {
		p.closed = true
		unix.Close(p.socket)
	}
}

// Add has the end of the process wake a side that waits on l. Remove undoes it.
func (p *Process) Add(l *Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lanes[l] = struct{}{}
}

// Remove undoes Add.
func (p *Process) Remove(l *Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lanes, l)
}

// Send sends the child a packet with descriptors.
func (p *Process) Send(packet []byte, files ...int) error {
	p.sending.RLock()
	defer p.sending.RUnlock()
	if err := p.Err(); err != nil {
		return err
	}
	if err := unix.Sendmsg(p.socket, packet, unix.UnixRights(files...), nil, unix.MSG_NOSIGNAL); err != nil {
		err = fmt.Errorf("send to the process of the guest: %w", err)
		p.Kill(err)
		return err
	}
	return nil
}

// Receive waits for a packet of the child. Descriptors that it sends are dropped by the kernel.
func (p *Process) Receive() ([]byte, error) {
	buf := make([]byte, maxPacket)
	for {
		n, err := unix.Read(p.socket, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n > 0:
			return buf[:n], nil
		}
		select {
		case <-p.done:
		case <-time.After(time.Second):
			p.Kill(errors.New("the process of the guest has closed its channel"))
		}
		return nil, p.Err()
	}
}

// Child is the child's end of the channel.
type Child struct {
	// Weak are the reasons for which the wall is lower than it could be.
	Weak []string
}

// Main returns if the process is not a child in the role. Otherwise it shuts the process in, has serve
// serve, and ends the process.
func Main(role string, serve func(*Child)) {
	if len(os.Args) != 3 || os.Args[0] != role {
		return
	}
	data, err := strconv.ParseUint(os.Args[1], 10, 62)
	threads, wrong := strconv.ParseUint(os.Args[2], 10, 31)
	if err != nil || wrong != nil {
		return
	}
	if kind, err := unix.GetsockoptInt(channel, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return
	}
	weak, err := shutIn(data, threads)
	if err != nil {
		os.Exit(unshut)
	}
	serve(&Child{Weak: weak})
	os.Exit(0)
}

// Receive waits for a packet and its descriptors.
func (*Child) Receive() (packet []byte, files []int, ok bool) {
	packet, rights := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oob, _, _, err := unix.Recvmsg(channel, packet, rights, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, nil, false
		}
		messages, err := unix.ParseSocketControlMessage(rights[:oob])
		if err == nil && len(messages) == 1 {
			files, _ = unix.ParseUnixRights(&messages[0])
		}
		return packet[:n], files, true
	}
}

// Send sends a packet to the parent.
func (*Child) Send(packet []byte) { _, _ = unix.Write(channel, packet) }

// Map maps a file in memory, and closes it.
func Map(file, bytes int) ([]byte, error) {
	defer unix.Close(file)
	return unix.Mmap(file, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Fill writes parts to the beginning of a file of so many bytes.
func Fill(file, bytes int, parts [][]byte) error {
	b, err := unix.Mmap(file, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	at := 0
	for _, part := range parts {
		if len(part) > len(b)-at {
			err = fmt.Errorf("%d bytes are too few", bytes)
			break
		}
		at += copy(b[at:], part)
	}
	return errors.Join(err, unix.Munmap(b))
}

// Seal makes a file unchangeable, which nobody has mapped for writing.
func Seal(file int) error {
	_, err := unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	return err
}

// NewFile makes a file in memory of a fixed length.
func NewFile(bytes int) (file int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if file, err = unix.MemfdCreate("kubewasm-guest", flags|unix.MFD_NOEXEC_SEAL); err == unix.EINVAL { // Linux before 6.3 does not know the last flag.
		file, err = unix.MemfdCreate("kubewasm-guest", flags)
	}
	if err != nil {
		return -1, err
	}
	if err = unix.Ftruncate(file, int64(bytes)); err == nil {
		_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		unix.Close(file)
		return -1, err
	}
	return file, nil
}
