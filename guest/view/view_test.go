package view

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// thing is a view as a generator writes it.
var (
	typeOfThing = Type{Names: []string{1: "name", 2: "number", 3: "nested", 4: "parts", 5: "names", 6: "labels", 7: "truth", 16: "far"}}
	typeOfPart  = Type{Names: []string{1: "key", 2: "value"}}
)

func thingOf(raw []byte, json bool) View {
	if json {
		return FromJSON(raw, &typeOfThing)
	}
	return FromProto(raw, &typeOfThing)
}

// said is what a thing says.
type said struct {
	Name, Far, NestedKey string
	Number               int64
	HasNumber, Truth     bool
	Parts, Names         []string
	Labels               []entry
}

func say(v View) said {
	s := said{
		Name: v.Text(1), Far: v.Text(16), Number: v.Int64(2), HasNumber: v.Has(2), Truth: v.Bool(7),
		Names: v.Strings(5), Labels: v.StringMap(6).entries(), NestedKey: v.Message(3, &typeOfPart).Text(1),
	}
	for _, p := range List[View](v, 4, &typeOfPart) {
		s.Parts = append(s.Parts, p.Text(1)+"="+p.Text(2))
	}
	return s
}

func keyValue(key, value string) []byte {
	return wire.AppendBytes(wire.AppendBytes(nil, 1, key), 2, value)
}

func thingBytes(name, long string) []byte {
	b := wire.AppendBytes(nil, 1, name)
	b = wire.AppendVarint(b, 2, 1<<64-3)
	b = wire.AppendBytes(b, 3, keyValue("inner", long))
	b = wire.AppendBytes(b, 4, keyValue("p1", "v1"))
	b = wire.AppendMapEntry(b, 6, "zone", "a")
	b = wire.AppendBytes(b, 4, keyValue("p2", long))
	b = wire.AppendBytes(b, 5, "first")
	b = wire.AppendBytes(b, 5, long)
	b = wire.AppendMapEntry(b, 6, "long", long)
	b = wire.AppendVarint(b, 7, 1)
	b = wire.AppendBytes(b, 99, "of a later version of Kubernetes")
	return wire.AppendBytes(b, 16, "far")
}

func thingSays(name, long string) said {
	return said{
		Name: name, Far: "far", NestedKey: "inner", Number: -3, HasNumber: true, Truth: true,
		Parts: []string{"p1=v1", "p2=" + long}, Names: []string{"first", long}, Labels: []entry{{"zone", "a"}, {"long", long}},
	}
}

