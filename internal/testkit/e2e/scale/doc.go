// Package scale follows plugins that the cluster declares from many agents at once, at a real API
// server.
package scale
