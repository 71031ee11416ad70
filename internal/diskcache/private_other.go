//go:build !unix

package diskcache

// CheckDirectory accepts any directory: permission bits do not decide about
// writing here.
func CheckDirectory(string) error { return nil }
