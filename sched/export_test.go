package sched

import "github.com/kubewasm/kubewasm/host"

// of returns what is behind a Plugin.
func of(p Plugin) *plugin { return p.(interface{ inner() *plugin }).inner() }

// Stats returns the state of the guest of p.
func Stats(p Plugin) host.Stats { return of(p).guest.Stats() }

// DisableResultSharing does what the argument of the same name does.
func DisableResultSharing(p Plugin) { of(p).cache.disabled.Store(true) }
