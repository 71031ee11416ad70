package service_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	goruntime "runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
	"github.com/kubewasm/kubewasm/internal/serviceschema/methodcall"
)

// TestOneReaderOfMessages reads texts as a component does, as servicetest does and as kubewasm run
// does. All three read the same message, or refuse the text.
func TestOneReaderOfMessages(t *testing.T) {
	small, plugin := int64(3), load(t, config(t)).Plugin
	for text, want := range map[string]*testservice.Message{
		"{}":                                     {},
		"null":                                   {},
		`i64: "9007199254740993"`:                {I64: 9007199254740993},
		`i64: 9007199254740993`:                  {I64: 9007199254740993},
		`u64: 18446744073709551615`:              {U64: math.MaxUint64},
		`i64: 9223372036854775808`:               nil,
		`i32: 1.5`:                               nil,
		`wide: "NaN"`:                            {Wide: math.NaN()},
		`doubles: ["-Infinity", 1e3, "2"]`:       {Doubles: []float64{math.Inf(-1), 1000, 2}},
		`single: .nan`:                           nil,
		`maybe_text: x`:                          {MaybeText: pointerTo("x")},
		`maybeText: x`:                           {MaybeText: pointerTo("x")},
		"maybeText: x\nmaybe_text: y":            nil,
		`MaybeText: x`:                           nil,
		`other: 1`:                               nil,
		`inner: {other: 1}`:                      nil,
		`list: [{text: a}, {other: 1}]`:          nil,
		`text: 5`:                                nil,
		`flag: "true"`:                           nil,
		`color: COLOR_BLUE`:                      {Color: testservice.ColorBlue},
		`color: 77`:                              {Color: 77},
		`color: BLUE`:                            nil,
		`colors: [1, "COLOR_BLUE"]`:              {Colors: []testservice.Color{testservice.ColorRed, testservice.ColorBlue}},
		"third: \"3\"":                           {Third: &small},
		"first: a\nthird: 3":                     nil,
		`maybeData: ""`:                          {MaybeData: []byte{}},
		`data: AAE=`:                             {Data: []byte{0, 1}},
		`data: "?"`:                              nil,
		`counts: {a: "1", b: 2}`:                 {Counts: map[string]int64{"a": 1, "b": 2}},
		`smalls: {a: {"n": "-1"}}`:               {Smalls: map[string]testservice.Small{"a": {N: -1}}},
		`at: "2026-01-02T03:04:05.123456789Z"`:   {At: &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)}},
		`span: 1.5s`:                             {Span: &metav1.Duration{Duration: 1500 * time.Millisecond}},
		`pod: {metadata: {name: web}}`:           {Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}},
		`pod: {metadata: {nam: web}}`:            nil,
		`nodes: [{metadata: {name: a}}]`:         {Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}},
		`crate: {kind: Crate, spec: {size: 1}}`:  {Crate: &unstructured.Unstructured{Object: map[string]any{"kind": "Crate", "spec": map[string]any{"size": int64(1)}}}},
		`part: {inner: {parts: [{name: deep}]}}`: {Part: &testservice.Part{Inner: &testservice.PartInner{Parts: []testservice.Part{{Name: "deep"}}}}},
	} {
		t.Run(text, func(t *testing.T) {
			for reader, read := range map[string]func(testing.TB, string, *testservice.Message) error{
				"a component": func(_ testing.TB, text string, to *testservice.Message) error {
					return yaml.Unmarshal([]byte(text), to)
				},
				"a strict component": func(_ testing.TB, text string, to *testservice.Message) error {
					return yaml.UnmarshalStrict([]byte(text), to)
				},
				"servicetest": func(t testing.TB, text string, to *testservice.Message) error {
					caught := &catching{TB: t}
					m, ok := caught.read(text)
					if !ok {
						return errRefused
					}
					*to = *m
					return nil
				},
				"kubewasm run": func(t testing.TB, text string, to *testservice.Message) error { return asRun(t, plugin, text, to) },
			} {
				got := &testservice.Message{}
				if err := read(t, text, got); (err == nil) != (want != nil) {
					t.Errorf("%s: got %v, want an error: %v", reader, err, want == nil)
				} else if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); err == nil && diff != "" {
					t.Errorf("%s (-want +got):\n%s", reader, diff)
				}
			}
		})
	}
}

func pointerTo[T any](v T) *T { return &v }

var errRefused = errors.New("refused")

// catching is a test that a function may end without failing it.
type catching struct {
	testing.TB
	fatal string
}

func (c *catching) Helper() {}

func (c *catching) Fatalf(format string, args ...any) {
	c.fatal = fmt.Sprintf(format, args...)
	goruntime.Goexit() // As Fatalf does.
}

// read reads a message by package servicetest, and reports whether it is one.
func (c *catching) read(text string) (m *testservice.Message, ok bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m = servicetest.Read[testservice.Message](c, text)
		ok = true
	}()
	<-done
	return m, ok
}

// asRun reads a message by the schema alone, as kubewasm run does, and the struct from its
// encoding.
func asRun(t testing.TB, plugin *service.Plugin, text string, to *testservice.Message) error {
	document, err := manifest.JSON([]byte(text))
	if err != nil {
		return err
	}
	if string(document) == "null" {
		document = []byte("{}")
	}
	schema, err := serviceschema.Parse(testservice.Schema())
	if err != nil {
		t.Fatal(err)
	}
	c := &methodcall.Call{Plugin: plugin}
	b, err := serviceschema.Encode(schema.Message("kubewasm.test.v1.Message"), document, c)
	if err != nil {
		return err
	}
	return message.Of(reflect.TypeFor[testservice.Message]()).Parse(b, unsafe.Pointer(to), refsOf{c}, 0)
}

// refsOf are the objects of a call.
type refsOf struct{ *methodcall.Call }

func (refsOf) Ref(reflect.Type, unsafe.Pointer) (abi.Ref, error) { return 0, errRefused }

func (r refsOf) Object(_ reflect.Type, ref abi.Ref) (unsafe.Pointer, error) {
	o, err := r.Call.Object(ref)
	return reflect.ValueOf(o).UnsafePointer(), err
}
