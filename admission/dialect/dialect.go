package dialect

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// Dialect is an ABI of policies other than that of package abi. It must not be changed, and its
// functions are safe for use by several goroutines.
type Dialect struct {
	// Name is the name of the ABI in messages and in the management API.
	Name string
	// Member is the name of the dialect in the member dialect of a plugin's configuration. Several
	// dialects may share one.
	Member string
	// Detect reports whether a module is of the dialect.
	Detect func(m *host.Module) bool
	// Decode decodes the configuration of a plugin, see [Strict]. It is not called if there is
	// none. nil accepts an empty configuration only.
	Decode func(config json.RawMessage) (any, error)
	// Rules returns the operations and resources that a module declares, none if it declares none.
	// It may be nil.
	Rules func(m *host.Module) ([]metadata.Rule, error)
	// Bind prepares the dialect for a plugin, whose module may be of another ABI. An error is a
	// mistake in the configuration.
	Bind func(p Plugin) (*Binding, error)
}

// Plugin is the configuration of a plugin as a dialect sees it.
type Plugin struct {
	Name string
	// Logger receives the messages of guests; nil drops them.
	Logger *slog.Logger
	// Settings are the guestConfig in JSON, nil if there is none.
	Settings []byte
	// Grants are the grants of the plugin, see [host.Config].
	Grants []string
	// Confidential is the rule for confidential values.
	Confidential *confidential.Rule
	// Config is the result of Dialect.Decode, nil without a configuration of the dialect.
	Config any
}

// Binding is a dialect for one plugin.
type Binding struct {
	// Host has the exports, the imports and the default limits of guests. The engine sets its Name
	// and Detect.
	Host host.Dialect
	// Check is called with the first instance of a module. It lets the guest validate its settings,
	// if it can, and returns the reason to refuse them. nil accepts all settings.
	Check func(ctx context.Context, inst host.DialectInstance) error
	// Ask asks a guest for its verdict, with copies of the guest's strings and bytes.
	Ask func(ctx context.Context, inst host.DialectInstance, req *Request) (Verdict, error)
	// Mutating reports whether guests may change objects, and Raw whether they accept requests that
	// are not an AdmissionRequest.
	Mutating, Raw bool
	// Volatile reports whether a verdict may depend on more than the request, the module and the
	// configuration.
	Volatile bool
	// Sealed reports whether guests may know values that are entirely confidential and that the
	// request does not have.
	Sealed bool
	// Wait waits for the objects that guests look up, until ctx ends. It may be nil.
	Wait func(ctx context.Context)
	// Close ends the use of the binding. It may be nil.
	Close func()
}

// Verdict is the verdict of a guest on a request. It is read after the instance has moved on to
// another request, so none of its strings and bytes share memory with a guest.
type Verdict struct {
	Allowed bool
	// Code is the HTTP code of a denial, 0 for the default.
	Code uint32
	// Message is the reason of a denial.
	Message string
	// Result is nil if the guest adds nothing.
	Result *admissionmsg.Result
	// Patch is the change of the object as a JSON Patch, and Object the whole new object; at most
	// one of them is set.
	Patch, Object []byte
}

// Mutates reports whether the guest changes the object.
func (v *Verdict) Mutates() bool { return v.Patch != nil || v.Object != nil }

// Call is the state of an instance for its dialect.
type Call struct {
	// Request is the current request, nil between calls.
	Request *Request
	// Own belongs to the dialect, and survives the call.
	Own any
}

func (c *Call) dialect() *Call { return c }

// CallOf returns the state of an instance. It panics for an instance outside of package admission.
func CallOf(inst *host.Instance) *Call { return inst.State().(interface{ dialect() *Call }).dialect() }

// Of returns the dialect of a module: the first that detects it. It returns nil for a guest of
// package abi, and for a module of no dialect.
func Of(m *host.Module, dialects []*Dialect) *Dialect {
	if m.Export(abi.Marker) != "" {
		return nil
	}
	for _, d := range dialects {
		if d.Detect(m) {
			return d
		}
	}
	return nil
}
