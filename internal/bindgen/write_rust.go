package bindgen

import "errors"

// writeRust returns the files of a package for -lang rust.
func writeRust(*Package) ([]File, error) {
	return nil, errors.New("there is no writer for -lang rust yet")
}
