package host

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/recording"
)

const wasiModule = "wasi_snapshot_preview1"

// The error numbers of WASI preview 1 that the host's functions return.
const (
	wasiSuccess = 0
	wasiBadf    = 8
	wasiFault   = 21
	wasiInval   = 28
	wasiNosys   = 52
	wasiNotdir  = 54
	wasiNotsup  = 58
)

// The limits of one call: as many buffers as Linux takes in a writev, and more
// events than any guest waits for.
const (
	maxIovecs        = 1024
	maxSubscriptions = 64
)

// The fuel for the host's work, in proportion to its time, beside [hostCallFuel]
// and the bytes that it moves.
const (
	iovecFuel        = 16 // For a buffer of fd_read or fd_write.
	subscriptionFuel = 20 // For an event of poll_oneoff.
	randomFuel       = 4  // For a byte of random_get: the system's take 2 ns each.
)

// wasiImports are the functions of WASI preview 1, without files, environment, sockets, real clocks
// or randomness. They return the same as wazero's own do to a guest that has only its standard
// streams. wazero's are not used for three reasons. A guest would not pay fuel for their work,
// whose size its arguments determine. Descriptors that a guest has closed stay closed when its
// memory is reset. And proc_exit closes the module while its functions still run.
var wasiImports = []Import{
	wasi("args_get", argsGet, abi.I32, abi.I32),
	wasi("args_sizes_get", argsSizesGet, abi.I32, abi.I32),
	wasi("clock_res_get", clockResGet, abi.I32, abi.I32),
	wasi("clock_time_get", clockTimeGet, abi.I32, abi.I64, abi.I32),
	wasi("environ_get", always(wasiSuccess), abi.I32, abi.I32),
	wasi("environ_sizes_get", environSizesGet, abi.I32, abi.I32),
	wasi("fd_advise", ifOpen(0, wasiSuccess), abi.I32, abi.I64, abi.I64, abi.I32),
	wasi("fd_allocate", ifOpen(0, wasiNosys), abi.I32, abi.I64, abi.I64),
	wasi("fd_close", fdClose, abi.I32),
	wasi("fd_datasync", ifOpen(0, wasiSuccess), abi.I32),
	wasi("fd_fdstat_get", fdFdstatGet, abi.I32, abi.I32),
	wasi("fd_fdstat_set_flags", fdFdstatSetFlags, abi.I32, abi.I32),
	wasi("fd_fdstat_set_rights", always(wasiNosys), abi.I32, abi.I64, abi.I64),
	wasi("fd_filestat_get", fdFilestatGet, abi.I32, abi.I32),
	wasi("fd_filestat_set_size", ifOpen(0, wasiNosys), abi.I32, abi.I64),
	wasi("fd_filestat_set_times", ifOpen(0, wasiNosys), abi.I32, abi.I64, abi.I64, abi.I32),
	wasi("fd_pread", always(wasiBadf), abi.I32, abi.I32, abi.I32, abi.I64, abi.I32),
	wasi("fd_prestat_dir_name", always(wasiBadf), abi.I32, abi.I32, abi.I32),
	wasi("fd_prestat_get", always(wasiBadf), abi.I32, abi.I32),
	wasi("fd_pwrite", always(wasiBadf), abi.I32, abi.I32, abi.I32, abi.I64, abi.I32),
	wasi("fd_read", fdRead, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("fd_readdir", always(wasiBadf), abi.I32, abi.I32, abi.I32, abi.I64, abi.I32),
	wasi("fd_renumber", ifOpen(0, wasiNotsup), abi.I32, abi.I32),
	wasi("fd_seek", ifOpen(0, wasiNosys), abi.I32, abi.I64, abi.I32, abi.I32),
	wasi("fd_sync", ifOpen(0, wasiSuccess), abi.I32),
	wasi("fd_tell", ifOpen(0, wasiNosys), abi.I32, abi.I32),
	wasi("fd_write", fdWrite, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("path_create_directory", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32),
	wasi("path_filestat_get", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("path_filestat_set_times", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I64, abi.I64, abi.I32),
	wasi("path_link", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("path_open", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32, abi.I64, abi.I64, abi.I32, abi.I32),
	wasi("path_readlink", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("path_remove_directory", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32),
	wasi("path_rename", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("path_symlink", ifOpen(2, wasiNotdir), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("path_unlink_file", ifOpen(0, wasiNotdir), abi.I32, abi.I32, abi.I32),
	wasi("poll_oneoff", pollOneoff, abi.I32, abi.I32, abi.I32, abi.I32),
	{Module: wasiModule, Name: "proc_exit", Params: []abi.ValueType{abi.I32}, Func: procExit},
	wasi("proc_raise", always(wasiNosys), abi.I32),
	wasi("random_get", randomGet, abi.I32, abi.I32),
	wasi("sched_yield", always(wasiSuccess)),
	wasi("sock_accept", always(wasiBadf), abi.I32, abi.I32, abi.I32),
	wasi("sock_recv", always(wasiBadf), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("sock_send", always(wasiBadf), abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	wasi("sock_shutdown", always(wasiBadf), abi.I32, abi.I32),
}

// wasiFunction serves a call and returns an error number.
type wasiFunction func(inst *Instance, args []uint64) (errno uint64)

func wasi(name string, f wasiFunction, params ...abi.ValueType) Import {
	return Import{
		Module: wasiModule, Name: name, Params: params, Results: []abi.ValueType{abi.I32},
		Func: func(inst *Instance, stack []uint64) { stack[0] = f(inst, stack) },
	}
}

// always returns a function with a constant result.
func always(errno uint64) wasiFunction {
	return func(*Instance, []uint64) uint64 { return errno }
}

// ifOpen returns a function that checks only the descriptor in the argument
// with that index. It is for functions that are impossible or without effect on
// a standard stream.
func ifOpen(arg int, errno uint64) wasiFunction {
	return func(inst *Instance, args []uint64) uint64 {
		if !inst.wasi.open(args[arg]) {
			return wasiBadf
		}
		return errno
	}
}

// wasiState is the state of a guest in WASI. It is a value, and part of a
// snapshot.
type wasiState struct {
	// closed has bit n set when the guest has closed descriptor n: 0, 1 or 2,
	// the standard streams. There are no others.
	closed uint8
	// random is the source of a guest's random numbers, unless it is granted
	// real ones.
	random fakeRandom
}

func (s *wasiState) open(fd uint64) bool {
	n := uint32(fd)
	return n <= 2 && s.closed&(1<<n) == 0
}

// has reports whether the bytes [ptr, ptr+length) lie in the guest's memory: WASI answers that with an
// error number, where the ABI ends the call. put writes them.
func (i *Instance) has(ptr, length uint64) bool {
	return uint64(uint32(ptr))+uint64(uint32(length)) <= uint64(len(i.space()))
}

// bytes returns bytes of the guest's memory for reading, or false if it does not have them.
func (i *Instance) bytes(ptr, length uint64) ([]byte, bool) {
	if !i.has(ptr, length) {
		return nil, false
	}
	b, err := i.lend(uint32(ptr), uint32(length))
	return b, err == nil
}

// putUint32 writes a number to the guest's memory, which must have room for it.
func (i *Instance) putUint32(ptr uint64, n uint32) {
	i.put(uint32(ptr), binary.LittleEndian.AppendUint32(make([]byte, 0, 4), n))
}

// procExit only ends the call.
func procExit(_ *Instance, stack []uint64) { panic(sys.NewExitError(uint32(stack[0]))) }

// environSizesGet is environ_sizes_get (count_ptr, size_ptr).
func environSizesGet(inst *Instance, args []uint64) uint64 {
	if !inst.has(args[0], 4) || !inst.has(args[1], 4) {
		return wasiFault
	}
	inst.putUint32(args[0], 0)
	inst.putUint32(args[1], 0)
	return wasiSuccess
}

// fdClose is fd_close (fd).
func fdClose(inst *Instance, args []uint64) uint64 {
	if !inst.wasi.open(args[0]) {
		return wasiBadf
	}
	inst.wasi.closed |= 1 << uint32(args[0])
	return wasiSuccess
}

// A standard stream looks like a device without a terminal, with all the rights
// for a file.
const (
	streamType   = 1          // A block device.
	streamRights = 0x08e001ff // All rights for files, none for directories and sockets.
)

// fdFdstatGet is fd_fdstat_get (fd, stat_ptr).
func fdFdstatGet(inst *Instance, args []uint64) uint64 {
	if !inst.has(args[1], 24) {
		return wasiFault
	}
	if !inst.wasi.open(args[0]) {
		return wasiBadf
	}
	stat := [24]byte{streamType}
	binary.LittleEndian.PutUint64(stat[8:], streamRights)
	inst.put(uint32(args[1]), stat[:])
	return wasiSuccess
}

// fdFdstatSetFlags is fd_fdstat_set_flags (fd, flags). A stream supports only the flag to append,
// which it does anyway.
func fdFdstatSetFlags(inst *Instance, args []uint64) uint64 {
	const dsync, nonblock, rsync, sync = 1 << 1, 1 << 2, 1 << 3, 1 << 4
	flags := uint16(args[1])
	switch {
	case flags&(dsync|rsync|sync) != 0:
		return wasiInval
	case !inst.wasi.open(args[0]):
		return wasiBadf
	case flags&nonblock != 0:
		return wasiNosys
	}
	return wasiSuccess
}

// fdFilestatGet is fd_filestat_get (fd, stat_ptr).
func fdFilestatGet(inst *Instance, args []uint64) uint64 {
	if !inst.has(args[1], 64) {
		return wasiFault
	}
	if !inst.wasi.open(args[0]) {
		return wasiBadf
	}
	stat := [64]byte{16: streamType, 24: 1} // One link.
	inst.put(uint32(args[1]), stat[:])
	return wasiSuccess
}

// iovecs returns the list of buffers that fd_read and fd_write are given, 8 bytes
// each.
func (i *Instance) iovecs(list, count uint64) ([]byte, uint64) {
	n := uint32(count)
	if n > maxIovecs {
		return nil, wasiInval
	}
	i.meter.charge(iovecFuel * int(n))
	iovecs, ok := i.bytes(list, uint64(8*n))
	if !ok {
		return nil, wasiFault
	}
	return iovecs, wasiSuccess
}

// buffer returns the address and the length of the first buffer of a list.
func buffer(iovecs []byte) (ptr, length uint64) {
	return uint64(binary.LittleEndian.Uint32(iovecs)), uint64(binary.LittleEndian.Uint32(iovecs[4:]))
}

// fdWrite is fd_write (fd, iovs, iovs_len, nwritten_ptr). Standard output and standard error go to
// the guest's output; there are no other files.
func fdWrite(inst *Instance, args []uint64) uint64 {
	fd := uint32(args[0])
	if fd == 0 || !inst.wasi.open(args[0]) {
		return wasiBadf
	}
	iovecs, errno := inst.iovecs(args[1], args[2])
	if errno != wasiSuccess {
		return errno
	}
	var written uint64
	for ; len(iovecs) > 0; iovecs = iovecs[8:] {
		ptr, length := buffer(iovecs)
		if !inst.has(ptr, length) {
			return wasiFault
		}
		inst.meter.chargeBytes(int(length))
		inst.print(fd, ptr, int(length))
		written += length
	}
	if !inst.has(args[3], 4) {
		return wasiFault
	}
	if written > 1<<31 {
		return wasiInval
	}
	inst.putUint32(args[3], uint32(written))
	return wasiSuccess
}

// print takes bytes of its memory that the guest writes to standard output or standard
// error. The standard output of a program is its result.
func (i *Instance) print(fd uint32, ptr uint64, length int) {
	if fd != 1 || !i.program.running {
		i.logged++
		data, _ := i.bytes(ptr, uint64(min(length, i.output.room())))
		i.output.bytes = append(i.output.bytes, data...)
		return
	}
	if limit := i.version.limits.ResultBytes; length > limit-len(i.program.stdout) {
		i.Abort(fmt.Errorf("the program writes more than the limit of %d bytes", limit))
	}
	i.Keep(length)
	data, _ := i.bytes(ptr, uint64(length))
	i.program.stdout = append(i.program.stdout, data...)
}

// randomGet is random_get (buf, buf_len). The guest pays for each piece before it is made, so that
// a guest that fills all of its memory can be stopped meanwhile.
func randomGet(inst *Instance, args []uint64) uint64 {
	const piece = 4 << 10 // A multiple of 8, for fakeRandom.
	if !inst.has(args[0], args[1]) {
		return wasiFault
	}
	granted := slices.Contains(inst.plugin.cfg.Grants, GrantRandom)
	room := make([]byte, min(uint32(args[1]), piece))
	for ptr, left := uint32(args[0]), uint32(args[1]); left > 0; {
		next := room[:min(left, piece)]
		inst.pay(randomFuel * len(next))
		if granted {
			if outside := inst.plugin.with.Outside; outside != nil {
				outside.Random(next)
			} else {
				crand.Read(next) // It never fails.
			}
			if inst.tape != nil {
				inst.tape.Data(recording.Random, next)
			}
		} else {
			inst.wasi.random.fill(next)
		}
		inst.put(ptr, next)
		ptr, left = ptr+uint32(len(next)), left-uint32(len(next))
	}
	return wasiSuccess
}

// fakeRandom is a sequence of numbers that begins the same in each instance.
type fakeRandom struct{ pcg rand.PCG }

func (f *fakeRandom) fill(buf []byte) {
	for len(buf) >= 8 {
		binary.LittleEndian.PutUint64(buf, f.pcg.Uint64())
		buf = buf[8:]
	}
	if len(buf) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], f.pcg.Uint64())
		copy(buf, last[:])
	}
}

// pollOneoff is poll_oneoff (in, out, nsubscriptions, nevents_ptr). A guest can wait only for its
// clock. Callers do not wait for a guest that sleeps: every timer fires at once. A stream can
// always be read.
func pollOneoff(inst *Instance, args []uint64) uint64 {
	const (
		subscription, event = 48, 32 // Bytes.

		clock, write = 0, 2 // The event to wait for; 1 is to read.
	)
	count := uint32(args[2])
	if count == 0 || count > maxSubscriptions {
		return wasiInval
	}
	in, ok := inst.bytes(args[0], uint64(subscription*count))
	if !ok || !inst.has(args[1], uint64(event*count)) || !inst.has(args[3], 4) {
		return wasiFault
	}
	inst.meter.charge(subscriptionFuel * int(count))
	in = slices.Clone(in) // Events may lie over them.
	for n := range count {
		s, e := in[subscription*n:][:subscription], [event]byte{}
		copy(e[:8], s[:8]) // The guest's own number.
		kind := s[8]
		switch e[10] = kind; {
		case kind > write:
			return wasiInval
		case kind == clock:
			inst.meter.sleep(s)
		case !inst.wasi.open(uint64(binary.LittleEndian.Uint32(s[16:]))):
			e[8] = wasiBadf
		case kind == write:
			e[8] = wasiNotsup
		}
		inst.put(uint32(args[1])+event*n, e[:])
	}
	inst.putUint32(args[3], count)
	return wasiSuccess
}
