// The mutator guest only mutates.
package main

import (
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
)

type plugin struct{}

func (plugin) Mutate(_ *admission.Request, patch *admission.Patch) *admission.Response {
	patch.Default(field.NewPath("metadata", "labels").Key("team"), "none")
	return nil
}

func init() { admission.Register(plugin{}) }

func main() {}
