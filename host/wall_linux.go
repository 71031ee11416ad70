//go:build amd64 || arm64

package host

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/snapmem"
	"github.com/kubewasm/kubewasm/internal/wall"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// The messages of a lane. The parent sends those above opDone, and the child the rest; each of the
// parent's has one answer, opDone or opFail, before which the child may ask.
const (
	opStart  wall.Op = iota // Instantiate the module.
	opBind                  // Find the function with the name in the text.
	opGet                   // Return the globals from N on, as many as there are words.
	opSet                   // Set them.
	opGrow                  // Grow the memory by N pages.
	opCall                  // Call the function N.
	opRead                  // Return N bytes of the memory from the first word on.
	opWrite                 // Do nothing, but for the text of all messages of the parent: see remoteInstance.write.
	opAdopt                 // Make an image the state that opReset restores.
	opReset                 // Restore it.
	opClose                 // End. It has no answer.
	opAnswer                // The result of a question.
	opPanic                 // The question ends the call.
	opDone
	opFail   // The text is the error.
	opHost   // Run the host function N.
	opYield  // The slice of fuel is used up.
	opMemory // Make the memory as long as the first word.
)

// wallRequest is what a child needs for its module, beside its bytes.
type wallRequest struct {
	Digest                string
	MemoryBytes           uint64
	StackBytes            int
	Compile               time.Duration
	DefineMemory          bool
	GoPass, Interpreter   bool
	ModuleBytes, ReplyMax int
	// CodeBytes is the size of the file for the machine code, and Compiled is set once that is there.
	CodeBytes int
	Compiled  bool
	// More is set if the process gets another module, before any guest runs.
	More bool
}

// wallInstance is what a child needs for an instance, beside its lane, or for its image. The files of
// the image are passed with it.
type wallInstance struct {
	ID          uint64
	Module      int
	Least, Most uint64
	// Image is the number of the image, 0 for none. Adopt is set for an instance that has a memory
	// already.
	Image  uint64
	Layers []snapmem.Layer
	Adopt  bool
}

// wallReply is the answer.
type wallReply struct {
	Err, Link string
	Info      *wasmbin.Info
	Memory    bool
	Weak      []string
	// Compiled is set if the machine code is in its file.
	Compiled bool
}

// A wallReply has at most maxGlobals globals, and maxWeak reasons are kept, up to maxWeakBytes of each.
const maxGlobals, maxWeak, maxWeakBytes = 50_000, 16, 256

// maxReply is the maximum size of a wallReply, which has a name for each mutable global.
const maxReply = 16 << 20

// dataBytes is the maximum private memory of a child, for the compiler above all, without the memories
// of guests.
const dataBytes = 2 << 30

// leastThreads is the number of threads of a child beside those of the instances that its plugins may
// have, and runtimeThreads of them are for other work.
const leastThreads, runtimeThreads = 128, 64

// checkWall returns the reason why there is no isolation by process on this system.
func checkWall() error { return nil }

// wallModule is a module with one function, which does nothing.
const wallModule = "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x04\x01\x02\x00\x0b"

// tryWall has a process compile a module, and another one begin with its machine code.
func (rt *Runtime) tryWall(ctx context.Context) error {
	c := &compiled{owner: rt, key: compiledKey{memoryBytes: pageSize, compile: defaultCompile, domain: "try"}}
	err := c.buildRemote(ctx, []byte(wallModule))
	if c.remote == nil {
		return err
	}
	defer c.remote.free()
	if err == nil {
		c.remote.now.Kill(errors.New("it has served"))
		_, err = c.remote.process(ctx)
	}
	return err
}

// remote is a module in a process of its own.
type remote struct {
	c       *compiled
	request wallRequest
	file    int // The module.
	// code is the file for its machine code, as the first process has compiled it. Then it is sealed, and
	// others begin with it.
	code int
	// domain is that of the module.
	domain *domain

	mu     sync.Mutex
	now    *remoteProcess
	ends   []time.Time
	closed bool
	// most is the time after which the start of another process is given up, 0 before the first one
	// has served: whoever wants the module gives that up.
	most time.Duration
}

// remoteProcess is a process that serves modules, or will. err is set before ready is closed.
type remoteProcess struct {
	*wall.Process
	modules []*remote
	// data and threads bound it.
	data    uint64
	threads int
	ready   chan struct{}
	reply   wallReply // About the last module.
	err     error
	// instances is the number of instances that it was asked for.
	instances atomic.Uint64
	// retired is set once it gets no more instances. It is closed with the last of users.
	retired atomic.Bool
	using   sync.Mutex
	users   int
	// asleep is the number of instances for whose answers the parent sleeps.
	asleep atomic.Int32
}

// A process that ends is replaced maxEnds times within endsWithin.
const (
	maxEnds    = 5
	endsWithin = time.Minute
	// leastRestart is the time that the start of another process has at least.
	leastRestart = 30 * time.Second
)

// buildRemote compiles the module in another process.
func (c *compiled) buildRemote(ctx context.Context, module []byte) error {
	if err := c.describe(module); err != nil {
		return err
	}
	for _, im := range c.imports {
		if n := max(len(im.Func.Params), len(im.Func.Results)); n > wall.MaxWords {
			return fmt.Errorf("import %s.%s has %d parameters or results, and isolation by process allows %d", im.Module, im.Name, n, wall.MaxWords)
		}
	}
	file, err := wall.NewFile(len(module))
	if err != nil {
		return err
	}
	for at := 0; at < len(module); {
		n, err := unix.Pwrite(file, module[at:], int64(at))
		if err != nil {
			unix.Close(file)
			return err
		}
		at += n
	}
	code := codeBytes(len(module))
	codeFile, err := wall.NewFile(code)
	if err != nil {
		unix.Close(file)
		return err
	}
	c.remote = &remote{c: c, file: file, code: codeFile, domain: c.owner.domain(c.key.domain), request: wallRequest{
		Digest: c.key.digest, MemoryBytes: c.key.memoryBytes, StackBytes: c.key.stackBytes, Compile: c.key.compile, DefineMemory: c.key.defineMemory,
		GoPass: c.owner.goPass, Interpreter: c.owner.engineName == EngineInterpreter, ModuleBytes: len(module), ReplyMax: maxReply, CodeBytes: code,
	}}
	begun := time.Now()
	p, err := c.remote.process(ctx)
	if err != nil {
		return err
	}
	c.remote.most = leastRestart + 10*time.Since(begun)
	c.info, c.exportsMemory = p.reply.Info, p.reply.Memory
	c.weaker = append(p.Weak, p.reply.Weak...)
	if p.reply.Link != "" {
		c.linkErr = errors.New(cut.Marked(p.reply.Link, maxErrorBytes))
	}
	return nil
}

