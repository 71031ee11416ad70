package host

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
)

const wasiModule = wasi_snapshot_preview1.ModuleName

// The error numbers of WASI preview 1 that our functions answer.
const (
	wasiSuccess = 0
	wasiBadf    = 8
	wasiFault   = 21
	wasiInval   = 28
	wasiNotsup  = 58
)

// The most that one call may ask for: as many buffers as Linux takes in a
// writev, and more events than any guest waits for.
const (
	maxIovecs        = 1024
	maxSubscriptions = 64
)

// wasiFunctions are ours where wazero's do not fit.
//
// proc_exit of wazero closes the module, after which its functions still run, on
// memory that is gone; ours only ends the call. Arguments and standard input are
// those of a call and not of an instance. The others work for as long as their
// arguments say, which a guest would not pay for.
var wasiFunctions = []struct {
	name    string
	params  int
	results []api.ValueType
	call    func(inst *Instance, stack []uint64)
}{
	{"proc_exit", 1, nil, func(_ *Instance, stack []uint64) { panic(sys.NewExitError(uint32(stack[0]))) }},
	{"args_sizes_get", 2, []api.ValueType{api.ValueTypeI32}, argsSizesGet},
	{"args_get", 2, []api.ValueType{api.ValueTypeI32}, argsGet},
	{"fd_read", 4, []api.ValueType{api.ValueTypeI32}, fdRead},
	{"fd_write", 4, []api.ValueType{api.ValueTypeI32}, fdWrite},
	{"random_get", 2, []api.ValueType{api.ValueTypeI32}, randomGet},
	{"poll_oneoff", 4, []api.ValueType{api.ValueTypeI32}, pollOneoff},
}

// instantiateWASI offers WASI preview 1 without files, environment, sockets,
// real clocks or randomness.
func instantiateWASI(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(wasiModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	for _, f := range wasiFunctions {
		im := &Import{Module: wasiModule, Name: f.name, Func: f.call}
		b.NewFunctionBuilder().
			WithGoModuleFunction(hostFunction(im), slices.Repeat([]api.ValueType{api.ValueTypeI32}, f.params), f.results).
			WithName(f.name).
			Export(f.name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("instantiate host module %q: %w", wasiModule, err)
	}
	return nil
}

// bytes returns the bytes [ptr, ptr+length) of the guest's memory, or false if
// they do not lie in it: WASI answers that with an error number, where the ABI
// ends the call.
func (i *Instance) bytes(ptr, length uint32) ([]byte, bool) {
	memory, _ := i.memory.Read(0, i.memory.Size())
	data, err := abi.Read(memory, ptr, length)
	return data, err == nil
}

// fdWrite is fd_write (fd, iovs, iovs_len, nwritten_ptr): standard output and
// standard error are what the guest prints, and there are no other files.
func fdWrite(inst *Instance, stack []uint64) {
	fd, count := uint32(stack[0]), uint32(stack[2])
	stack[0] = func() uint64 {
		if fd != 1 && fd != 2 {
			return wasiBadf
		}
		if count > maxIovecs {
			return wasiInval
		}
		iovecs, ok := inst.bytes(uint32(stack[1]), 8*count)
		if !ok {
			return wasiFault
		}
		var written uint64
		for ; len(iovecs) > 0; iovecs = iovecs[8:] {
			data, ok := inst.bytes(binary.LittleEndian.Uint32(iovecs), binary.LittleEndian.Uint32(iovecs[4:]))
			if !ok {
				return wasiFault
			}
			inst.meter.chargeBytes(len(data))
			inst.print(fd, data)
			written += uint64(len(data))
		}
		nwritten, ok := inst.bytes(uint32(stack[3]), 4)
		if !ok {
			return wasiFault
		}
		if written > 1<<31 {
			return wasiInval
		}
		binary.LittleEndian.PutUint32(nwritten, uint32(written))
		return wasiSuccess
	}()
}

// print takes what the guest writes to standard output or standard error. What a
// program writes to its standard output is its result.
func (i *Instance) print(fd uint32, data []byte) {
	if fd != 1 || !i.program.running {
		i.output.add(data)
		return
	}
	if limit := i.version.limits.ResultBytes; len(data) > limit-len(i.program.stdout) {
		i.Violate(fmt.Errorf("the program writes more than the limit of %d bytes", limit))
	}
	i.program.stdout = append(i.program.stdout, data...)
}

// randomGet is random_get (buf, buf_len).
func randomGet(inst *Instance, stack []uint64) {
	buf, ok := inst.bytes(uint32(stack[0]), uint32(stack[1]))
	if !ok {
		stack[0] = wasiFault
		return
	}
	inst.meter.chargeBytes(len(buf))
	if slices.Contains(inst.plugin.cfg.Grants, GrantRandom) {
		crand.Read(buf) // It never fails.
	} else {
		inst.random.fill(buf)
	}
	stack[0] = wasiSuccess
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

// pollOneoff is poll_oneoff (in, out, nsubscriptions, nevents_ptr). A guest has
// nothing to wait for but its clock, and no caller waits for a guest that
// sleeps: every timer has gone off already.
func pollOneoff(inst *Instance, stack []uint64) {
	const subscription, event = 48, 32 // Bytes.
	count := uint32(stack[2])
	stack[0] = func() uint64 {
		if count == 0 || count > maxSubscriptions {
			return wasiInval
		}
		in, ok := inst.bytes(uint32(stack[0]), subscription*count)
		out, ok2 := inst.bytes(uint32(stack[1]), event*count)
		nevents, ok3 := inst.bytes(uint32(stack[3]), 4)
		if !ok || !ok2 || !ok3 {
			return wasiFault
		}
		for n := range count {
			s, e := in[subscription*n:][:subscription], [event]byte{}
			copy(e[:8], s[:8]) // The guest's own number.
			kind := s[8]
			if e[10] = kind; kind == 0 {
				inst.meter.sleep(s)
			} else {
				e[8] = wasiNotsup // No clock: a file, and there is none to wait for.
			}
			copy(out[event*n:], e[:])
		}
		binary.LittleEndian.PutUint32(nevents, count)
		return wasiSuccess
	}()
}
