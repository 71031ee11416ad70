//go:build !linux

package cgrouptest

import "testing"

// KeepsNotes skips the test: notes are attributes of Linux.
func KeepsNotes(t testing.TB, _ string) {
	t.Helper()
	t.Skip("only Linux keeps notes")
}
