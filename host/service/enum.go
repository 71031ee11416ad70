package service

import (
	"fmt"
	"strconv"
)

// EnumNames are the names of an enumeration's values. It is for generated code.
type EnumNames map[int32]string

// Name returns the name of a value, its number if it has none.
func (names EnumNames) Name(value int32) string {
	if name, ok := names[value]; ok {
		return name
	}
	return strconv.Itoa(int(value))
}

// Parse reads the name of a value, or a number.
func (names EnumNames) Parse(text []byte, value *int32) error {
	for n, name := range names {
		if name == string(text) {
			*value = n
			return nil
		}
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return fmt.Errorf("there is no value %q", text)
	}
	*value = int32(n)
	return nil
}