// codeBytes returns the size of the file for the machine code of a module: Go modules take three times
// theirs. A module whose code is longer is compiled by each process.
func codeBytes(module int) int { return roundUp(8*module, pageSize) + 1<<20 }

// process returns the process that the module has alone, which is started if there is none.
func (r *remote) process(ctx context.Context) (*remoteProcess, error) {
	r.mu.Lock()
	p := r.now
	if p == nil || p.over() || p.full() {
		if r.closed {
			r.mu.Unlock()
			return nil, ErrClosed
		}
		if now := time.Now(); p != nil && !p.over() {
			p.retire()
		} else if p != nil {
			for len(r.ends) > 0 && now.Sub(r.ends[0]) > endsWithin {
				r.ends = r.ends[1:]
			}
			if len(r.ends) >= maxEnds {
				r.mu.Unlock()
				return nil, fmt.Errorf("%w; the last of %d processes within %s", p.reason(), maxEnds, endsWithin)
			}
			r.ends = append(r.ends, now)
			if p.Process != nil {
				p.Close()
			}
		}
		p = newRemoteProcess(r)
		r.now = p
		go p.start(r.most, r.c.ended)
	}
	r.mu.Unlock()
	return p, p.wait(ctx)
}

func newRemoteProcess(modules ...*remote) *remoteProcess {
	data, threads := needs(modules)
	return &remoteProcess{modules: modules, data: data, threads: threads, ready: make(chan struct{})}
}

// mostInstances is the maximum number of instances of a process: each may have two of its 4,096 files.
const mostInstances = 1900

// full reports whether the process serves, and has as many instances as its threads and files allow.
func (p *remoteProcess) full() bool {
	select {
	case <-p.ready:
		p.using.Lock()
		defer p.using.Unlock()
		return p.users >= min(p.threads-runtimeThreads, mostInstances)
	default:
		return false
	}
}

