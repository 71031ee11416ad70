package config

import (
	"bytes"
	stdbase64 "encoding/base64"
	"reflect"
	"testing"
)

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
