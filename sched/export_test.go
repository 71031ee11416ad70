package sched

import (
	"github.com/kubewasm/kubewasm/host"
)

// of returns what is behind a Plugin.
func of(p Plugin) *plugin { return p.(interface{ inner() *plugin }).inner() }

// Crossings returns how many objects the guest of p has fetched.
func Crossings(p Plugin) uint64 {
	return of(p).crossings.Load()
}

// Stats returns the state of the guest of p.
func Stats(p Plugin) host.Stats {
	return of(p).guest.Stats()
}

// AskAboutEachNode does what the argument of the same name does.
func AskAboutEachNode(p Plugin) {
	plugin := of(p)
	plugin.each = true
	plugin.reads.everything()
}

// LastRefusal makes the refusal that the guest of p says next the last one before their
// numbers come again.
func LastRefusal(p Plugin) {
	of(p).memory.lastNumber = 1<<answerBits - 2
}
