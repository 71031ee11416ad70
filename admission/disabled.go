package admission

import "context"

// Disabled returns a policy that has the name of p and is never asked: the engine
// goes on as if there were none. A [OnePolicy] of its name allows what it is asked
// for, where one whose policy is gone denies it. Closing it does not close p.
func Disabled(p Policy) Policy { return &disabled{p} }

type disabled struct{ Policy }

func (d *disabled) Close(context.Context) error { return nil }
func (d *disabled) matcher() *matcher           { return nothing }

// nothing matches no request.
var nothing = &matcher{never: true}
