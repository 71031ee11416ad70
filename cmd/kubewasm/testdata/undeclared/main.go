// A policy that does not say which requests it is for.
package main

import "github.com/kubewasm/kubewasm/guest/admission"

type plugin struct{}

func (plugin) Validate(*admission.Request) *admission.Response { return admission.Allow() }

func init() { admission.Register(plugin{}) }

func main() {}
