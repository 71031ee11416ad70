// Package log writes to the host's log, from plugins of every kind:
//
//	log.Info("zone decided", "pod", pod.Metadata().Name(), "zones", len(zones))
//
// Each line reaches the host's slog.Logger with its level, its text and its
// attributes, beside the name of the plugin and the function that ran. Natively,
// under go test, it goes to standard error.
//
// It does not import log/slog and fmt, which would add a megabyte to each
// guest.
package log