func TestProtoAndJSONReadTheSame(t *testing.T) {
	long := strings.Repeat("x", 200)
	text := `{"name":"n","unknown":[{}],"number":-3,"nested":{"key":"inner"},"parts":[{"key":"p1","value":"v1"},{"value":"` + long + `","key":"p2"}],` +
		`"names":["first","` + long + `"],"labels":{"zone":"a","long":"` + long + `"},"truth":true,"far":"far"}`
	for name, raw := range map[string][]byte{"protobuf": thingBytes("n", long), "JSON": []byte(text)} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(thingSays("n", long), say(thingOf(raw, name == "JSON"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLastOfDuplicatesCounts(t *testing.T) {
	b := wire.AppendBytes(nil, 1, "one")
	b = wire.AppendBytes(b, 1, "two")
	b = wire.AppendVarint(b, 2, 1)
	b = wire.AppendVarint(b, 2, 2)
	for name, raw := range map[string][]byte{"protobuf": b, "JSON": []byte(`{"name":"one","name":"two","number":1,"number":2}`)} {
		got := say(thingOf(raw, name == "JSON"))
		if diff := cmp.Diff(said{Name: "two", Number: 2, HasNumber: true}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestANumberAmongBytesIsPassedOver(t *testing.T) {
	b := wire.AppendVarint(nil, 5, 9)
	b = wire.AppendBytes(b, 5, "first")
	b = wire.AppendVarint(b, 5, 9)
	b = wire.AppendVarint(b, 1, 300)
	b = wire.AppendBytes(b, 1, "name")
	b = wire.AppendBytes(b, 5, "second")
	want := said{Name: "name", Names: []string{"first", "second"}}
	if diff := cmp.Diff(want, say(thingOf(b, false)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestElementsBehindNumberSixteen holds that a key of two bytes, of which the
// first is the number of another key, is read as one.
func TestElementsBehindNumberSixteen(t *testing.T) {
	typ := Type{Names: []string{22: "tolerations"}}
	var b []byte
	for _, key := range []string{"a", "bb", strings.Repeat("c", 200)} {
		b = wire.AppendBytes(b, 22, wire.AppendBytes(nil, 1, key))
	}
	var got []string
	for _, part := range List[View](FromProto(b, &typ), 22, &typeOfPart) {
		got = append(got, part.Text(1))
	}
	if diff := cmp.Diff([]string{"a", "bb", strings.Repeat("c", 200)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFieldsOfTheWrongTypeAreEmpty(t *testing.T) {
	b := wire.AppendVarint(nil, 1, 300)
	b = wire.AppendBytes(b, 2, "text")
	for _, number := range []uint32{3, 4, 5, 6, 16} {
		b = wire.AppendVarint(b, number, 1<<40)
	}
	if diff := cmp.Diff(said{HasNumber: true}, say(thingOf(b, false)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("protobuf (-want +got):\n%s", diff)
	}
	text := `{"name":3,"number":"x","nested":[],"parts":{},"names":7,"labels":[],"truth":"true","far":{}}`
	got := say(thingOf([]byte(text), true))
	if diff := cmp.Diff(said{HasNumber: true}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestBytesCutAnywhereAreRead holds that bytes cut anywhere do no harm.
func TestBytesCutAnywhereAreRead(t *testing.T) {
	raw := thingBytes("n", strings.Repeat("x", 200))
	for n := range raw {
		say(thingOf(raw[:n:n], false))
	}
}

func TestLookup(t *testing.T) {
	entries := func(pairs ...string) []byte {
		var b []byte
		for i := 0; i < len(pairs); i += 2 {
			b = wire.AppendMapEntry(b, 6, pairs[i], pairs[i+1])
		}
		return b
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	entry := func(b []byte) []byte { return wire.AppendBytes(nil, 6, b) }
	long := strings.Repeat("l", 300)
	tests := map[string]struct {
		proto []byte
		json  string
		want  map[string]string
	}{
		"nothing":                     {json: `{}`},
		"empty map":                   {json: `{"labels":{}}`},
		"one entry":                   {entries("a", "1"), `{"labels":{"a":"1"}}`, map[string]string{"a": "1"}},
		"keys of the same length":     {entries("a", "1", "b", "2", "c", "3"), `{"labels":{"a":"1","b":"2","c":"3"}}`, map[string]string{"a": "1", "b": "2", "c": "3"}},
		"empty key and value":         {entries("", "", "b", ""), `{"labels":{"":"","b":""}}`, map[string]string{"": "", "b": ""}},
		"the last of duplicates":      {entries("a", "1", "b", "2", "a", "3"), `{"labels":{"a":"1","b":"2","a":"3"}}`, map[string]string{"a": "3", "b": "2"}},
		"long key and value":          {entries(long, "1", "a", long), `{"labels":{"` + long + `":"1","a":"` + long + `"}}`, map[string]string{long: "1", "a": long}},
		"other fields in between":     {join(entries("a", "1"), wire.AppendBytes(nil, 1, "name"), entries("b", "2")), `{"labels":{"a":"1","b":"2"},"name":"name"}`, map[string]string{"a": "1", "b": "2"}},
		"value before key":            {entry(wire.AppendBytes(wire.AppendBytes(nil, 2, "1"), 1, "a")), `{"labels":{"a":"1"}}`, map[string]string{"a": "1"}},
		"entry without value":         {join(entry(wire.AppendBytes(nil, 1, "a")), entries("b", "2")), `{"labels":{"a":"","b":"2"}}`, map[string]string{"a": "", "b": "2"}},
		"entry without key":           {join(entry(wire.AppendBytes(nil, 2, "1")), entries("b", "2")), `{"labels":{"":"1","b":"2"}}`, map[string]string{"": "1", "b": "2"}},
		"entry with two keys":         {entry(wire.AppendBytes(keyValue("b", "1"), 1, "a")), `{"labels":{"a":"1"}}`, map[string]string{"a": "1"}},
		"entry with another field":    {entry(wire.AppendVarint(keyValue("a", "1"), 3, 9)), `{"labels":{"a":"1"}}`, map[string]string{"a": "1"}},
		"number in place of an entry": {join(entries("a", "1"), wire.AppendVarint(nil, 6, 5), entries("b", "2")), `{"labels":{"a":"1","b":"2"}}`, map[string]string{"a": "1", "b": "2"}},
	}
	for name, test := range tests {
		for encoding, raw := range map[string][]byte{"protobuf": test.proto, "JSON": []byte(test.json)} {
			t.Run(name+" in "+encoding, func(t *testing.T) {
				for _, all := range []bool{false, true} {
					labels := thingOf(raw, encoding == "JSON").StringMap(6)
					if all {
						labels.entries()
					}
					for range 2 { // Found, then remembered.
						for key, want := range test.want {
							if got, ok := labels.Lookup(key); got != want || !ok {
								t.Errorf("%.9q is %.9q, %v, want %.9q", key, got, ok, want)
							}
						}
						for _, key := range []string{"z", "none"} {
							if got, ok := labels.Lookup(key); got != "" || ok {
								t.Errorf("%q is %q, %v, want none", key, got, ok)
							}
						}
					}
					got := map[string]string{}
					for _, e := range labels.entries() {
						got[e.Key] = e.Value
					}
					if len(got) != len(test.want) || len(got) > 0 && !cmp.Equal(test.want, got) {
						t.Errorf("entries %v, want %v", got, test.want)
					}
				}
			})
		}
	}
}

func TestAnEmptyMapHasNoEntries(t *testing.T) {
	var none StringMap
	if v, ok := none.Lookup("a"); v != "" || ok || none.entries() != nil {
		t.Error("a zero map has entries")
	}
	empty := View{}.StringMap(6)
	if v, ok := empty.Lookup(""); v != "" || ok || empty.entries() != nil {
		t.Error("a map of no message has entries")
	}
}

func TestWhatIsTooLongIsRefused(t *testing.T) {
	if testing.Short() || runtime.GOARCH == "wasm" {
		t.Skip("takes 2 GiB of address space")
	}
	if diff := cmp.Diff(said{}, say(thingOf(make([]byte, 1<<31), false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
