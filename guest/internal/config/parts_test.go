package config

import (
	"bytes"
	stdbase64 "encoding/base64"
	"reflect"
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

// TestPointerTo compares with package reflect the types that may have methods on
// their pointers: those with names, and structs that embed such.
func TestPointerTo(t *testing.T) {
	type local struct{ A [3]string }
	for _, v := range []any{
		named{}, text(""), plain(0), ofType[string]{}, local{}, struct{ named }{}, struct {
			n int
			*text
		}{},
	} {
		typ := reflect.TypeOf(v)
		p := reflect.New(typ)
		got := pointerTo(typ, p.UnsafePointer())
		if reflect.TypeOf(got) != reflect.PointerTo(typ) || reflect.ValueOf(got).UnsafePointer() != p.UnsafePointer() {
			t.Errorf("%v: got %T at %p, want %v at %p", typ, got, got, reflect.PointerTo(typ), p.UnsafePointer())
		}
	}
	// Others are nil or right.
	for _, v := range []any{0, "", []string{}, map[string]int{}, struct{ a, b chan uintptr }{}, [7]complex64{}} {
		typ := reflect.TypeOf(v)
		if got := pointerTo(typ, unsafe.Pointer(new([64]byte))); got != nil && reflect.TypeOf(got) != reflect.PointerTo(typ) {
			t.Errorf("%v: got %T", typ, got)
		}
	}
}

func TestTagsAreReadAsByReflect(t *testing.T) {
	for _, tag := range []reflect.StructTag{
		``, `json:""`, `json:"a"`, `json:"a,omitempty"`, `yaml:"b" json:"a"`, ` yaml:"b"  json:"a" `, `json:"a" json:"b"`,
		`yaml:"json:\"x\"" json:"a"`, `json:"a\u00e4\\\""`, `json:"-"`, `json:"-,"`, `json`, `json:`, `json:"`, `json:"a`, `json:"a\"`, `json:a`,
		`xjson:"b"`, `yaml:"b"`, `yaml:"b`, `yaml json:"a"`, `json:"ä"`, `json:"\q"`,
	} {
		if got, want := jsonTag(tag), tag.Get("json"); got != want {
			t.Errorf("%s: got %q, want %q", tag, got, want)
		}
	}
}

func FuzzDecodeBase64(f *testing.F) {
	for _, s := range []string{"", "aGVsbG8=", "aGVsbA==", "aGVs", "aGV\nsbA=\r=\n", "aGVsbA=", "aGVsbA", "aGVsbA==a", "====", "a===", "aG=s", "aGVsb+/=", "aGVsb-_=", "?"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := stdbase64.StdEncoding.DecodeString(s)
		got, wrong := decodeBase64(s)
		if (err == nil) != (wrong < 0) || wrong > len(s) || err == nil && !bytes.Equal(got, want) {
			t.Errorf("%q: got %q, wrong at %d; encoding/base64 has %q, %v", s, got, wrong, want, err)
		}
	})
}
