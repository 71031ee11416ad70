package hooks

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

// Plugin decides on resources.
type Plugin interface {
	// Decide writes its changes into d; values that it does not set stay the
	// same. On an error d is dropped, and the failure policy of the host's
	// configuration applies.
	//
	// # Notes
	//
	//   - req and d are used again after the call: do not keep them, nor the
	//     maps and resources that they return. Strings may be kept.
	//   - Decide should depend only on req and the configuration: the host asks again whenever it
	//     needs the desired state, and another instance may have replaced the guest in between.
	Decide(req *Request, d *Decision) error
}

var registered Plugin

// Register makes p the plugin of this module. It is called once, in init, or in
// main of a guest that is built without -buildmode=c-shared, which does not run
// main; a second call panics. If p points to a struct, the host's configuration
// is decoded into it before the first request. A plugin without a configuration
// is best registered as a value, Register(share{}): then the guest does without
// the decoder, 170 KB. If the plugin has a method Configure() error,
// it is called then, configuration or not, and an error makes the plugin fail to
// load with the error's text.
func Register[P Plugin](p P) {
	if any(p) == nil {
		panic("kubewasm: hooks.Register: plugin is nil")
	}
	plugin.Register(p, abi.MaskOf(abi.Hook))
	registered = p
}

// call is the memory of a call of the guest, kept for the next one.
type call struct {
	request  Request
	decision Decision
	out      []byte
}

// run runs the plugin on a request and returns the encoded decision, which is
// valid until the next run, or the plugin's error.
func (c *call) run(p Plugin, request []byte) ([]byte, error) {
	if err := c.request.parse(request); err != nil {
		return nil, err
	}
	c.decision.reset()
	if err := p.Decide(&c.request, &c.decision); err != nil {
		return nil, err
	}
	c.out = c.decision.append(c.out[:0])
	return c.out, nil
}

// hook is the exported function without the host calls, which exist only in wasm.
func (c *call) hook(request []byte, decide func([]byte)) abi.Code {
	out, err := c.run(registered, request)
	if err != nil {
		hostcall.StatusReason(err.Error())
		return abi.Error
	}
	// An empty decision needs no host call.
	if len(out) != 0 {
		decide(out)
	}
	return abi.Success
}
