// The plugin adapter prefers model servers that have the adapter of a request loaded, and then
// those with room for another.
package main

import (
	"slices"

	"github.com/kubewasm/kubewasm/examples/endpoint-picker/pickerguest"
)

// The scores of servers that need not load the adapter, and that need not unload another.
const loaded, room = 1, 0.8

type adapter struct{}

// Pick scores by the adapters of each server, and filters none: each can load the adapter.
func (adapter) Pick(req pickerguest.PickRequest, resp *pickerguest.PickResponse) error {
	model := req.Model()
	for _, e := range req.Endpoints() {
		score, active := 0.0, e.ActiveModels()
		switch {
		case slices.Contains(active, model):
			score = loaded
		case len(active) < int(e.MaxActiveModels()):
			score = room
		}
		resp.Scores = append(resp.Scores, score)
	}
	return nil
}

// Served has nothing to remember: servers report their adapters.
func (adapter) Served(pickerguest.ServedRequest, *pickerguest.ServedResponse) error { return nil }

func init() { pickerguest.RegisterPicker(adapter{}) }

func main() {}
