//go:build kube135

package minor

const (
	// Name is the minor.
	Name = "1.35"
	// Tag is the build tag that chooses it.
	Tag = "kube135"
	// Modfile is the module file that pins it.
	Modfile = "go135.mod"
)
