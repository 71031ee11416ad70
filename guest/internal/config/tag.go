package config

import (
	"reflect"
	"strings"

	"github.com/kubewasm/kubewasm/internal/json"
)

// jsonTag returns the value of the key json in a struct tag, "" if there is none. It is
// reflect.StructTag.Get, which unquotes by all rules of Go; the characters allowed in a name are
// quoted as in JSON.
func jsonTag(tag reflect.StructTag) string {
	for rest := string(tag); ; {
		rest = strings.TrimLeft(rest, " ")
		key, quoted, ok := strings.Cut(rest, `:"`)
		if !ok {
			return ""
		}
		end := 0
		for end < len(quoted) && quoted[end] != '"' {
			if quoted[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(quoted) {
			return ""
		}
		if key == "json" {
			value, _ := json.Value(`"` + quoted[:end+1]).Text()
			return value
		}
		rest = quoted[end+1:]
	}
}
