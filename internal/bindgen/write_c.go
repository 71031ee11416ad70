package bindgen

import "errors"

// writeC returns the files of a package for -lang c.
func writeC(*Package) ([]File, error) { return nil, errors.New("there is no writer for -lang c yet") }
