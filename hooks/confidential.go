package hooks

import (
	"bytes"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// stainOf returns what an encoded request has of confidential values.
func stainOf(rule *confidential.Rule, encoded []byte) *confidential.Stain {
	s := new(confidential.Stain)
	rule.MaskMessage(confidential.HookRequest, 0, false, bytes.Clone(encoded), s)
	return s
}

// confide notes what the request of the call that runs has.
func confide(inst *host.Instance, s *confidential.Stain) {
	if request := inst.State().(*exchange).request; len(request) != 0 {
		inst.Rule().MaskMessage(confidential.HookRequest, 0, false, bytes.Clone(request), s)
	}
}

// quietError is an error whose text repeats nothing confidential.
type quietError struct {
	text string
	err  error
}

func (e *quietError) Error() string { return e.text }
func (e *quietError) Unwrap() error { return e.err }

// quiet returns an error of the plugin as a log or the runtime may have it: the runtime shows it to
// users.
func (p *plugin) quiet(req *hookmsg.Request, err error) error {
	text := err.Error()
	if quiet := stainOf(&p.cfg.Confidential, hookmsg.AppendRequest(nil, req)).Text(text); quiet != text {
		return &quietError{quiet, err}
	}
	return err
}