// wait waits until the process serves, or ctx ends.
func (p *remoteProcess) wait(ctx context.Context) error {
	select {
	case <-p.ready:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// use counts one more user of the process, or one less. It reports whether the process gets users.
func (p *remoteProcess) use(n int) bool {
	p.using.Lock()
	defer p.using.Unlock()
	if n > 0 && p.retired.Load() {
		return false
	}
	if p.users += n; p.users == 0 && p.retired.Load() && p.Process != nil {
		p.Close()
	}
	return true
}

// retire ends the process once it has no users.
func (p *remoteProcess) retire() {
	p.retired.Store(true)
	p.use(0)
}

// over reports whether the process was started and serves no more.
func (p *remoteProcess) over() bool {
	select {
	case <-p.ready:
		return p.reason() != nil
	default:
		return false
	}
}

// reason returns the reason for which the process, which was started, does not serve.
func (p *remoteProcess) reason() error {
	if p.err != nil {
		return p.err
	}
	return p.Err()
}

// errRefused is the error of a module that the child has refused: another child would refuse it, too.
type errRefused string

func (e errRefused) Error() string { return string(e) }

// start starts the process and gives it its modules, within most unless that is 0.
func (p *remoteProcess) start(most time.Duration, ended <-chan struct{}) {
	defer close(p.ready)
	p.err = func() (err error) {
		if p.Process, err = wall.Start(wall.Guest, p.data, p.threads); err != nil {
			return err
		}
		answered := make(chan struct{})
		defer close(answered)
		go func() { // A compilation that nobody waits for is stopped.
			select {
			case <-answered:
			case <-ended:
				p.Kill(context.Canceled)
			}
		}()
		begun := time.Now()
		late := fmt.Errorf("the process of the guest does not start: %w within %s", context.DeadlineExceeded, most)
		if most != 0 {
			timer := time.AfterFunc(most, func() { p.Kill(late) })
			defer timer.Stop()
		}
		for n, r := range p.modules {
			if err := p.give(r, n < len(p.modules)-1); err != nil {
				return err
			}
			if most != 0 && time.Since(begun) > most { // The timer of a busy machine can be later than the answer.
				return late
			}
		}
		return nil
	}()
	if p.err != nil && p.Process != nil {
		p.Close()
	}
}

// needs returns the bounds of a process with modules: its private memory, and its threads, of which each
// instance that waits for a call has one. While a version is replaced, another one may have as many
// instances.
func needs(modules []*remote) (data uint64, threads int) {
	rt := modules[0].c.owner
	rt.mu.Lock()
	defer rt.mu.Unlock()
	guests := uint64(0)
	for _, r := range modules {
		n := 2 * r.c.users * r.c.instances
		threads += n
		guests += uint64(n) * r.c.key.memoryBytes
	}
	return dataBytes + min(rt.memory.Budget.Limit(), guests), leastThreads + threads
}

// give gives the process a module, after which there are more or not.
func (p *remoteProcess) give(r *remote, more bool) error {
	file, err := wall.NewFile(maxReply)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	request := r.request
	request.More = more
	packet, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err = p.Send(packet, r.file, file, r.code); err != nil {
		return err
	}
	if packet, err = p.Receive(); err != nil {
		return err
	}
	n, err := strconv.Atoi(string(packet))
	if err != nil || n < 0 || n > maxReply {
		return fmt.Errorf("the process of the guest answers %.40q", packet)
	}
	text := make([]byte, n)
	for at := 0; at < n; {
		read, err := unix.Pread(file, text[at:], int64(at))
		if err != nil || read == 0 {
			return fmt.Errorf("read the answer of the process of the guest: %w", err)
		}
		at += read
	}
	p.reply = wallReply{}
	if err := json.Unmarshal(text, &p.reply); err != nil {
		return fmt.Errorf("read the answer of the process of the guest: %w", err)
	}
	if p.reply.Err != "" {
		return errRefused(cut.Marked(p.reply.Err, maxErrorBytes))
	}
	if p.reply.Compiled && !r.request.Compiled {
		// Neither this process nor one that follows can change what it executes.
		if err := wall.Seal(r.code); err != nil {
			return fmt.Errorf("seal the machine code of the guest: %w", err)
		}
		r.request.Compiled = true
	}
	return p.reply.check(r.request.MemoryBytes)
}

// check returns an error for a description that no module has.
func (r *wallReply) check(memoryBytes uint64) error {
	pages := uint64(wasmbin.MaxPages)
	switch m := r.Info; {
	case m == nil, len(m.Globals) > maxGlobals, r.Memory && m.Memory == nil, m.Memory != nil && (uint64(m.Memory.Min) > min(pages, memoryBytes/pageSize) || m.Memory.HasMax && m.Memory.Max < m.Memory.Min):
		return errors.New("the process of the guest describes a module that cannot be")
	}
	r.Weak = r.Weak[:min(len(r.Weak), maxWeak)]
	for i, text := range r.Weak {
		r.Weak[i] = cut.Text(text, maxWeakBytes)
	}
	return nil
}

// free ends the process.
func (r *remote) free() {
	r.domain.leave(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if p := r.now; p != nil {
		<-p.ready // A process that starts is sent the files.
		if p.Process != nil {
			p.Close()
		}
	}
	unix.Close(r.file)
	unix.Close(r.code)
}

// remoteInstance is an instance in another process. It is the module, as far as the host uses it, and
// the memory.
type remoteInstance struct {
	api.Module // It is nil.
	inst       *Instance
	process    *remoteProcess
	lane       wall.Lane
	id         uint64
	file       int // Of the lane, for the child.
	view       remoteMemory
	// queued is the number of bytes in the lane's room that the next message has the child write to its
	// memory.
	queued int
	// pending is set while a reset is under way. restored is set after the first one.
	pending, restored bool
	// seen are the ranges of memory that the running message has brought, in lent.
	seen  []seenRange
	fuel  remoteCell
	stack remoteCell
	// sent is the fuel that the child had last: it has no more afterwards.
	sent      int64
	functions map[string]*remoteFunction
	bound     uint32
	// frames has the words of the messages of the calls that are under way.
	frames []*[wall.MaxWords]uint64
	depth  int
	// lent has the copies of memory that host functions have since the guest ran last. Earlier ones may
	// lie in arrays that were replaced.
	lent []byte
	// messages counts those of the child. naps counts the sleeps in this wait since the call should
	// have ended.
	messages, naps int
	// slept is set if this wait has slept. peers is the maximum of process.asleep during naps, and used
	// the processor time of the process before them.
	slept bool
	peers int32
	used  time.Duration
	// starting is set while the instance is made, which reaches no check of its fuel, and adopting while
	// a load waits for it.
	starting, adopting bool
	check              func() error
	err                error
}

// loadWait is the least time that a load waits for its process, since no caller does. Many loads may start
// processes at once.
const loadWait = time.Minute

// loading reports whether no call can have an instance of the version yet.
func (v *version) loading() bool {
	v.pool.mu.Lock()
	defer v.pool.mu.Unlock()
	return v.pool.count == 0
}

// maxLent is the maximum room for copies that an instance keeps.
const maxLent = 1 << 20

// instantiateRemote makes the instance in the process of the module. inst has its memory.
func (c *compiled) instantiateRemote(ctx context.Context, inst *Instance) (_ api.Module, err error) {
	r := inst.remote
	defer func() {
		if err != nil {
			r.free()
		}
	}()
	// A process that starts compiles the module again, which may take longer than a call.
	most := inst.version.limits.Timeout
	if inst.version.loading() {
		most = max(most, loadWait)
	}
	once, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the process of the guest is not ready: %w of %s", context.DeadlineExceeded, most))
	defer cancel()
	from := inst.version.snapshot
	if c.info.Starts { // As in newMemory.
		from = nil
	}
	p, err := c.remote.serving(once, from != nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.use(-1)
		}
	}()
	r.process, r.id = p, p.instances.Add(1)
	request := wallInstance{ID: r.id, Module: slices.Index(p.modules, c.remote), Least: r.view.least, Most: r.view.most}
	if err := r.sendImage(request, from, r.file); err != nil {
		return nil, err
	}
	unix.Close(r.file)
	r.file = -1
	p.Add(&r.lane)
	r.starting = true
	_, err = r.exchange(opStart, 0, nil, "", nil)
	if r.starting = false; err != nil {
		p.Remove(&r.lane)
		return nil, err
	}
	return r, nil
}

// sendImage sends the child a request with the image of a snapshot, unless that is nil, and files.
func (r *remoteInstance) sendImage(request wallInstance, s *snapshot, files ...int) error {
	if s != nil {
		layers, its := s.image.Layers()
		if layers == nil && s.size != 0 { // It is not in a file.
			size := int(s.size)
			file, err := wall.NewFile(size)
			if err != nil {
				return err
			}
			defer unix.Close(file)
			if err := wall.Fill(file, size, [][]byte{s.image.Bytes()}); err != nil {
				return err
			}
			layers, its = []snapmem.Layer{{Size: size, Own: [][2]int{{0, size}}}}, []int{file}
		}
		request.Image, request.Layers = s.number, layers
		files = append(files, its...)
	}
	packet, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return r.process.Send(packet, files...)
}

// newRemoteMemory makes an instance in another process, as far as the parent has it. Its memory lies in
// the child: the parent has only the address space, which it counts and touches nothing of.
func (v *version) newRemoteMemory(inst *Instance, least, most uint64) error {
	m, err := v.plugin.runtime.memory.New(least, most)
	if err != nil {
		return err
	}
	lane, file, err := wall.NewLane()
	if err != nil {
		m.Free()
		return err
	}
	r := &remoteInstance{inst: inst, lane: lane, file: file, sent: fuelSlice, functions: map[string]*remoteFunction{}}
	r.view = remoteMemory{in: r, least: least, most: most}
	r.check = r.overdue
	inst.linear, inst.remote = m, r
	return nil
}

// free frees an instance that the process does not have.
func (r *remoteInstance) free() {
	if r.file >= 0 {
		unix.Close(r.file)
	}
	r.lane.Close()
}

// alive reports whether the process of an instance serves.
func (r *remoteInstance) alive() bool { return r.failure() == nil }

// moves reports whether an idle instance is replaced by one in the process that its domain shares.
func (r *remoteInstance) moves() bool {
	return r.process.retired.Load() && r.inst.version.snapshot != nil && r.inst.retained.Load() <= 0
}

// failure returns the reason why the process serves no more, nil if it serves.
func (r *remoteInstance) failure() error {
	if r.err != nil {
		return r.err
	}
	return r.process.Err()
}

// A message that calls a host function has a copy of the memory in each range that two parameters
// may be the address and the length of, up to maxSeen bytes of each.
const maxSeen = 1 << 10

// seenRange is a range of memory of which lent has a copy.
type seenRange struct {
	ptr, length uint32
	at          int
}

// seenRanges yields those ranges that may be in a message, for n parameters of which pair reports
// whether that and the next are 32-bit numbers. Both sides call it with the same values.
func seenRanges(words []uint64, pair func(n int) bool, size uint64) iter.Seq2[uint32, uint32] {
	return func(yield func(ptr, length uint32) bool) {
		for n := range len(words) - 1 {
			if !pair(n) {
				continue
			}
			if ptr, length := uint32(words[n]), uint32(words[n+1]); length != 0 && length <= maxSeen && uint64(ptr)+uint64(length) <= size && !yield(ptr, length) {
				return
			}
		}
	}
}

// see copies the ranges of memory in a message that calls a host function.
func (r *remoteInstance) see(im *Import, words []uint64) {
	pair := func(n int) bool { return im.Params[n] == abi.I32 && im.Params[n+1] == abi.I32 }
	room, at := r.lane.Room(), 0
	for ptr, length := range seenRanges(words[:len(im.Params)], pair, uint64(len(r.view.bytes))) {
		r.seen = append(r.seen, seenRange{ptr, length, len(r.lent)})
		r.lent = append(r.lent, room[at:at+int(length)]...)
		at += int(length)
	}
}

func (r *remoteInstance) space() []byte { return r.view.bytes }

// read returns a copy of the guest's memory, which must have the bytes. It is lent until the guest runs.
// If the process does not answer, read does not return.
func (r *remoteInstance) read(ptr, length uint32) []byte {
	for _, s := range r.seen {
		if ptr >= s.ptr && uint64(ptr)+uint64(length) <= uint64(s.ptr)+uint64(s.length) {
			at := s.at + int(ptr-s.ptr)
			return r.lent[at : at+int(length) : at+int(length)]
		}
	}
	begin := len(r.lent)
	for done := uint32(0); done < length; {
		n := min(length-done, wall.MaxText)
		word := [1]uint64{uint64(ptr + done)}
		if _, err := r.exchange(opRead, n, word[:], "", nil); err != nil {
			panic(err)
		}
		r.lent = append(r.lent, r.lane.Room()[:n]...)
		done += n
	}
	return r.lent[begin:len(r.lent):len(r.lent)]
}

// write has the next message write data to the guest's memory, which must have room for it.
func (r *remoteInstance) write(ptr uint32, data []byte) {
	const head = 8
	r.seen = r.seen[:0] // It may be older now.
	for len(data) != 0 {
		r.settle()
		room := r.lane.Room()[r.queued:]
		if len(room) <= head {
			if _, err := r.exchange(opWrite, 0, nil, "", nil); err != nil {
				panic(err)
			}
			continue
		}
		n := copy(room[head:], data)
		binary.LittleEndian.PutUint32(room, ptr)
		binary.LittleEndian.PutUint32(room[4:], uint32(n))
		r.queued += head + n
		ptr, data = ptr+uint32(n), data[n:]
	}
}

// settle waits until the lane is the parent's again. Errors are those of the next message.
func (r *remoteInstance) settle() {
	if !r.pending {
		return
	}
	r.pending, r.naps, r.peers = false, 0, 0
	if err := r.wait(); err != nil {
		_ = r.fail(err)
	} else if m := r.lane.Receive(nil); m.Op != opDone {
		_ = r.broke("a reset fails")
	}
}

// adopt makes a snapshot the one that reset restores. The instance stays as it is.
func (r *remoteInstance) adopt(s *snapshot) error {
	if err := r.sendImage(wallInstance{ID: r.id, Adopt: true}, s); err != nil {
		return err
	}
	r.adopting = true
	_, err := r.exchange(opAdopt, 0, nil, "", nil)
	r.adopting = false
	return err
}

// reset restores the snapshot and reports whether it can. It does not wait for a reset that cannot
// fail: the child does that while the parent works on.
func (r *remoteInstance) reset(s *snapshot) bool {
	if r.settle(); !r.alive() {
		return false
	}
	r.queued = 0
	if r.restored && uint64(len(r.view.bytes)) == s.size {
		r.send(opReset, 0, nil, "")
		r.pending = true
		return true
	}
	if _, err := r.exchange(opReset, 0, nil, "", nil); err != nil {
		return false
	}
	if r.view.bytes = r.inst.linear.Cut(s.size); r.view.bytes == nil && s.size != 0 {
		return false
	}
	if !r.restored {
		r.passGlobals(opSet, s.globals, s.globals, nil)
		r.restored = true
	}
	return r.alive()
}

// wait waits for a message of the child.
func (r *remoteInstance) wait() error {
	r.slept = false
	err := r.lane.Wait(r.check)
	if r.slept {
		r.process.asleep.Add(-1)
	}
	return err
}

// overdue is called while the guest's process is waited for. It ends the process after its end, some
// time after the call should have ended, between two calls after a second, and in a load after ten. Each
// other guest that is waited for may come first, with 10 ms of a processor. A process that has had less
// than half a processor since the call should have ended, as on a busy machine, has five times as long.
func (r *remoteInstance) overdue() error {
	if err := r.process.Err(); err != nil {
		return err
	}
	// Of 20 ms, but for the first of a wait: a process that answers ends that before. The time is not
	// compared: this process may have been stopped meanwhile.
	first := !r.slept
	if r.slept = true; first {
		r.process.asleep.Add(1)
	}
	most, err := 8, context.DeadlineExceeded
	if r.adopting {
		most = 500
	} else if r.inst.calling == "" {
		most = 50
	} else if cause := r.late(); cause == nil {
		return nil
	} else if err = cause.(error); r.starting {
		most = 50
	}
	if first {
		return nil
	}
	r.peers = max(r.peers, r.process.asleep.Load())
	if r.naps++; r.naps == 1 {
		r.used = r.process.ProcessorTime()
	}
	if most += int(r.peers); r.naps > most {
		used := r.process.ProcessorTime() - r.used
		if !r.adopting && r.naps <= 5*most && used > time.Millisecond && used < time.Duration(r.naps)*10*time.Millisecond {
			return nil // One that is stopped or waits for nothing uses less.
		}
		err = fmt.Errorf("the process of the guest does not answer: %w", err)
		r.process.Kill(err)
		return err
	}
	return nil
}

// late returns the error of a call that should have ended by now, and nil for others.
func (r *remoteInstance) late() any {
	i := r.inst
	if err := i.ctx.parent.Err(); err != nil {
		return err
	}
	if end := i.Deadline(); time.Now().After(end) {
		return fmt.Errorf("timeout of %s: %w", i.version.limits.Timeout, context.DeadlineExceeded)
	}
	return nil
}

func (r *remoteInstance) send(op wall.Op, n uint32, words []uint64, text string) {
	if op != opRead && op != opWrite {
		if cap(r.lent) > maxLent {
			r.lent = nil
		}
		r.lent, r.seen = r.lent[:0], r.seen[:0]
	}
	length := r.queued
	if r.queued, r.sent = 0, int64(r.fuel.value); text != "" {
		length = copy(r.lane.Room(), text)
	}
	r.lane.Send(wall.Message{Op: op, N: n, Fuel: r.sent, Stack: r.stack.value}, words, length)
}

// fail ends the use of the instance: its process is killed if it broke a rule.
func (r *remoteInstance) fail(err error) error {
	r.err = err
	return err
}

func (r *remoteInstance) broke(what string) error {
	err := fmt.Errorf("the process of the guest broke a rule: %s", what)
	r.process.Kill(err)
	return r.fail(err)
}

// exchange sends a message, and serves the child until it has the answer. Its words go to results.
func (r *remoteInstance) exchange(op wall.Op, n uint32, words []uint64, text string, results []uint64) (answer uint32, err error) {
	if r.settle(); r.err != nil {
		return 0, r.err
	}
	if text != "" && r.queued != 0 {
		if _, err := r.exchange(opWrite, 0, nil, "", nil); err != nil {
			return 0, err
		}
	}
	if r.depth == len(r.frames) {
		r.frames = append(r.frames, new([wall.MaxWords]uint64))
	}
	frame := r.frames[r.depth]
	if r.depth++; r.depth == 1 && op != opGet && op != opSet && op != opRead && op != opWrite {
		r.naps, r.peers = 0, 0
	}
	defer func() { r.depth-- }()
	imports, asked := r.inst.version.imports, op
	var cause any // The panic of a host function that ends the call.
	for r.send(op, n, words, text); ; r.send(op, 0, words, "") {
		if err := r.wait(); err != nil {
			return 0, r.fail(err)
		}
		m := r.lane.Receive(results)
		r.fuel.value, r.stack.value = uint64(min(max(m.Fuel, math.MinInt64/4), r.sent)), m.Stack
		words = nil
		if r.messages++; m.Op > opFail && cause == nil && r.inst.calling != "" && (r.messages%64 == 0 || r.slept && !r.starting) {
			cause = r.late() // A guest that asks and asks gets no other answer.
		}
		switch {
		case m.Op == opFail:
			return 0, remoteError(string(r.lane.Text()), cause)
		case op == opPanic:
			return 0, r.broke("it goes on after an error")
		case m.Op == opDone:
			return m.N, nil
		case !mayAsk(asked, m.Op):
			return 0, r.broke(fmt.Sprintf("message %d during %d", m.Op, asked))
		case m.Op == opHost && m.N < uint32(len(imports)):
			im := imports[m.N]
			words = frame[:max(len(im.Params), len(im.Results))]
			r.lane.Receive(words)
			if cause == nil {
				r.see(im, words)
				cause = r.host(m.N, words)
			}
			words = words[:len(im.Results)]
		case m.Op == opYield && cause != nil:
		case m.Op == opYield:
			cause = r.host(math.MaxUint32, nil)
		case m.Op == opMemory:
			r.lane.Receive(frame[:1])
			words = frame[:1]
			if words[0]%pageSize != 0 || words[0] < uint64(len(r.view.bytes)) {
				return 0, r.broke(fmt.Sprintf("a memory of %d bytes becomes one of %d", len(r.view.bytes), words[0]))
			}
			words[0] = r.view.resize(words[0])
		default:
			return 0, r.broke(fmt.Sprintf("message %d", m.Op))
		}
		if op = opAnswer; cause != nil {
			op = opPanic
		}
	}
}

// mayAsk reports whether the child may ask before its answer to a message. Host functions read and write
// its memory: if it had them run for that as well, they would call each other without end.
func mayAsk(message, question wall.Op) bool {
	return message == opStart || message == opCall || message == opGrow && question == opMemory
}

// host runs a host function, and returns the value that it panicked with.
func (r *remoteInstance) host(n uint32, words []uint64) (cause any) {
	defer func() {
		if cause = recover(); cause != nil {
			if e, ok := cause.(runtime.Error); ok {
				cause = fmt.Errorf("%w (recovered by the host)\n%s", e, debug.Stack())
			}
		}
	}()
	if n == math.MaxUint32 {
		r.inst.yield(r)
	} else {
		hostFunction(int(n))(&r.inst.ctx, r, words)
	}
	return nil
}

// wallError is an error of a guest in another process, in wazero's words.
type wallError struct {
	text  string
	cause error
}

func (e *wallError) Error() string { return e.text }

func (e *wallError) Unwrap() error { return e.cause }

// remoteError returns the error that wazero would return. text is that of the child, and cause the
// panic of the host function that ended the call, nil if none did.
func remoteError(text string, cause any) error {
	text, stack, traced := strings.Cut(text, stackTrace)
	text, stack = cut.Text(text, maxErrorBytes), cut.Text(stack, maxStackBytes)
	if cause == nil && traced {
		text += stackTrace + stack
	}
	if cause == nil {
		return &wallError{text: text}
	}
	if exit, ok := cause.(*sys.ExitError); ok {
		return exit
	}
	err, ok := cause.(error)
	if !ok {
		return &wallError{text: fmt.Sprint(cause) + recovered + stackTrace + stack}
	}
	return &wallError{err.Error() + recovered + stackTrace + stack, err}
}

const (
	recovered  = " (recovered by wazero)"
	stackTrace = "\nwasm stack trace:\n"
)

// Close implements api.Module.
func (r *remoteInstance) Close(context.Context) error {
	if r.settle(); r.alive() {
		r.send(opClose, 0, nil, "")
	}
	r.process.Remove(&r.lane)
	r.process.use(-1)
	r.free()
	r.inst.linear.Free()
	return nil
}

// ExportedMemory implements api.Module.
func (r *remoteInstance) ExportedMemory(string) api.Memory { return &r.view }

// ExportedFunction implements api.Module, for a function of the module. It never returns nil: calls of a
// function that the child does not find, or was not asked for in time, return the error.
func (r *remoteInstance) ExportedFunction(name string) api.Function {
	f := r.functions[name]
	if f == nil {
		f = &remoteFunction{in: r, index: r.bound}
		if _, err := r.exchange(opBind, 0, nil, name, nil); err != nil {
			f.err = fmt.Errorf("find the function %q: %w", name, err)
		} else {
			r.bound++
		}
		r.functions[name] = f
	}
	return f
}

// ExportedGlobal implements api.Module.
func (r *remoteInstance) ExportedGlobal(name string) api.Global {
	switch name {
	case wasmbin.FuelGlobal:
		return &r.fuel
	case wasmbin.StackGlobal:
		return &r.stack
	}
	return nil // Those of a snapshot pass together.
}

// remoteFunction is a function of the guest. The child has a handle of it for each depth.
type remoteFunction struct {
	api.Function // It is nil.
	in           *remoteInstance
	index        uint32
	err          error // Of each call, nil if the child has found the function.
}

// CallWithStack implements api.Function. The host has passed the instance its context.
func (f *remoteFunction) CallWithStack(_ context.Context, stack []uint64) error {
	if f.err != nil {
		return f.err
	}
	_, err := f.in.exchange(opCall, f.index, stack, "", stack)
	return err
}

// remoteCell is a counter that each message carries.
type remoteCell struct {
	api.MutableGlobal // It is nil.
	value             uint64
}

func (c *remoteCell) Get() uint64  { return c.value }
func (c *remoteCell) Set(v uint64) { c.value = v }

// image copies the memory and the globals for a snapshot.
func (r *remoteInstance) image(globals []uint64) (memory []byte) {
	memory = make([]byte, 0, len(r.view.bytes))
	for len(memory) < cap(memory) {
		r.lent, r.naps = r.lent[:0], 0
		n := min(cap(memory)-len(memory), wall.MaxText)
		word := [1]uint64{uint64(len(memory))}
		if _, err := r.exchange(opRead, uint32(n), word[:], "", nil); err != nil {
			return memory[:cap(memory)] // The caller asks whether the process is alive.
		}
		memory = append(memory, r.lane.Room()[:n]...)
	}
	r.passGlobals(opGet, globals, nil, globals)
	return memory
}

// passGlobals passes all globals of a snapshot. The process has the time of one answer for all of them.
func (r *remoteInstance) passGlobals(op wall.Op, all, words, results []uint64) {
	r.naps = 0
	piece := func(values []uint64, at int) []uint64 {
		return values[min(at, len(values)):min(at+wall.MaxWords, len(values))]
	}
	for at := 0; at < len(all) && r.err == nil; at += wall.MaxWords {
		if _, err := r.exchange(op, uint32(at), piece(words, at), "", piece(results, at)); err != nil {
			_ = r.fail(err)
		}
	}
}

// remoteMemory is the memory of a guest in another process.
type remoteMemory struct {
	api.Memory // It is nil.
	in         *remoteInstance
	// bytes are as many as those of the memory, and have other contents.
	bytes       []byte
	least, most uint64
}

// resize answers the child's question for a memory of another length: with 0 if it gets none, and
// otherwise with 1 more than its length.
func (m *remoteMemory) resize(size uint64) uint64 {
	if size > m.most {
		return 0
	}
	b := m.in.inst.linear.Reallocate(size)
	if b == nil && size != 0 {
		return 0
	}
	m.bytes = b
	return uint64(len(b)) + 1
}

// Read implements api.Memory, for tests: it returns a copy.
func (m *remoteMemory) Read(offset, n uint32) ([]byte, bool) {
	if uint64(offset)+uint64(n) > uint64(len(m.bytes)) {
		return nil, false
	}
	return m.in.read(offset, n), true
}

// Size implements api.Memory.
func (m *remoteMemory) Size() uint32 { return uint32(len(m.bytes)) }

// Grow implements api.Memory.
func (m *remoteMemory) Grow(pages uint32) (before uint32, ok bool) {
	before = m.Size() / pageSize
	done, err := m.in.exchange(opGrow, pages, nil, "", nil)
	return before, err == nil && done == 1
}

func init() { wall.Main(wall.Guest, func(child *wall.Child) { serveWall(child, walledFunction) }) }

// serveWall serves modules in a child. host returns the function for an import of a module.
func serveWall(child *wall.Child, host func(fn wasmbin.Extern, n int) api.GoModuleFunc) {
	all := walledInstances{tidy: time.AfterFunc(time.Hour, debug.FreeOSMemory), images: map[uint64]*walledImage{}, instances: map[uint64]*walled{}}
	for more := true; more; {
		packet, files, ok := child.Receive()
		var request wallRequest
		if !ok || len(files) != 3 || json.Unmarshal(packet, &request) != nil || all.build(child, &request, files, host) != nil {
			return
		}
		more = request.More
	}
	for {
		packet, files, ok := child.Receive()
		var request wallInstance
		if !ok || json.Unmarshal(packet, &request) != nil || all.take(&request, files) != nil {
			return
		}
	}
}

// build compiles a module and tells the parent. After an error the child must end.
func (a *walledInstances) build(child *wall.Child, request *wallRequest, files []int, host func(fn wasmbin.Extern, n int) api.GoModuleFunc) error {
	module, err := wall.Map(files[0], request.ModuleBytes)
	if err != nil {
		return err
	}
	reply, err := wall.Map(files[1], request.ReplyMax)
	if err != nil {
		return err
	}
	c, answer := buildWalled(request, module, files[2], host)
	a.modules = append(a.modules, c)
	answer.Weak = child.Weak
	if !request.More {
		if err := wall.Lock(); err != nil {
			answer.Err = err.Error()
		}
	}
	length := func() int { // In a function, so that the text is not kept.
		text, err := json.Marshal(answer)
		if err != nil || len(text) > len(reply) {
			text, _ = json.Marshal(wallReply{Err: "the description of the module is too long"})
		}
		return copy(reply, text)
	}()
	_ = unix.Munmap(reply)
	// What is still needed of the module is read again.
	_ = unix.Madvise(module, unix.MADV_DONTNEED)
	answer = wallReply{}
	if c.code != nil { // It was read for its checksum. What does not run stays in the file.
		splitMapping(c.code, pieceBytes)
		dropPages(c.code)
	}
	debug.FreeOSMemory() // The next module is compiled where this one's garbage was.
	child.Send([]byte(strconv.Itoa(length)))
	return nil
}

// walledInstances are the instances of a child, and their images.
type walledInstances struct {
	modules   []*compiled
	tidy      *time.Timer // Gives the garbage of starts back, a second after the last one.
	mu        sync.Mutex
	images    map[uint64]*walledImage
	instances map[uint64]*walled
}

// walledImage is an image with the number of its users.
type walledImage struct {
	*snapmem.Image
	number uint64
	users  int
}

// take does what a packet asks for. After an error the child must end.
func (a *walledInstances) take(request *wallInstance, files []int) error {
	if !request.Adopt && (len(files) == 0 || uint(request.Module) >= uint(len(a.modules))) {
		return errors.New("no lane or no module")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.instances[request.ID]
	if !request.Adopt {
		lane, err := wall.OpenLane(files[0])
		if err != nil {
			return err
		}
		w = newWalled(a, request, lane)
		a.instances[w.id], files = w, files[1:]
	}
	var image *walledImage
	if request.Image != 0 {
		if image = a.images[request.Image]; image != nil {
			for _, f := range files {
				unix.Close(f)
			}
		} else {
			opened, err := snapmem.OpenLayers(request.Layers, files)
			if err != nil {
				return err
			}
			image = &walledImage{Image: opened, number: request.Image}
			a.images[image.number] = image
		}
		image.users++
	}
	if request.Adopt {
		if w == nil {
			return errors.New("no instance")
		}
		w.adopted <- image
		return nil
	}
	go w.serve(image)
	return nil
}

// drop ends the use of images by an instance, and the instance.
func (a *walledInstances) drop(w *walled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.instances, w.id)
	for _, image := range w.images {
		if image.users--; image.users == 0 {
			image.Close()
			delete(a.images, image.number)
		}
	}
}

// buildWalled compiles the module in the child.
func buildWalled(request *wallRequest, module []byte, code int, host func(fn wasmbin.Extern, n int) api.GoModuleFunc) (*compiled, wallReply) {
	rt := &Runtime{
		goPass: request.GoPass, compiling: make(chan struct{}, 1), mappings: &mappings{}, shared: wazero.NewCompilationCache(),
		cacheFailed: func(error) {}, // The next process compiles the module again.
	}
	file := os.NewFile(uintptr(code), oneFile)
	written := request.Compiled
	rt.modules.open = func() (*os.File, error) {
		if !written {
			return nil, os.ErrNotExist
		}
		written = false // The file is closed if it is not used.
		return file, nil
	}
	rt.modules.store = func(parts [][]byte) error {
		if request.Compiled {
			return errNoStub
		}
		err := wall.Fill(code, request.CodeBytes, parts)
		written = err == nil
		return err
	}
	rt.engine = wazero.NewRuntimeConfigCompiler()
	if request.Interpreter {
		rt.engine = wazero.NewRuntimeConfigInterpreter()
		rt.modules = moduleCache{}
	}
	rt.building.Add(1)
	c := &compiled{owner: rt, ready: make(chan struct{}), key: compiledKey{
		digest: request.Digest, memoryBytes: request.MemoryBytes, stackBytes: request.StackBytes, compile: request.Compile, defineMemory: request.DefineMemory,
	}}
	c.build(context.Background(), module, nil)
	if c.err != nil {
		return c, wallReply{Err: c.err.Error()}
	}
	answer := wallReply{Info: c.info, Memory: c.exportsMemory, Compiled: c.code != nil}
	err := c.linkTo(func(n int) api.GoModuleFunc { return host(c.hosted[n], n) }, func(ctx context.Context, m api.Module, _ []uint64) { ctx.(*walledContext).ask(m, opYield, 0, nil, nil) })
	if err != nil {
		answer.Link = err.Error()
	}
	return c, answer
}

// walledFunction returns the function for an import, which has the parent run the host function n.
func walledFunction(fn wasmbin.Extern, n int) api.GoModuleFunc {
	params, results := len(fn.Func.Params), len(fn.Func.Results)
	types, _ := valueTypes(fn)
	pair := func(n int) bool { return types[n] == abi.I32 && types[n+1] == abi.I32 }
	return func(ctx context.Context, m api.Module, stack []uint64) {
		w, at := ctx.(*walledContext).walled, 0
		room, memory := w.lane.Room(), w.memory
		for ptr, length := range seenRanges(stack[:params], pair, uint64(len(memory))) {
			at += copy(room[at:], memory[ptr:ptr+length])
		}
		w.ask(m, opHost, uint32(n), stack[:params], stack[:results])
	}
}

// walled is an instance in the child.
type walled struct {
	all       *walledInstances
	c         *compiled
	id        uint64
	lane      wall.Lane
	ctx       walledContext
	request   *wallInstance
	linear    *snapmem.Memory
	memory    []byte // As the guest sees it.
	images    []*walledImage
	adopted   chan *walledImage
	resetting bool
	module    api.Module
	fuel      api.MutableGlobal
	stack     api.MutableGlobal
	globals   []api.MutableGlobal
	saved     []uint64 // Those of the image.
	names     []string
	handles   [][]api.Function // By depth.
	find      handles
	depth     int
	words     [wall.MaxWords]uint64
	allocator walledMemory
}

// walledContext is the context that the guest runs under.
type walledContext struct {
	context.Context
	*walled
}

// walledAllocator makes the memories of a child. Its parent counts them.
var walledAllocator = snapmem.Allocator{Budget: snapmem.NewBudget(0)}

func newWalled(all *walledInstances, request *wallInstance, lane wall.Lane) *walled {
	w := &walled{all: all, c: all.modules[request.Module], id: request.ID, request: request, lane: lane, adopted: make(chan *walledImage, 1)}
	w.ctx.walled, w.allocator.walled = w, w
	w.ctx.Context = experimental.WithMemoryAllocator(context.Background(), &w.allocator)
	return w
}

// serve serves the parent until it closes the instance.
func (w *walled) serve(image *walledImage) {
	var err error
	if image != nil {
		w.images = append(w.images, image)
		w.linear, err = walledAllocator.NewFrom(image.Image, w.request.Least, w.request.Most)
	} else {
		w.linear, err = walledAllocator.New(w.request.Least, w.request.Most)
	}
	for idle := w.lane; err == nil; { // It learns the times between calls.
		_ = idle.Wait(nil)
		if !w.handle(w.receive()) {
			break
		}
	}
	if err != nil {
		_ = w.lane.Wait(nil)
		w.fail(err)
	}
	if w.module != nil {
		_ = w.module.Close(context.Background())
	}
	if w.linear != nil {
		w.linear.Free()
	}
	w.lane.Close()
	w.all.drop(w)
}

func (w *walled) receive() wall.Message {
	m := w.lane.Receive(w.words[:])
	if m.Op != opBind {
		w.write(w.lane.Text())
	}
	if w.fuel != nil && m.Op != opClose {
		w.fuel.Set(uint64(m.Fuel))
		w.stack.Set(m.Stack)
	}
	return m
}

// write writes what a message has for the memory.
func (w *walled) write(list []byte) {
	for len(list) >= 8 {
		ptr, n := binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:])
		copy(w.memory[ptr:], list[8:8+n])
		list = list[8+n:]
	}
}

