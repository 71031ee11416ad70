//go:build !kube135 && !kube136 && !kube138

package minor

const (
	// Name is the minor.
	Name = "1.37"
	// Tag is the build tag that chooses it.
	Tag = "kube137"
	// Modfile is the module file that pins it.
	Modfile = "go.mod"
)
