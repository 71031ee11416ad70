package bindgen

import "errors"

// writeAS returns the files of a package for -lang as.
func writeAS(*Package) ([]File, error) { return nil, errors.New("there is no writer for -lang as yet") }
