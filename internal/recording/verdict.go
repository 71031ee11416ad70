package recording

import (
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Verdict is the meaning of a call's answer for the host.
type Verdict byte

const (
	// Answered is any answer that neither refuses nor fails.
	Answered Verdict = iota
	// Denied is a refusal: of a Pod for a Node, of a request. The error of a method of a service is
	// one too, if its code is no failure, see [codes.Code.Failure].
	Denied
	// Failed is an error, and a call that did not return.
	Failed
)

func (v Verdict) String() string {
	switch v {
	case Denied:
		return "denied"
	case Failed:
		return "failed"
	}
	return "answered"
}

// VerdictOf returns the verdict of a call, as far as the recording contains it.
func VerdictOf(c *Call) Verdict {
	switch {
	case c.End != Returned:
		return Failed
	case c.Version.Dialect != "":
		return verdictOfDialect(c)
	case c.method():
		switch code := c.code(); {
		case code == codes.OK:
			return Answered
		case !code.Failure():
			return Denied
		}
		return Failed
	}
	switch c.Function {
	case abi.Validate.String(), abi.Mutate.String(), abi.Convert.String():
		switch _, verdict := abi.Unpack[abi.Verdict](c.Result); verdict {
		case abi.VerdictAllow:
			return Answered
		case abi.VerdictDeny:
			return Denied
		}
		return Failed
	case "hook", "configure":
		if uint32(c.Result) != 0 {
			return Failed
		}
		return Answered
	}
	if c.Kind != ByFunction {
		return Answered
	}
	return verdictOfStatus(c.Function, c.Result)
}

// verdictOfStatus returns the verdict of a status code of the scheduler.
func verdictOfStatus(function string, result uint64) Verdict {
	switch function {
	case "queuesort", "unreserve", "postbind", "prequeueinghint", "clonecycle":
		return Answered
	case "score", "scoreplacement", "postfilter", "permit", "prebindpreflight", "queueinghint":
		// The status is in the first half.
	}
	switch code := abi.Code(int32(uint32(result))); code {
	case abi.Success, abi.Skip, abi.Wait:
		return Answered
	case abi.Unschedulable, abi.UnschedulableAndUnresolvable, abi.Pending:
		return Denied
	}
	return Failed
}

// verdictOfDialect returns the verdict of a guest of another project, which is JSON for most.
func verdictOfDialect(c *Call) Verdict {
	switch c.Version.Kind {
	case abi.KindAdmission:
		for i := len(c.Events) - 1; i >= 0; i-- {
			if e := &c.Events[i]; e.FromGuest() && len(e.Data) != 0 {
				if v, ok := verdictOfJSON(e.Data); ok {
					return v
				}
			}
		}
		return Answered
	case abi.KindScheduler:
		return verdictOfStatus(c.Function, c.Result)
	}
	return Answered
}

// verdictOfJSON returns the verdict of an answer: of Kubewarden's policies and those of the
// Stellar operator a field, of those in Rego a result.
func verdictOfJSON(data []byte) (Verdict, bool) {
	answer := json.Value(data)
	switch answer.Kind() {
	case json.KindObject:
		for o := json.Object(data); o.Next(); {
			switch o.Key() {
			case "accepted", "allowed":
				if allowed, ok := o.Value().Bool(); ok && allowed {
					return Answered, true
				}
				return Denied, true
			case "response":
				return verdictOfJSON(o.Value())
			}
		}
	case json.KindArray:
		for e := json.Array(data); e.Next(); {
			for o := json.Object(e.Value()); o.Next(); {
				if o.Key() != "result" {
					continue
				}
				result := o.Value()
				if v, ok := verdictOfJSON(result); ok {
					return v, true
				}
				switch result.Kind() {
				case json.KindArray:
					if a := json.Array(result); a.Next() {
						return Denied, true
					}
				case json.KindBool:
					if allowed, _ := result.Bool(); !allowed {
						return Denied, true
					}
				}
				return Answered, true
			}
		}
	}
	return Answered, false
}

// Describe returns a call's function, result and end in a line.
func (c *Call) Describe() string {
	switch c.End {
	case Trapped:
		return fmt.Sprintf("%s trapped: %.200s", c.Function, c.Trap)
	case Stopped:
		return fmt.Sprintf("%s was stopped after %d fuel", c.Function, c.Fuel)
	}
	return c.Function + " returned " + c.Returned()
}

// Returned returns the result of a call as a text: the name of its code for a method of a service.
func (c *Call) Returned() string {
	if c.method() {
		return c.code().String()
	}
	return fmt.Sprintf("%#x", c.Result)
}

// method reports whether the call is one of a method of a service.
func (c *Call) method() bool { return c.Kind == ByExport && c.Version.Dialect == "" }

func (c *Call) code() codes.Code { return codes.Code(int32(uint32(c.Result))) }
