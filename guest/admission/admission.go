package admission

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

// Validator decides whether a request is admitted.
type Validator interface {
	// Validate returns the verdict on req; nil admits it.
	//
	// # Notes
	//
	//   - The same request may be asked about more than once, by another
	//     instance of the guest too: the verdict should depend on nothing but req
	//     and the configuration.
	//   - A panic counts as a failure of the plugin, and its failure policy says
	//     what becomes of the request.
	Validate(req *Request) *Response
}

// ValidatorFunc is a function as a [Validator].
type ValidatorFunc func(req *Request) *Response

// Validate calls f.
func (f ValidatorFunc) Validate(req *Request) *Response { return f(req) }

var validator Validator

// Register makes v the plugin of this module. It is called once, in init, or in
// main of a guest that is built without -buildmode=c-shared, which does not run
// main; a second call panics. If v points to a struct, the host's configuration
// is decoded into it before the first request, as encoding/json would do it; a
// field that the struct does not have is an error, and the host refuses the
// plugin. A plugin without a configuration is best registered as a value,
// Register(owner{}): then the guest does without the decoder, a sixth of its size.
func Register[V Validator](v V) {
	if any(v) == nil {
		panic("kubewasm: admission.Register: validator is nil")
	}
	plugin.Register(v, abi.MaskOf(abi.Validate))
	validator = v
}