func (w *walled) fail(err error) { w.send(opFail, 0, nil, copy(w.lane.Room(), err.Error())) }

func (w *walled) send(op wall.Op, n uint32, words []uint64, length int) {
	m := wall.Message{Op: op, N: n}
	if w.fuel != nil {
		m.Fuel, m.Stack = int64(w.fuel.Get()), w.stack.Get()
	}
	w.lane.Send(m, words, length)
}

// bind finds the counters.
func (w *walled) bind(m api.Module) {
	if w.fuel == nil && m != nil {
		w.fuel = m.ExportedGlobal(wasmbin.FuelGlobal).(api.MutableGlobal)
		w.stack = m.ExportedGlobal(wasmbin.StackGlobal).(api.MutableGlobal)
	}
}

// errHost is the panic with which a call ends whose host function has panicked.
var errHost = errors.New("the host ends the call")

// ask asks the parent, and serves it until it answers.
func (w *walled) ask(m api.Module, op wall.Op, n uint32, words, results []uint64) {
	w.bind(m)
	w.send(op, n, words, 0)
	for {
		_ = w.lane.Wait(nil)
		switch m := w.receive(); m.Op {
		case opAnswer:
			copy(results, w.words[:])
			return
		case opPanic:
			panic(errHost)
		default:
			w.handle(m)
		}
	}
}

