package admission

import (
	"errors"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

var errNoRequest = errors.New("objects are looked up in validate and mutate")

// looked returns what the running call has looked up. No answer outlives the call: the same request
// is decided again, by the objects at that time.
func looked(inst *host.Instance) (l *lookup.Looked, err error) {
	c := policy.CallOf(inst)
	if c.Request == nil || c.Desired != "" {
		err = errNoRequest
	}
	l, ok := c.Looked.(*lookup.Looked)
	if !ok {
		l = new(lookup.Looked)
		c.Looked = l
	}
	return l, err
}
