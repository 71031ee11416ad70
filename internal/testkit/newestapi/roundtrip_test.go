package newestapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiintstr "k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/kubewasm/kubewasm/guest/api/intstr"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/view"
)

// filler fills objects with whatever fits into them and survives both encodings.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).Funcs(
		func(q *apiresource.Quantity, c randfill.Continue) {
			n := c.Int63n(1 << uint(c.Intn(62)+1))
			formats := []apiresource.Format{apiresource.DecimalSI, apiresource.BinarySI, apiresource.DecimalExponent}
			*q = *apiresource.NewScaledQuantity(n, apiresource.Scale(c.Intn(13)-9))
			q.Format = formats[c.Intn(3)]
			// What is sent is the text.
			*q = apiresource.MustParse(q.String())
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<36)-1<<34, 0) },
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.MicroTime{Time: time.Unix(c.Int63n(1<<33), c.Int63n(1e6)*1000)}
		},
		func(d *metav1.Duration, c randfill.Continue) { d.Duration = time.Duration(c.Int63() - c.Int63()) },
		func(i *apiintstr.IntOrString, c randfill.Continue) {
			if *i = apiintstr.FromInt32(int32(c.Uint32())); c.Intn(2) == 0 {
				*i = apiintstr.FromString(c.String(10))
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) {
			f.SetRawString(fmt.Sprintf(`{"f:n":{"k:%d":{}}}`, c.Intn(100)))
		},
		func(e *runtime.RawExtension, c randfill.Continue) {
			// Without anything it is null in JSON, which is as good as nothing.
			*e = runtime.RawExtension{Raw: fmt.Appendf(nil, `{"a":[%d,"x"]}`, c.Intn(100))}
		},
		func(s *string, c randfill.Continue) {
			if *s = c.String(20); c.Intn(4) == 0 { // Lengths of two bytes, and escapes.
				*s = strings.Repeat("\"\\\n<a", 40) + *s
			}
		},
	)
}

// viewsOf are the types of views by the types of Kubernetes.
var viewsOf = map[reflect.Type]reflect.Type{}

func init() {
	for _, v := range views {
		viewsOf[v.kubernetes] = v.view
	}
}

// object is what a view is compared with: a field, where it lies, and whether the
// view is of JSON.
type object struct {
	t    *testing.T
	path string
	// seen are the fields that were there at least once.
	seen map[string]bool
	// kept are comparisons with what may be kept, for when the object is gone; nil if
	// it stays.
	kept *[]func()
}

func (o object) errorf(format string, args ...any) {
	o.t.Helper()
	o.t.Fatalf("%s: %s", o.path, fmt.Sprintf(format, args...))
}

func (o object) at(format string, args ...any) object {
	o.path += fmt.Sprintf(format, args...)
	return o
}

func call(v reflect.Value, method string, args ...reflect.Value) []reflect.Value {
	return v.MethodByName(method).Call(args)
}

// message compares each field of a struct with what the accessor of the view says.
func (o object) message(want, v reflect.Value) {
	if v.Type() != viewsOf[want.Type()] {
		o.errorf("is read by %s, want %s", v.Type(), viewsOf[want.Type()])
	}
	for i := range want.NumField() {
		f := want.Type().Field(i)
		tag, ok := f.Tag.Lookup("protobuf")
		if !ok {
			continue
		}
		name := f.Name
		if f.Anonymous {
			if _, rest, ok := strings.Cut(tag, "name="); ok {
				name, _, _ = strings.Cut(rest, ",")
				name = string(unicode.ToUpper(rune(name[0]))) + name[1:]
			}
		}
		o := o.at(".%s", name)
		if !v.MethodByName(name).IsValid() {
			o.errorf("has no accessor")
		}
		field := want.Field(i)
		if !field.IsZero() {
			o.seen[want.Type().String()+"."+name] = true
		}
		if field.Kind() == reflect.Pointer {
			if has := call(v, "Has"+name)[0].Bool(); has == field.IsNil() {
				o.errorf("Has is %v", has)
			}
			if field.IsNil() {
				field = reflect.Zero(field.Type().Elem())
			} else {
				field = field.Elem()
			}
		}
		o.value(field, call(v, name)[0])
	}
}

