package service_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// A plugin that runs in this process, in a test, has no module. None of its methods panics.
func TestMethodsOfNativePlugins(t *testing.T) {
	p, err := testservice.LoadTest(t.Context(), nil, service.Config{Config: host.Config{Name: "native", Module: host.ModuleConfig{Source: nativehost.Service{
		Has: func(string) bool { return true },
		Call: func(_ string, request []byte, _ nativehost.Objects) ([]byte, codes.Code) {
			return request, codes.OK
		},
	}}}}, asked{})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	v := reflect.ValueOf(p.Plugin)
	for i := range v.NumMethod() {
		name, m := v.Type().Method(i).Name, v.Method(i)
		t.Run(name, func(t *testing.T) {
			var args []reflect.Value
			for n := range m.Type().NumIn() {
				if m.Type().In(n) == reflect.TypeFor[context.Context]() {
					args = append(args, reflect.ValueOf(ended))
				} else {
					args = append(args, reflect.Zero(m.Type().In(n)))
				}
			}
			if m.Type().IsVariadic() {
				args = args[:len(args)-1]
			}
			m.Call(args)
		})
	}
	if got, err := p.Echo(t.Context(), &testservice.Message{Text: "a"}); err != nil || got.Text != "a" {
		t.Errorf("got %v, %v", got, err)
	}
}

// A request that is nil is the mistake of the program, in each kind of plugin.
func TestARequestThatIsNil(t *testing.T) {
	cfg := config(t)
	cfg.FailurePolicy = host.Ignore
	inProgram, err := testservice.LoadTest(t.Context(), nil, service.Config{Config: host.Config{Name: "native", Module: host.ModuleConfig{Source: nativehost.Service{
		Has:  func(string) bool { return true },
		Call: func(_ string, request []byte, _ nativehost.Objects) ([]byte, codes.Code) { return request, codes.OK },
	}}}}, asked{})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*testservice.Test{"guest": load(t, cfg), "native": inProgram} {
		got, err := p.Echo(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "request: it is nil") || errors.Is(err, service.ErrIgnored) || got != nil {
			t.Errorf("%s: got %v and %v", name, got, err)
		}
	}
}
