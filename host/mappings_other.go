//go:build !linux

package host

import "errors"

// mostMappings returns 0: no limit is known.
func mostMappings() int64 { return 0 }

func countMappings() (int64, error) { return 0, errors.ErrUnsupported }
