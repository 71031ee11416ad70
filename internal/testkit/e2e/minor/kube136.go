//go:build kube136

package minor

const (
	// Name is the minor.
	Name = "1.36"
	// Tag is the build tag that chooses it.
	Tag = "kube136"
	// Modfile is the module file that pins it.
	Modfile = "go136.mod"
)
