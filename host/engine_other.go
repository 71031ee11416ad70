//go:build !unix

package host

func makeExecutable() error { return nil }
