// A policy that does not say what is to be done with what.
package main

import "github.com/kubewasm/kubewasm/guest/admission"

//kubewasm:matches CREATE,UPDATE pods pods/ephemeralcontainers
//kubewasm:matches pods

type plugin struct{}

func (plugin) Validate(*admission.Request) *admission.Response { return nil }

func init() { admission.Register(plugin{}) }

func main() {}
