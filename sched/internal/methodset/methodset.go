// Package methodset makes types with some of the methods of another.
//
// kube-scheduler finds out by type assertion what a plugin does, so a plugin
// must have the methods of exactly those extension points that its guest
// implements: Less or GeneratePlacements in vain make the scheduler refuse its
// configuration, SignPod that is missing turns batching off. Go takes no method
// from a type, and seventeen extension points have 131,072 combinations.
package methodset

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// ErrLayout says that the Go version that built the program lays types out in
// another way than this package knows.
var ErrLayout = errors.New("types of this Go version have another layout")

// types holds the types that were made: they are never freed, and equal method
// sets share one.
var types struct {
	sync.Mutex
	made map[string]reflect.Type
}

// Restrict returns a value that holds v, a pointer to a struct, and has those of
// its exported methods whose names keep reports true for. v must have no
// unexported methods. Calls of the methods cost what they cost on v.
//
// The error wraps [ErrLayout].
func Restrict(v any, keep func(method string) bool) (any, error) {
	typ, err := restricted(reflect.TypeOf(v), keep)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", runtime.Version(), err)
	}
	value := reflect.New(typ).Elem()
	value.Field(0).Set(reflect.ValueOf(v))
	return value.Interface(), nil
}

func restricted(full reflect.Type, keep func(string) bool) (reflect.Type, error) {
	var kept []string
	for _, name := range methods(full) {
		if keep(name) {
			kept = append(kept, name)
		}
	}
	// A struct type is known by its fields and their tags: this one is nobody
	// else's.
	tag := full.String() + " with " + strings.Join(kept, " ")
	types.Lock()
	defer types.Unlock()
	if typ, ok := types.made[tag]; ok {
		return typ, nil
	}
	typ := reflect.StructOf([]reflect.StructField{{
		Name: "Methods", Type: full, Anonymous: true, Tag: reflect.StructTag(tag),
	}})
	if err := drop(typ, methods(full), keep); err != nil {
		return nil, err
	}
	if got := methods(typ); !slices.Equal(got, kept) {
		return nil, fmt.Errorf("%w: the type has the methods %v, want %v", ErrLayout, got, kept)
	}
	if types.made == nil {
		types.made = map[string]reflect.Type{}
	}
	types.made[tag] = typ
	return typ, nil
}

// methods returns the names of the exported methods, which come in their order.
func methods(t reflect.Type) []string {
	names := make([]string, t.NumMethod())
	for i := range names {
		names[i] = t.Method(i).Name
	}
	return names
}

// The layout of a struct type that reflect.StructOf makes for an embedded
// pointer: internal/abi.StructType, UncommonType and the methods. It has been
// the same since Go 1.19.
type (
	structType struct {
		size, ptrBytes          uintptr
		hash                    uint32
		tflag, align, fieldAlgn uint8
		kind                    uint8
		equal                   func(unsafe.Pointer, unsafe.Pointer) bool
		gcData                  *byte
		str, ptrToThis          int32
		pkgPath                 *byte
		fields                  []struct {
			name   *byte
			typ    unsafe.Pointer
			offset uintptr
		}
	}
	uncommonType struct {
		pkgPath        int32
		mcount, xcount uint16
		moff, _        uint32
	}
	method struct{ name, typ, ifn, tfn int32 }
)

// tflagUncommon says that an uncommonType follows the type.
const tflagUncommon = 1

// drop takes methods from a type that nothing has used yet. names are those that
// it should have, in their order.
func drop(typ reflect.Type, names []string, keep func(string) bool) error {
	// An interface is a pointer to the type of its value, here *reflect.rtype,
	// and the value.
	st := (*structType)((*[2]unsafe.Pointer)(unsafe.Pointer(&typ))[1])
	// Every field that is looked at must be what reflect says it is, and
	// nothing is written before that is certain.
	if st.size != typ.Size() || st.align != uint8(typ.Align()) || len(st.fields) != 1 || st.tflag&tflagUncommon == 0 ||
		(*[2]unsafe.Pointer)(unsafe.Pointer(&[]reflect.Type{typ.Field(0).Type}[0]))[1] != st.fields[0].typ {
		return fmt.Errorf("%w: that of struct types", ErrLayout)
	}
	ut := (*uncommonType)(unsafe.Add(unsafe.Pointer(st), unsafe.Sizeof(structType{})))
	if int(ut.mcount) != len(names) || ut.xcount != ut.mcount || uintptr(ut.moff) != unsafe.Sizeof(uncommonType{}) || typ.NumMethod() != len(names) {
		return fmt.Errorf("%w: that of method sets", ErrLayout)
	}
	table := unsafe.Slice((*method)(unsafe.Add(unsafe.Pointer(ut), uintptr(ut.moff))), len(names))
	n := 0
	for i, name := range names {
		if keep(name) {
			table[n] = table[i] // Still in the order of the names.
			n++
		}
	}
	ut.mcount, ut.xcount = uint16(n), uint16(n)
	return nil
}
