// The validator guest only validates.
package main

import "github.com/kubewasm/kubewasm/guest/admission"

type plugin struct{}

func (plugin) Validate(*admission.Request) *admission.Response { return admission.Deny("no") }

func init() { admission.Register(plugin{}) }

func main() {}