// handle does what the parent asks for, and reports whether the instance stays.
func (w *walled) handle(m wall.Message) bool {
	var err error
	var n uint32
	var words []uint64
	length := 0
	switch m.Op {
	case opStart:
		if w.module, err = w.c.wasm.InstantiateModule(&w.ctx, w.c.module, moduleConfig); err == nil {
			w.bind(w.module)
			if len(w.images) == 0 {
				err = w.c.content.write(w.module.ExportedMemory(memoryExport))
			}
			for _, g := range w.c.info.Globals {
				w.globals = append(w.globals, w.module.ExportedGlobal(g.Name).(api.MutableGlobal))
			}
			w.all.tidy.Reset(time.Second)
		}
	case opBind:
		name := string(w.lane.Text())
		if f := w.module.ExportedFunction(name); f == nil {
			err = errors.New("no such function")
		} else {
			w.find, _ = handlesOf(f)
			w.names = append(w.names, name)
		}
	case opGet:
		words = w.words[:0]
		for _, g := range w.globals[m.N:min(int(m.N)+wall.MaxWords, len(w.globals))] {
			words = append(words, g.Get())
		}
	case opSet:
		for i, g := range w.globals[m.N:min(int(m.N)+wall.MaxWords, len(w.globals))] {
			g.Set(w.words[i])
		}
		w.saved = append(w.saved[:min(int(m.N), len(w.saved))], w.words[:min(wall.MaxWords, len(w.globals)-int(m.N))]...)
	case opGrow:
		if _, ok := w.module.ExportedMemory(memoryExport).Grow(m.N); ok {
			n = 1
		}
	case opCall:
		words, err = w.call(m.N)
	case opRead:
		length = copy(w.lane.Room(), w.memory[w.words[0]:][:m.N])
	case opWrite:
	case opAdopt:
		image := <-w.adopted
		w.images = append(w.images, image)
		w.saved = w.saved[:0]
		for _, g := range w.globals {
			w.saved = append(w.saved, g.Get())
		}
		err = w.linear.Adopt(image.Image)
		w.c.rest() // The start does not run again.
		debug.FreeOSMemory()
	case opReset:
		err = w.reset()
	default:
		return false
	}
	if err != nil {
		w.fail(err)
		return w.module != nil
	}
	w.send(opDone, n, words, length)
	return true
}

