//go:build !linux

package snapmem

import (
	"errors"
	"os"
)

// newMapping returns nil: on this system, memories are slices.
func newMapping(uint64) backing { return nil }

// imageFile is empty: on this system, images cannot be mapped.
type imageFile struct{}

func (imageFile) create([]byte, []span, *Image, *[]byte) bool { return false }
func (imageFile) mapped() bool                                { return false }
func (imageFile) rest([]byte)                                 {}
func (imageFile) open(*os.File, int64, int, *[]byte) error    { return errors.ErrUnsupported }
func (imageFile) close(bytes *[]byte)                         { *bytes = nil }
