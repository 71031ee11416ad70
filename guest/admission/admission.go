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
	//   - The same request may be passed more than once, even to another instance of the guest:
	//     the verdict should depend only on req, the configuration and the results of Get and List.
	//   - A panic counts as a failure of the plugin, and its failure policy decides on the
	//     request.
	Validate(req *Request) *Response
}

// Mutator changes objects before they are validated and stored.
type Mutator interface {
	// Mutate changes the object of req by patch and returns the verdict on req;
	// nil admits it. A patch counts only if the verdict admits the request.
	//
	// # Notes
	//
	//   - The object may be one that this plugin has changed before, and it includes the changes
	//     of other mutators: leave correct values as they are.
	//   - There is no object to change for Delete.
	//   - Otherwise as for Validator.
	Mutate(req *Request, patch *Patch) *Response
}

// The registered plugin, by the interfaces that it implements.
var (
	validator Validator
	mutator   Mutator
	converter Converter
)

// Register makes p the plugin of this module: a [Validator], a [Mutator], a [Converter] or several
// of them. It is called once, in init, or in main of a guest that is built without
// -buildmode=c-shared, which does not run main; a second call panics. If p points to a struct, the
// host's configuration is decoded into it before the first request, as encoding/json would do it; a
// field that the struct lacks is an error, and the host refuses the plugin. A plugin without a
// configuration is best registered as a value, Register(owner{}): then the guest does without the
// decoder, 170 KB. If the plugin has a method Configure() error, it is called then, configuration
// or not, and an error makes the plugin fail to load with the error's text.
//
// Natively, in tests, Register also panics if Validate, Mutate or Convert is a method of the wrong
// type.
func Register[P any](p P) {
	plugin.Check[Validator](p)
	plugin.Check[Mutator](p)
	plugin.Check[Converter](p)
	var mask abi.Mask
	v, isValidator := any(p).(Validator)
	if isValidator {
		mask |= abi.MaskOf(abi.Validate)
	}
	m, isMutator := any(p).(Mutator)
	if isMutator {
		mask |= abi.MaskOf(abi.Mutate)
	}
	c, isConverter := any(p).(Converter)
	if isConverter {
		mask |= abi.MaskOf(abi.Convert)
	}
	if mask == 0 {
		panic("kubewasm: admission.Register: the plugin is no Validator, no Mutator and no Converter; are its methods on the pointer, and with the right signatures?")
	}
	plugin.Register(p, mask)
	if isValidator {
		validator = v
	}
	if isMutator {
		mutator = m
	}
	if isConverter {
		converter = c
	}
}
