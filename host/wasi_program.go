package host

import "slices"

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
	if !inst.has(args[0], 4) || !inst.has(args[1], 4) {
		return wasiFault
	}
	argv, n := inst.args(), 0
	for _, arg := range argv {
		n += len(arg) + 1
	}
	inst.putUint32(args[0], uint32(len(argv)))
	inst.putUint32(args[1], uint32(n))
	return wasiSuccess
}

// argsGet is args_get (argv, buf): it writes the arguments to buf, a NUL after
// each, and their addresses to argv.
func argsGet(inst *Instance, args []uint64) uint64 {
	argv, buf := args[0], args[1]
	for _, arg := range inst.args() {
		data := append([]byte(arg), 0)
		if !inst.has(argv, 4) || !inst.has(buf, uint64(len(data))) {
			return wasiFault
		}
		inst.putUint32(argv, uint32(buf))
		inst.put(uint32(buf), data)
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
	if !inst.has(args[3], 4) {
		return wasiFault
	}
	var read uint32
	iovecs = slices.Clone(iovecs) // What is read may lie over them.
	for ; len(iovecs) > 0; iovecs = iovecs[8:] {
		ptr, length := buffer(iovecs)
		if !inst.has(ptr, length) {
			return wasiFault
		}
		n := min(int(length), len(inst.program.stdin))
		inst.put(uint32(ptr), inst.program.stdin[:n])
		inst.program.read(inst, n)
		inst.meter.chargeBytes(n)
		read += uint32(n)
		if n < int(length) {
			break
		}
	}
	inst.putUint32(args[3], read)
	return wasiSuccess
}
