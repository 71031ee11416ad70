//go:build !linux

package snapmem

// newMapping returns nil: there is nothing here but slices.
func newMapping(uint64) backing { return nil }

// imageFile is nothing where images cannot be mapped.
type imageFile struct{}

func (imageFile) create([]byte, *[]byte) bool { return false }
func (imageFile) close(bytes *[]byte)         { *bytes = nil }
