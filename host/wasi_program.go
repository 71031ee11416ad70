package host

import "encoding/binary"

// A program has arguments, standard input and standard output. Other guests have only Config.Args.

// defaultArgs are for Go code that looks at os.Args[0], which must find it.
var defaultArgs = []string{"guest.wasm"}

func (i *Instance) args() []string {
	if i.program.running {
		return i.program.args
	}
	if args := i.plugin.cfg.Args; len(args) > 0 {
		return args
	}
	if i.version.dialect != nil {
		return []string{i.plugin.cfg.Name} // As hosts of other ABIs do.
	}
	return defaultArgs
}

// argsSizesGet is args_sizes_get (argc_ptr, size_ptr).
func argsSizesGet(inst *Instance, args []uint64) uint64 {
	argc, ok := inst.bytes(args[0], 4)
	size, ok2 := inst.bytes(args[1], 4)
	if !ok || !ok2 {
		return wasiFault
	}
	argv, n := inst.args(), 0
	for _, arg := range argv {
		n += len(arg) + 1
	}
	binary.LittleEndian.PutUint32(argc, uint32(len(argv)))
	binary.LittleEndian.PutUint32(size, uint32(n))
	return wasiSuccess
}

// argsGet is args_get (argv, buf): it writes the arguments to buf, a NUL after
// each, and their addresses to argv.
func argsGet(inst *Instance, args []uint64) uint64 {
	argv, buf := args[0], args[1]
	for _, arg := range inst.args() {
		pointer, ok := inst.bytes(argv, 4)
		data, ok2 := inst.bytes(buf, uint64(len(arg)+1))
		if !ok || !ok2 {
			return wasiFault
		}
		binary.LittleEndian.PutUint32(pointer, uint32(buf))
		data[copy(data, arg)] = 0
		inst.meter.chargeBytes(len(data))
		argv, buf = argv+4, buf+uint64(len(data))
	}
	return wasiSuccess
}

// fdRead is fd_read (fd, iovs, iovs_len, nread_ptr). The only file is standard
// input. Buffers after the end of the input may lie outside of memory: bytes
// already read are not lost then.
func fdRead(inst *Instance, args []uint64) uint64 {
	if uint32(args[0]) != 0 || !inst.wasi.open(args[0]) {
		return wasiBadf
	}
	iovecs, errno := inst.iovecs(args[1], args[2])
	if errno != wasiSuccess {
		return errno
	}
	nread, ok := inst.bytes(args[3], 4)
	if !ok {
		return wasiFault
	}
	var read uint32
	for ; len(iovecs) > 0; iovecs = iovecs[8:] {
		buf, ok := inst.buffer(iovecs)
		if !ok {
			return wasiFault
		}
		n := copy(buf, inst.program.stdin)
		inst.program.read(inst, n)
		inst.meter.chargeBytes(n)
		read += uint32(n)
		if n < len(buf) {
			break
		}
	}
	binary.LittleEndian.PutUint32(nread, read)
	return wasiSuccess
}
