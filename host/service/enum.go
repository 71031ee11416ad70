package service

import (
	"fmt"
	"strconv"
	"strings"
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

// JSON returns the name of a value in JSON, its number if it has none.
func (names EnumNames) JSON(value int32) []byte {
	if name, ok := names[value]; ok {
		return strconv.AppendQuote(nil, name)
	}
	return strconv.AppendInt(nil, int64(value), 10)
}

// Read reads the name of a value in JSON, or a number. It leaves the value alone for null.
func (names EnumNames) Read(text []byte, value *int32) error {
	if string(text) == "null" {
		return nil
	}
	word := strings.Trim(string(text), `"`)
	for n, name := range names {
		if name == word {
			*value = n
			return nil
		}
	}
	n, err := strconv.ParseInt(word, 10, 32)
	if err != nil {
		return fmt.Errorf("there is no value %.40s", text)
	}
	*value = int32(n)
	return nil
}
