package memory

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"
)

type named struct{}

func (*named) UnmarshalText([]byte) error { return nil }

type text string

func (*text) UnmarshalText([]byte) error { return nil }

type plain int

type ofType[T any] []T

func (*ofType[T]) UnmarshalJSON([]byte) error { return nil }

// TestPointer compares with package reflect the types that may have methods on
// their pointers, which are those with names and structs that embed such, and others.
func TestPointer(t *testing.T) {
	type local struct{ A [3]string }
	for _, v := range []any{
		named{}, text(""), plain(0), ofType[string]{}, local{}, struct{ named }{}, struct {
			n int
			*text
		}{}, 0, "", []string{}, map[string]int{}, struct{ a, b chan uintptr }{}, [7]complex64{},
	} {
		typ := reflect.TypeOf(v)
		p := reflect.New(typ)
		got := Pointer(typ, p.UnsafePointer())
		if reflect.TypeOf(got) != reflect.PointerTo(typ) || reflect.ValueOf(got).UnsafePointer() != p.UnsafePointer() {
			t.Errorf("%v: got %T at %p, want %v at %p", typ, got, got, reflect.PointerTo(typ), p.UnsafePointer())
		}
	}
}

func TestOf(t *testing.T) {
	n := 7
	if typ, p := Of(nil); typ != nil || p != nil {
		t.Errorf("nil is a %v at %p", typ, p)
	}
	if typ, p := Of("text"); typ.Kind() != reflect.String || *(*string)(p) != "text" {
		t.Errorf("got a %v", typ)
	}
	if typ, p := Of(&n); typ != reflect.TypeFor[*int]() || **(**int)(p) != 7 {
		t.Errorf("got a %v", typ)
	}
	if typ, p := Of([1][1]*int{{&n}}); typ.Kind() != reflect.Array || **(**int)(p) != 7 {
		t.Errorf("got a %v", typ)
	}
	if typ, p := Of([2]*int{nil, &n}); typ.Kind() != reflect.Array || *(*[2]*int)(p)[1] != 7 {
		t.Errorf("got a %v", typ)
	}
	if typ, p := Of(map[string]int{"a": 1}); typ.Kind() != reflect.Map || (*(*map[string]int)(p))["a"] != 1 {
		t.Errorf("got a %v", typ)
	}
}

func TestHeld(t *testing.T) {
	var none any
	var method interface{ UnmarshalText([]byte) error } = &named{}
	var noMethod interface{ UnmarshalText([]byte) error }
	something := any(7)
	if Held(reflect.TypeFor[any](), unsafe.Pointer(&none)) != nil || Held(reflect.TypeFor[any](), unsafe.Pointer(&something)) != 7 {
		t.Error("an interface without methods holds something else")
	}
	typ := reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()
	if Held(typ, unsafe.Pointer(&noMethod)) != nil || Held(typ, unsafe.Pointer(&method)) != any(method) {
		t.Error("an interface with a method holds something else")
	}
}

// TestMaps fills maps until they have grown.
func TestMaps(t *testing.T) {
	type element struct {
		text string
		n    [3]int
	}
	typ := reflect.TypeFor[map[text]element]()
	m := NewMap(typ)
	var want []string
	for n := range 1000 {
		key := "key" + string(rune('a'+n%26)) + string(rune('a'+n/26))
		SetEntry(typ, m, key, unsafe.Pointer(&element{key, [3]int{n, n, n}}))
		want = append(want, key)
	}
	got := *(*map[text]element)(unsafe.Pointer(&m))
	for n, key := range want {
		if e := (element{key, [3]int{n, n, n}}); got[text(key)] != e || *(*element)(Entry(typ, m, key)) != e {
			t.Errorf("%s: got %v", key, got[text(key)])
		}
	}
	if Entry(typ, m, "other") != nil {
		t.Error("there is an entry that nobody stored")
	}
	keys := Keys(typ, m)
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("got the keys %v", keys)
	}
}
