// Package quantities bounds the quantities of objects in JSON in front of apimachinery's parser,
// which takes minutes and a gigabyte for 1e-2147483647.
package quantities

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/json"
)

// maxBytes is the longest text of a quantity, and maxExponent the most digits of its exponent. What
// an API server stores has less.
const maxBytes, maxExponent = 128, 3

// Check returns an error if a document in JSON has a text that is too long, or has too large an
// exponent, where the type of to has a quantity. Names of fields are compared without regard to
// case, and each member counts that occurs twice, as decoders do it.
func Check(document []byte, to any) error {
	if !suspicious(document) {
		return nil
	}
	return check(document, reflect.TypeOf(to), "", 0, one)
}

// Mistake returns an error for the first text of a document that is no quantity where the type of
// to has one. The package of Kubernetes does not name its field. Check was nil.
func Mistake(document []byte, to any) error {
	return check(document, reflect.TypeOf(to), "", 0, func(value json.Value, path string) error {
		text := string(value)
		if value.Kind() == json.KindString {
			text = value.String()
		}
		if _, err := resource.ParseQuantity(text); err != nil && text != "null" {
			return fmt.Errorf("%s is %q, want a quantity such as 500m, 1.5, 128Mi or 2G", path, cut.Text(text, 40))
		}
		return nil
	})
}

// suspicious reports whether a document has a number with a long exponent, or many digits, anywhere.
func suspicious(document []byte) bool {
	digits := 0
	for i, c := range document {
		switch {
		case '0' <= c && c <= '9' || c == '.':
			if digits++; digits > maxBytes/2 {
				return true
			}
			continue
		case (c == 'e' || c == 'E') && digits > 0:
			exponent := i + 1
			for exponent < len(document) && (document[exponent] == '+' || document[exponent] == '-') {
				exponent++
			}
			n := 0
			for exponent+n < len(document) && '0' <= document[exponent+n] && document[exponent+n] <= '9' {
				if n++; n > maxExponent {
					return true
				}
			}
		case c == '\\':
			return true // A letter or a digit may be written as an escape.
		}
		digits = 0
	}
	return false
}

var quantity = reflect.TypeFor[resource.Quantity]()

// maxDepth is how deep types are followed that contain themselves.
const maxDepth = 200

func check(value json.Value, t reflect.Type, path string, depth int, one func(json.Value, string) error) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil || depth > maxDepth:
		return nil
	case t == quantity:
		return one(value, path)
	}
	switch value.Kind() {
	case json.KindObject:
		for m := json.Object(value); m.Next(); {
			of := member(t, m.Key())
			if of == nil {
				continue
			}
			if err := check(m.Value(), of, strings.TrimPrefix(path+"."+m.Key(), "."), depth+1, one); err != nil {
				return err
			}
		}
	case json.KindArray:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		i := 0
		for a := json.Array(value); a.Next(); i++ {
			if err := check(a.Value(), t.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// member returns the type of a member of an object, nil if t has none of that name.
func member(t reflect.Type, name string) reflect.Type {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem()
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			of := f.Type
			for of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if tag == "" && (f.Anonymous || strings.Contains(options, "inline")) && of.Kind() == reflect.Struct {
				if found := member(of, name); found != nil {
					return found
				}
				continue
			}
			if tag == "" {
				tag = f.Name
			}
			if strings.EqualFold(tag, name) {
				return f.Type
			}
		}
	}
	return nil
}

// one checks a quantity.
func one(value json.Value, path string) error {
	text := string(value)
	if value.Kind() == json.KindString {
		text = value.String()
	}
	digits := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		digits = len(strings.TrimLeft(text[i+1:], "+-"))
	}
	if len(text) > maxBytes || digits > maxExponent {
		if path != "" {
			path += ": "
		}
		return fmt.Errorf("%s%q is no quantity of at most %d bytes with an exponent of at most %d digits", path, cut.Text(text, 40), maxBytes, maxExponent)
	}
	return nil
}