// value compares a value with what an accessor returned.
func (o object) value(want, got reflect.Value) {
	if _, isView := viewsOf[want.Type()]; o.kept != nil && !isView && want.Kind() != reflect.Map && want.Kind() != reflect.Slice {
		later := o
		later.kept = nil
		*o.kept = append(*o.kept, func() { later.at(" after the call").value(want, got) })
	}
	switch w := want.Interface().(type) {
	case apiresource.Quantity:
		if g := got.Interface().(resource.Quantity); g.String() != w.String() {
			o.errorf("got %s, want %s", g, &w)
		}
		return
	case metav1.Time:
		o.time(w.Time, got.Interface().(meta.Time))
		return
	case metav1.MicroTime:
		o.time(w.Time, got.Interface().(meta.Time))
		return
	case metav1.Duration:
		if g := got.Interface().(meta.Duration); int64(g) != int64(w.Duration) {
			o.errorf("got %s, want %s", g, w)
		}
		return
	case apiintstr.IntOrString:
		if g := got.Interface().(intstr.IntOrString); (g != intstr.IntOrString{Type: intstr.Type(w.Type), IntVal: w.IntVal, StrVal: w.StrVal}) || g.String() != w.String() {
			o.errorf("got %+v, want %+v", g, w)
		}
		return
	case runtime.RawExtension:
		if !bytes.Equal(got.Bytes(), w.Raw) {
			o.errorf("got %s, want %s", got.Bytes(), w.Raw)
		}
		return
	case metav1.FieldsV1:
		if string(got.Bytes()) != w.GetRawString() {
			o.errorf("got %s, want %s", got.Bytes(), w.GetRawString())
		}
		return
	}
	switch want.Kind() {
	case reflect.Struct:
		o.message(want, got)
	case reflect.Slice:
		if got.Kind() != reflect.Slice || got.Len() != want.Len() {
			o.errorf("got %d elements, want %d", got.Len(), want.Len())
		}
		for i := range want.Len() {
			o.at("[%d]", i).value(want.Index(i), got.Index(i))
		}
	case reflect.Map:
		if n := call(got, "Len")[0].Int(); int(n) != want.Len() {
			o.errorf("got %d entries, want %d", n, want.Len())
		}
		for it := want.MapRange(); it.Next(); {
			key := it.Key().String()
			found := call(got, "Lookup", reflect.ValueOf(key))
			if !found[1].Bool() || !call(got, "Has", reflect.ValueOf(key))[0].Bool() {
				o.errorf("has no key %q", key)
			}
			o.at("[%q]", key).value(it.Value(), found[0])
		}
		if call(got, "Has", reflect.ValueOf("a key that is too strange to be in any object"))[0].Bool() {
			o.errorf("has any key")
		}
	default:
		if !got.CanConvert(want.Type()) || got.Kind() != want.Kind() {
			o.errorf("is read as %s, want %s", got.Type(), want.Type())
		}
		if g, w := got.Convert(want.Type()).Interface(), want.Interface(); g != w {
			o.errorf("got %v, want %v", g, w)
		}
	}
}

func (o object) time(want time.Time, got meta.Time) {
	if got.IsZero() != want.IsZero() || !want.IsZero() && (got.Unix() != want.Unix() || got.Nanosecond() != want.Nanosecond()) {
		o.errorf("got %s, want %s", got, want)
	}
}

