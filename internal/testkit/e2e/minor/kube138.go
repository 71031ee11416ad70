//go:build kube138

package minor

const (
	// Name is the minor.
	Name = "1.38"
	// Tag is the build tag that chooses it.
	Tag = "kube138"
	// Modfile is the module file that pins it.
	Modfile = "go138.mod"
)
