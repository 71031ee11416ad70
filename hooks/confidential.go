package hooks

import (
	"bytes"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// stainOf returns the confidential values in an encoded request.
func stainOf(rule *confidential.Rule, encoded []byte) *confidential.Stain {
	s := new(confidential.Stain)
	rule.MaskMessage(wire.ShapeHookRequest, 0, false, bytes.Clone(encoded), s)
	return s
}

// confide adds the confidential values in the request of the current call to s.
func confide(inst *host.Instance, s *confidential.Stain) {
	if request := inst.State().(*exchange).request; len(request) != 0 {
		inst.Rule().MaskMessage(wire.ShapeHookRequest, 0, false, bytes.Clone(request), s)
	}
}

// quietError is an error whose text contains no confidential value.
type quietError struct {
	text string
	err  error
}

func (e *quietError) Error() string { return e.text }
func (e *quietError) Unwrap() error { return e.err }

// quiet returns an error of the plugin in the form for logs and for the runtime, which shows it to
// users.
func (p *plugin) quiet(req *hookmsg.Request, err error) error {
	text := err.Error()
	if quiet := stainOf(&p.cfg.Confidential, req.Append(nil)).Text(text); quiet != text {
		return &quietError{quiet, err}
	}
	return err
}
