package cgroup

import (
	"reflect"
	"testing"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// TestEachFieldIsPlanned holds that the table of files has each field of resources once.
func TestEachFieldIsPlanned(t *testing.T) {
	all := &hookmsg.Resources{}
	v := reflect.ValueOf(all).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.Zero(f.Type().Key()), reflect.Zero(f.Type().Elem()))
		}
	}
	var planned hookmsg.Fields
	for _, f := range fieldFiles {
		if planned&f.field != 0 {
			t.Errorf("%s is planned twice", planned&f.field)
		}
		planned |= f.field
	}
	// The schemata are planned with their group.
	if want := all.Fields() &^ hookmsg.FieldResctrlSchemata; planned != want {
		t.Errorf("planned are %s, want %s", planned, want)
	}
}