// TestEveryFieldOfEveryMessage fills each type of Kubernetes at random, and reads
// each field of it from its protobuf and from its JSON.
func TestEveryFieldOfEveryMessage(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range views {
		t.Run(v.kubernetes.String(), func(t *testing.T) {
			var slot view.Slot
			defer slot.Close()
			for seed := range int64(8) {
				want := reflect.New(v.kubernetes)
				filler(seed).Fill(want.Interface())
				raw, err := want.Interface().(interface{ Marshal() ([]byte, error) }).Marshal()
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(want.Interface())
				if err != nil {
					t.Fatal(err)
				}
				// Without spare capacity, so that a read beyond the end panics.
				raw, text = bytes.Clone(raw), bytes.Clone(text)
				o := object{t: t, seen: seen}
				o.at("seed %d, protobuf", seed).message(want.Elem(), reflect.ValueOf(view.FromProto(raw, v.typ)).Convert(v.view))
				o.at("seed %d, JSON", seed).message(want.Elem(), reflect.ValueOf(view.FromJSON(text, v.typ)).Convert(v.view))
				// What is read of an object in a slot stays when the next one is there.
				o.kept = new([]func())
				slot.Put(text, nil)
				o.at("seed %d, JSON in a slot", seed).message(want.Elem(), reflect.ValueOf(view.FromJSON(text, v.typ)).Convert(v.view))
				other := []byte(`{"metadata":{"name":"other"}}`)
				slot.Put(other, nil)
				view.FromJSON(other, v.typ)
				for _, compare := range *o.kept {
					compare()
				}
			}
		})
	}
	for _, v := range views {
		for i := range v.kubernetes.NumField() {
			f := v.kubernetes.Field(i)
			if _, ok := f.Tag.Lookup("protobuf"); ok && !f.Anonymous && !seen[v.kubernetes.String()+"."+f.Name] {
				t.Errorf("%s.%s was never there", v.kubernetes, f.Name)
			}
		}
	}
}

// readAll calls every accessor of a view, down to a depth.
func readAll(v reflect.Value, depth int) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Slice:
		for i := range min(v.Len(), 3) {
			readAll(v.Index(i), depth)
		}
		return
	case reflect.Struct:
	default:
		return
	}
	if depth == 0 {
		return
	}
	for i := range t.NumMethod() {
		switch m := v.Method(i); {
		case m.Type().NumIn() == 0 && m.Type().NumOut() > 0:
			for _, out := range m.Call(nil) {
				readAll(out, depth-1)
			}
		case t.Method(i).Name == "Lookup":
			readAll(m.Call([]reflect.Value{reflect.ValueOf("cpu")})[0], depth-1)
		case t.Method(i).Name == "All":
			n := 0
			m.Call([]reflect.Value{reflect.MakeFunc(m.Type().In(0), func(args []reflect.Value) []reflect.Value {
				readAll(args[1], depth-1)
				n++
				return []reflect.Value{reflect.ValueOf(n < 3)}
			})})
		}
	}
}

// FuzzHostileBytes reads whatever there is by the view of any message.
func FuzzHostileBytes(f *testing.F) {
	for i, v := range views {
		if i%10 != 0 && v.kubernetes.Name() != "Pod" && v.kubernetes.Name() != "Node" {
			continue
		}
		o := reflect.New(v.kubernetes)
		filler(int64(i)).MaxDepth(6).Fill(o.Interface())
		raw, err := o.Interface().(interface{ Marshal() ([]byte, error) }).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		text, err := json.Marshal(o.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(i), raw)
		f.Add(uint16(i), text)
	}
	f.Fuzz(func(t *testing.T, which uint16, raw []byte) {
		v := views[int(which)%len(views)]
		raw = append(make([]byte, 0, len(raw)), raw...)
		readAll(reflect.ValueOf(view.FromProto(raw, v.typ)).Convert(v.view), 4)
		readAll(reflect.ValueOf(view.FromJSON(raw, v.typ)).Convert(v.view), 4)
	})
}

// TestEveryPrefixOfEveryMessage reads messages that are cut off, and some that
// were changed.
func TestEveryPrefixOfEveryMessage(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for i, v := range views {
		o := reflect.New(v.kubernetes)
		filler(int64(i)).MaxDepth(4).Fill(o.Interface())
		raw, err := o.Interface().(interface{ Marshal() ([]byte, error) }).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			cut := bytes.Clone(raw[:r.Intn(len(raw)+1)])
			if len(cut) > 0 && r.Intn(2) == 0 {
				cut[r.Intn(len(cut))] ^= byte(1 << r.Intn(8))
			}
			readAll(reflect.ValueOf(view.FromProto(cut, v.typ)).Convert(v.view), 3)
		}
	}
}
