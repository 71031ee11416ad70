// Command policy is the policy of TestOnePluginForAllComponents.
package main

import "github.com/kubewasm/kubewasm/guest/admission"

type policy struct {
	Label string `json:"label"`
}

// Validate denies everything.
func (p *policy) Validate(*admission.Request) *admission.Response {
	return admission.Deny("no " + p.Label)
}

func init() { admission.Register(&policy{}) }

func main() {}
