package sched

import (
	"reflect"

	"github.com/kubewasm/kubewasm/host"
)

// Crossings returns how many objects the guest of p has fetched.
func Crossings(p Plugin) uint64 {
	return reflect.ValueOf(p).Field(0).Interface().(*extensions).plugin.crossings.Load()
}

// Stats returns the state of the guest of p.
func Stats(p Plugin) host.Stats {
	return reflect.ValueOf(p).Field(0).Interface().(*extensions).plugin.guest.Stats()
}

// AskAboutEachNode does what the argument of the same name does.
func AskAboutEachNode(p Plugin) {
	of := reflect.ValueOf(p).Field(0).Interface().(*extensions).plugin
	of.each = true
	of.reads.everything()
}

// LastRefusal makes the refusal that the guest of p says next the last one before their
// numbers come again.
func LastRefusal(p Plugin) {
	reflect.ValueOf(p).Field(0).Interface().(*extensions).plugin.memory.lastNumber = 1<<answerBits - 2
}
