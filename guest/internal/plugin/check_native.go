//go:build !wasip1

package plugin

import (
	"fmt"
	"reflect"
)

// Check panics if p has a method of the interface I and yet does not implement
// it: a method of the wrong type would silently never be called. Guests do not
// check, since reflection would make them larger; the tests of a plugin also
// run natively.
func Check[I any](p any) {
	if _, ok := p.(I); ok || p == nil {
		return
	}
	want, is := reflect.TypeFor[I](), reflect.TypeOf(p)
	all := is
	if is.Kind() != reflect.Pointer {
		all = reflect.PointerTo(is)
	}
	var missing []string
	found := false
	for i := range want.NumMethod() {
		method := want.Method(i)
		has, ok := all.MethodByName(method.Name)
		if !ok {
			missing = append(missing, method.Name)
			continue
		}
		found = true
		if got := withoutReceiver(has.Type); got != method.Type {
			panic(fmt.Sprintf("kubewasm: method %s of %v is a %v, want a %v", method.Name, is, got, method.Type))
		}
	}
	switch {
	case !found:
	case len(missing) != 0:
		panic(fmt.Sprintf("kubewasm: %v has methods of %v, but not %v", is, want, missing))
	default:
		panic(fmt.Sprintf("kubewasm: %v implements %v on its pointer: register a pointer", is, want))
	}
}

// withoutReceiver is the type of a method as an interface has it: a method of
// another type takes its receiver first.
func withoutReceiver(method reflect.Type) reflect.Type {
	var in, out []reflect.Type
	for i := 1; i < method.NumIn(); i++ {
		in = append(in, method.In(i))
	}
	for i := range method.NumOut() {
		out = append(out, method.Out(i))
	}
	return reflect.FuncOf(in, out, method.IsVariadic())
}
