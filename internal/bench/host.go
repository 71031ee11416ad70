package main

import (
	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// noop is host/testdata/noop.wat: a filter that returns 0.
var noop = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x0c\x02\x60\x00\x01\x7e\x60\x03\x7e\x7e\x7e\x01\x7f" + // Types () -> i64, (i64, i64, i64) -> i32.
	"\x03\x03\x02\x00\x01" + // Functions.
	"\x05\x04\x01\x01\x01\x01" + // Memory of one page.
	"\x07\x25\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x06filter\x00\x01" +
	"\x0a\x0c\x02\x05\x00\x42\x80\x01\x0b\x04\x00\x41\x00\x0b")

func benchHost(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	plugin, err := rt.Load(b.ctx, host.Config{Name: "noop", Source: host.Bytes(noop), Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	plain := wazero.NewRuntime(b.ctx)
	defer plain.Close(b.ctx)
	module, err := plain.Instantiate(b.ctx, noop)
	if err != nil {
		return err
	}
	filter := module.ExportedFunction("filter")
	var failed error
	b.compare("no-op call: acquire, call, release", target{time: 100, noAllocs: true},
		func(n int) {
			for range n {
				inst, err := plugin.Acquire(b.ctx)
				if err != nil {
					failed = err
					return
				}
				if _, err := inst.Call(b.ctx, abi.Filter, 1, 2, 3); err != nil {
					failed = err
				}
				inst.Release()
			}
		},
		"plain wazero, CallWithStack",
		func(n int) {
			var stack [3]uint64
			for range n {
				stack = [3]uint64{1, 2, 3}
				if err := filter.CallWithStack(b.ctx, stack[:]); err != nil {
					failed = err
				}
			}
		})
	return failed
}
