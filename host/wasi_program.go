package host

import "encoding/binary"

// What a program sees of the world: its arguments, its standard input and its
// standard output. A guest that is no program has its name and nothing else.

func (i *Instance) args() []string {
	if i.program.running {
		return i.program.args
	}
	return []string{i.plugin.cfg.Name} // Go code that looks at os.Args[0] must find it.
}

// argsSizesGet is args_sizes_get (argc_ptr, size_ptr).
func argsSizesGet(inst *Instance, stack []uint64) {
	argc, ok := inst.bytes(uint32(stack[0]), 4)
	size, ok2 := inst.bytes(uint32(stack[1]), 4)
	if !ok || !ok2 {
		stack[0] = wasiFault
		return
	}
	args, n := inst.args(), 0
	for _, arg := range args {
		n += len(arg) + 1
	}
	binary.LittleEndian.PutUint32(argc, uint32(len(args)))
	binary.LittleEndian.PutUint32(size, uint32(n))
	stack[0] = wasiSuccess
}

// argsGet is args_get (argv, buf): the arguments, each with a NUL behind it, go
// to buf, and where they begin to argv.
func argsGet(inst *Instance, stack []uint64) {
	argv, buf := uint32(stack[0]), uint32(stack[1])
	for _, arg := range inst.args() {
		pointer, ok := inst.bytes(argv, 4)
		data, ok2 := inst.bytes(buf, uint32(len(arg))+1)
		if !ok || !ok2 {
			stack[0] = wasiFault
			return
		}
		binary.LittleEndian.PutUint32(pointer, buf)
		data[copy(data, arg)] = 0
		inst.meter.chargeBytes(len(data))
		argv, buf = argv+4, buf+uint32(len(data))
	}
	stack[0] = wasiSuccess
}

// fdRead is fd_read (fd, iovs, iovs_len, nread_ptr): standard input is what a
// program is given, and there are no other files.
func fdRead(inst *Instance, stack []uint64) {
	fd, count := uint32(stack[0]), uint32(stack[2])
	stack[0] = func() uint64 {
		if fd != 0 {
			return wasiBadf
		}
		if count > maxIovecs {
			return wasiInval
		}
		iovecs, ok := inst.bytes(uint32(stack[1]), 8*count)
		nread, ok2 := inst.bytes(uint32(stack[3]), 4)
		if !ok || !ok2 {
			return wasiFault
		}
		var read uint32
		for ; len(iovecs) > 0; iovecs = iovecs[8:] {
			buf, ok := inst.bytes(binary.LittleEndian.Uint32(iovecs), binary.LittleEndian.Uint32(iovecs[4:]))
			if !ok {
				return wasiFault
			}
			n := copy(buf, inst.program.stdin)
			inst.program.stdin = inst.program.stdin[n:]
			inst.meter.chargeBytes(n)
			read += uint32(n)
		}
		binary.LittleEndian.PutUint32(nread, read)
		return wasiSuccess
	}()
}
