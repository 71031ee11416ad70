// Package plugin has the registered plugins of a guest: the functions that they
// implement, and the decoding of their configuration.
package plugin

import (
	"runtime"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/config"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/internal/json"
)

var (
	mask abi.Mask
	// decoders fill the plugins that were registered from a configuration.
	decoders []func(data []byte) error
	// configurers are the plugins with a method Configure.
	configurers []Configurer
)

// Configurer is implemented by plugins that check their configuration or prepare from it. Configure
// is called after the configuration was decoded, even if there is none, and before any other
// method. An error makes the plugin fail to load, with the error's text.
type Configurer interface{ Configure() error }

// Register adds a plugin that implements the functions of m. The configuration
// is decoded into it, if it is a pointer to a struct.
//
// A value of no size, such as filter{}, has no place for a configuration, and
// the compiler knows that where it instantiates this function: so the decoder,
// 170 KB, is not linked unless another plugin needs it.
func Register[P any](p P, m abi.Mask) {
	Check[Configurer](p)
	// A guest may have plugins of several services.
	if twice := mask & m &^ abi.MaskOf(abi.Services); twice != 0 {
		panic("kubewasm: two plugins implement " + twice.String())
	}
	mask |= m | abi.MaskOf(abi.Configure)
	if unsafe.Sizeof(p) == 0 {
		decoders = append(decoders, refuse)
	} else {
		decoders = append(decoders, func(data []byte) error { return config.Decode(data, p) })
	}
	if c, ok := any(p).(Configurer); ok {
		configurers = append(configurers, c)
	}
}

// refuse is the decoder of a plugin without a configuration.
func refuse(data []byte) error {
	if json.Value(data).IsNull() {
		return nil
	}
	return config.ErrNone
}

// configure fills the registered plugins from data. Only the host calls it: a
// native test fills the struct itself.
func configure() abi.Code {
	err := decode(hostcall.Config())
	for _, c := range configurers {
		if err == nil {
			err = c.Configure()
		}
	}
	if err != nil {
		hostcall.StatusReason(err.Error())
		return abi.Error
	}
	return abi.Success
}

func decode(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	for _, decode := range decoders {
		if err := decode(data); err != nil {
			return err
		}
	}
	return nil
}

// calls counts the calls since the Go scheduler last ran.
var calls uint32

// yieldEvery is the number of calls between two turns of the Go scheduler. A turn costs a
// microsecond; 128 calls that allocate 32 KiB each make 4 MiB of garbage, and the garbage collector
// starts only then anyway.
const yieldEvery = 128

// Yield is called at the end of every exported function. A guest runs only
// while it is called, so without a turn now and then its garbage collector
// would never finish a cycle and the heap would grow without bound.
func Yield() {
	if calls++; calls == yieldEvery {
		calls = 0
		runtime.Gosched()
	}
}