// reset restores the image and, after the first time, its globals.
func (w *walled) reset() error {
	w.resetting = true
	ok := w.linear.Reset(w.module.ExportedMemory(memoryExport))
	if w.resetting = false; !ok {
		return errors.New("the memory cannot be reset")
	}
	for i, v := range w.saved {
		w.globals[i].Set(v)
	}
	return nil
}

// call calls a function of the guest.
func (w *walled) call(n uint32) ([]uint64, error) {
	if w.depth == len(w.handles) {
		w.handles = append(w.handles, nil)
	}
	for len(w.handles[w.depth]) < len(w.names) {
		w.handles[w.depth] = append(w.handles[w.depth], nil)
	}
	handles := w.handles[w.depth]
	if handles[n] == nil {
		handles[n] = w.module.ExportedFunction(w.names[n])
	}
	w.depth++
	// The words of the message are used by messages of this call.
	stack := [maxParams]uint64(w.words[:maxParams])
	err := handles[n].CallWithStack(&w.ctx, stack[:])
	w.depth--
	if err != nil || w.find.stackOf(handles[n]) > maxIdleStack {
		handles[n] = nil
	}
	copy(w.words[:], stack[:])
	return w.words[:maxParams], err
}

// walledMemory is the allocator of an instance in the child, which asks the parent except for resets.
type walledMemory struct{ *walled }

func (m *walledMemory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

func (m *walledMemory) Reallocate(size uint64) []byte {
	if !m.resetting {
		var answer [1]uint64
		if m.ask(nil, opMemory, 0, []uint64{size}, answer[:]); answer[0] == 0 {
			return nil
		}
	}
	b := m.linear.Reallocate(size)
	if b != nil {
		m.memory = b
	}
	return b
}

func (*walledMemory) Free() {}
