package kubewarden

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// imports are the functions of waPC. Functions that return bytes write all of them, since the guest
// has allocated the announced length.
func imports(plugin string, capabilities *hostCapabilities, logger *slog.Logger) []host.Import {
	function := func(name string, params, results int, f func(inst host.DialectInstance, e *exchange, stack []uint64)) host.Import {
		return host.Import{
			Module: module, Name: name, Params: i32s(params), Results: i32s(results), Memory: 1<<params - 1,
			Func: func(inst *host.Instance, stack []uint64) { f(inst.Dialect(), exchangeOf(inst.Dialect()), stack) },
		}
	}
	return []host.Import{
		function("__guest_request", 2, 0, func(inst host.DialectInstance, e *exchange, stack []uint64) {
			put(inst, uint32(stack[0]), e.operation)
			put(inst, uint32(stack[1]), e.payload)
		}),
		function("__guest_response", 2, 0, func(inst host.DialectInstance, e *exchange, stack []uint64) {
			e.response = replace(inst, e.response, stack)
		}),
		function("__guest_error", 2, 0, func(inst host.DialectInstance, e *exchange, stack []uint64) {
			e.failure = replace(inst, e.failure, stack)
		}),
		function("__host_call", 8, 1, func(inst host.DialectInstance, e *exchange, stack []uint64) {
			answer, shape, err := capabilities.answer(inst, stack)
			e.shape = shape
			if err != nil {
				inst.Keep(-len(e.hostResponse))
				e.hostResponse, e.hostError = nil, []byte(err.Error())
				stack[0] = 0
				return
			}
			inst.Keep(len(answer) - len(e.hostResponse))
			e.hostResponse, e.hostError = answer, nil
			stack[0] = 1
		}),
		function("__host_response_len", 0, 1, func(_ host.DialectInstance, e *exchange, stack []uint64) { stack[0] = uint64(len(e.hostResponse)) }),
		function("__host_response", 1, 0, func(inst host.DialectInstance, e *exchange, stack []uint64) {
			if e.shape != nil {
				inst.Confidential(*e.shape, 0, false)
			}
			put(inst, uint32(stack[0]), e.hostResponse)
		}),
		function("__host_error_len", 0, 1, func(_ host.DialectInstance, e *exchange, stack []uint64) { stack[0] = uint64(len(e.hostError)) }),
		function("__host_error", 1, 0, func(inst host.DialectInstance, e *exchange, stack []uint64) { put(inst, uint32(stack[0]), e.hostError) }),
		function("__console_log", 2, 0, func(inst host.DialectInstance, _ *exchange, stack []uint64) {
			if msg := text(inst, stack); logger != nil && inst.MayLog(len(msg)) {
				logger.Info(inst.Stain().Text(msg), "plugin", plugin)
			}
		}),
	}
}

// programImports are the functions of policies that are programs. There is one function, call,
// under its name in Kubewarden's SDKs and that in its JavaScript runtime. It returns 1 if the call
// failed, the opposite of waPC's.
func programImports(capabilities *hostCapabilities) []host.Import {
	call := func(inst *host.Instance, stack []uint64) {
		answer, shape, err := capabilities.answer(inst.Dialect(), stack)
		stack[0] = 0
		if err != nil {
			answer, stack[0] = []byte(err.Error()), 1
		} else if shape != nil {
			inst.Confidential(*shape, 0, false)
		}
		inst.Dialect().WriteStdin(answer)
	}
	var list []host.Import
	for _, module := range []string{"host", "kubewarden:javy/host"} {
		list = append(list, host.Import{Module: module, Name: "call", Params: i32s(8), Results: i32s(1), Memory: 1<<8 - 1, Func: call})
	}
	return list
}

// answer performs the operation requested by a binding, a namespace, an operation and a payload,
// each a pointer and a length. shape is the shape of the objects in the answer, nil if it has none.
func (c *hostCapabilities) answer(inst host.DialectInstance, stack []uint64) (answer []byte, shape *confidential.Shape, err error) {
	for i := 1; i < 6; i += 2 {
		if n := uint32(stack[i]); n > maxNameBytes {
			return nil, nil, fmt.Errorf("a name of the call has %d bytes, more than %d", n, maxNameBytes)
		}
	}
	binding, namespace, operation := text(inst, stack), text(inst, stack[2:]), text(inst, stack[4:])
	b := &budget{
		ctx: inst.Context(), spend: inst.Spend, log: inst.MayLog, limit: inst.Limits().ResultBytes,
		wait: inst.Waiting, asked: &exchangeOf(inst).asked, stain: inst.Stain,
	}
	answer, err = c.call(b, binding, namespace, operation, read(inst, stack[6:]))
	if err == nil && len(answer) > b.limit {
		err = errTooLong
	}
	if err != nil {
		words := publicerr.Words(err)
		if text := err.Error(); text != words && c.Logger != nil && b.log(len(text)) {
			c.Logger.Warn("host capability failed", "plugin", c.Plugin, "operation", namespace+"/"+operation, "err", inst.Stain().Text(text))
		}
		return nil, nil, errors.New(words)
	}
	if kind := b.about; kind.Kind != "" {
		shape = new(inst.Rule().ShapeOf(kind.Group, kind.Kind))
	}
	return answer, shape, nil
}

// maxNameBytes is the maximum length of the names in a question.
const maxNameBytes = 1 << 10

// read copies the bytes given by a pointer and a length.
func read(inst host.DialectInstance, stack []uint64) []byte {
	return append([]byte{}, inst.Read(uint32(stack[0]), uint32(stack[1]))...)
}

// replace is read for bytes that replace old.
func replace(inst host.DialectInstance, old []byte, stack []uint64) []byte {
	inst.Keep(int(uint32(stack[1])) - len(old))
	return read(inst, stack)
}

// text is read for a string.
func text(inst host.DialectInstance, stack []uint64) string {
	return strings.ToValidUTF8(string(inst.Read(uint32(stack[0]), uint32(stack[1]))), "\uFFFD")
}

// put copies data into the guest's memory.
func put(inst host.DialectInstance, ptr uint32, data []byte) {
	if err := inst.Put(ptr, data); err != nil {
		inst.Abort(err)
	}
}
