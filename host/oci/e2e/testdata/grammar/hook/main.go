// Command hook is the runtime hook of TestOnePluginForAllComponents.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

type hook struct {
	Label string `json:"label"`
}

// Decide refuses everything.
func (h *hook) Decide(*hooks.Request, *hooks.Decision) error { return errors.New("no " + h.Label) }

func init() { hooks.Register(&hook{}) }

func main() {}
