package config_test

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/guest/internal/config"
)

// percent decodes itself from "50%".
type percent int

func (p *percent) UnmarshalText(text []byte) error {
	if _, err := fmt.Sscanf(string(text), "%d%%", (*int)(p)); err != nil {
		return errors.New("want a percentage such as 50%")
	}
	return nil
}

// oneOrMany decodes itself from a string or an array of strings.
type oneOrMany []string

func (o *oneOrMany) UnmarshalJSON(data []byte) error {
	var one string
	if stdjson.Unmarshal(data, &one) == nil {
		*o = oneOrMany{one}
		return nil
	}
	return stdjson.Unmarshal(data, (*[]string)(o))
}

type common struct {
	Team  string `json:"team"`
	Level int8   `json:"level,omitempty"`
	Hides string `json:"hides"`
}

type Extra struct {
	Zone string `json:"zone"`
	Both string `json:"both"`
}

type Other struct {
	Both string `json:"both"`
}

type settings struct {
	common
	*Extra
	Other
	Hides      bool              `json:"hides"`
	Registries []string          `json:"registries"`
	Labels     map[string]string `json:"labels"`
	Limits     map[string]limit  `json:"limits"`
	Nested     limit             `json:"nested"`
	Pointer    *limit            `json:"pointer"`
	Ratio      float64           `json:"ratio"`
	Small      float32           `json:"small"`
	Port       uint16            `json:"port"`
	Offset     int64             `json:"offset"`
	Anything   any               `json:"anything"`
	Key        []byte            `json:"key"`
	Share      percent           `json:"share"`
	Names      oneOrMany         `json:"names"`
	Untagged   string
	Skipped    string `json:"-"`
	state      map[string]int
}

type limit struct {
	Max  int     `json:"max"`
	Tree []limit `json:"tree"`
}

func TestDecodeReadsWhatEncodingJSONReads(t *testing.T) {
	docs := []string{
		`{}`, ` { } `, `null`,
		`{"team":"a","level":-128,"hides":true,"zone":"z","Untagged":"u"}`,
		`{"registries":["a","b\n\u00e4"],"labels":{"a/b":"c","":""},"limits":{"x":{"max":1}}}`,
		`{"registries":[],"labels":{},"pointer":{"max":7,"tree":[{"max":8,"tree":[{}]}]}}`,
		`{"registries":null,"labels":null,"pointer":null,"nested":null,"ratio":null,"team":null,"anything":null}`,
		`{"ratio":1.5e-3,"small":0.1,"port":65535,"offset":-9223372036854775808}`,
		`{"anything":{"a":[1,"x",null,true,{"b":{}}]},"key":"aGVsbG8=","share":"50%","names":"one"}`,
		`{"names":["a","b"],"anything":"text"}`,
	}
	for _, doc := range docs {
		var got, want settings
		if err := stdjson.Unmarshal([]byte(doc), &want); err != nil {
			t.Fatalf("encoding/json refuses %s: %v", doc, err)
		}
		if err := config.Decode([]byte(doc), &got); err != nil {
			t.Errorf("Decode(%s): %v", doc, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
			t.Errorf("Decode(%s) (-encoding/json +got):\n%s", doc, diff)
		}
	}
}

func TestDecodeKeepsDefaults(t *testing.T) {
	got := settings{Registries: []string{"default"}, Ratio: 0.5, state: map[string]int{"x": 1}, Labels: map[string]string{"kept": "yes"}}
	if err := config.Decode([]byte(`{"team":"a","labels":{"new":"x"}}`), &got); err != nil {
		t.Fatal(err)
	}
	want := settings{common: common{Team: "a"}, Registries: []string{"default"}, Ratio: 0.5, state: map[string]int{"x": 1}, Labels: map[string]string{"kept": "yes", "new": "x"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestDecodeCopiesItsInput(t *testing.T) {
	data := []byte(`{"team":"abc","labels":{"key":"value"},"anything":{"k":"v"},"names":"one"}`)
	var got settings
	if err := config.Decode(data, &got); err != nil {
		t.Fatal(err)
	}
	clear(data) // The next host call uses the buffer again.
	want := settings{common: common{Team: "abc"}, Labels: map[string]string{"key": "value"}, Anything: map[string]any{"k": "v"}, Names: oneOrMany{"one"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestDecodeNamesEveryMistake(t *testing.T) {
	const fields = ", there are hides, registries, labels, limits, nested, pointer, ratio, small, port, offset, anything, key, share, names, Untagged, team, level, zone"
	tests := []struct{ name, doc, want string }{
		{"wrong type in a list", `{"registries":["a","b",3]}`, "registries[2]: want string, got number"},
		{"wrong type in a struct in a map", `{"limits":{"a/b":{"max":"x"}}}`, "limits[a/b].max: want number, got string"},
		{"wrong type behind a pointer", `{"pointer":{"tree":[{},{"tree":{}}]}}`, "pointer.tree[1].tree: want array, got object"},
		{"unknown field", `{"lables":{}}`, `lables: unknown field, did you mean "labels"?`},
		{"other case", `{"Team":"x"}`, `Team: unknown field, did you mean "team"?`},
		{"unexported field", `{"state":{}}`, "state: unknown field" + fields},
		{"skipped field", `{"Skipped":"x","-":"y"}`, "Skipped: unknown field" + fields + "; -: unknown field" + fields},
		{"ambiguous field of embedded structs", `{"both":"x"}`, "both: unknown field" + fields},
		{"field of an embedded struct", `{"zona":"x"}`, `zona: unknown field, did you mean "zone"?`},
		{"field of a field", `{"pointer":{"tree":[{"trees":[]}]}}`, `pointer.tree[0].trees: unknown field, did you mean "tree"?`},
		{"duplicate field", `{"team":"a","team":"b"}`, "team: field occurs twice"},
		{"duplicate key", `{"labels":{"a":"1","a":"2"}}`, "labels[a]: key occurs twice"},
		{"several", `{"team":1,"hides":"no","nested":[],"labels":[],"pointer":true,"key":7,"share":5}`,
			"team: want string, got number; hides: want bool, got string; nested: want object, got array; labels: want object, got array; pointer: want object, got bool; key: want base64 string, got number; share: want string, got number"},
		{"number too large", `{"level":128,"port":-1,"offset":1.5,"small":1e99}`,
			"level: want int8, got 128; port: want uint16, got -1; offset: want int64, got 1.5; small: want float32, got 1e99"},
		{"type that refuses", `{"share":"half"}`, "share: want a percentage such as 50%"},
		{"bad base64", `{"key":"?"}`, "key: illegal base64 data at input byte 0"},
		{"not an object", `[1]`, "want object, got array"},
		{"not JSON", `{"team":"a"`, "the configuration is not valid JSON"},
		{"not JSON where nothing looks", `{"anything":{"a":[}}`, "the configuration is not valid JSON"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var s settings
			err := config.Decode([]byte(test.doc), &s)
			if err == nil || err.Error() != test.want {
				t.Errorf("Decode(%s):\ngot  %v\nwant %s", test.doc, err, test.want)
			}
		})
	}
}

func TestDecodeRefusesTypesThatNobodyCanConfigure(t *testing.T) {
	var s struct {
		Func    func()         `json:"func"`
		Chan    chan int       `json:"chan"`
		Complex complex128     `json:"complex"`
		Numbers map[int]string `json:"numbers"`
		Error   error          `json:"error"`
	}
	err := config.Decode([]byte(`{"func":1,"chan":1,"complex":1,"numbers":{},"error":1}`), &s)
	want := "func: a field of type func() cannot be configured; chan: a field of type chan int cannot be configured; complex: a field of type complex128 cannot be configured; numbers: a field of type map[int]string cannot be configured; error: a field of type error cannot be configured"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestDecodeGivesOnlyStructsAConfiguration(t *testing.T) {
	const want = "the plugin takes no configuration, but has been given some"
	text := "x"
	for _, out := range []any{nil, settings{}, &text, (*settings)(nil), func() {}} {
		if err := config.Decode([]byte(`{}`), out); err == nil || err.Error() != want {
			t.Errorf("Decode into %T: %v, want: %s", out, err, want)
		}
		if err := config.Decode(nil, out); err != nil {
			t.Errorf("Decode of nothing into %T: %v", out, err)
		}
	}
}

// random settings, written by encoding/json, are read back.
func TestDecodeReadsRandomSettings(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var want settings
		fill(r, reflect.ValueOf(&want).Elem(), 0)
		want.Share, want.Names, want.Skipped, want.Anything = 0, oneOrMany{"n"}, "", map[string]any{"a": 1.5}
		data, err := stdjson.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), `"share":0`, `"share":"0%"`, 1)
		var got settings
		if err := config.Decode([]byte(text), &got); err != nil {
			t.Fatalf("Decode(%s): %v", text, err)
		}
		// Both is ambiguous, so it is in neither document nor struct.
		diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{}), cmpopts.IgnoreFields(Extra{}, "Both"), cmpopts.IgnoreFields(Other{}, "Both"), cmpopts.IgnoreFields(common{}, "Hides"), cmpopts.EquateEmpty())
		if diff != "" {
			t.Fatalf("Decode(%s) (-want +got):\n%s", text, diff)
		}
	}
}

func fill(r *rand.Rand, v reflect.Value, depth int) {
	if !v.CanSet() && v.Kind() != reflect.Struct {
		return
	}
	switch v.Kind() {
	case reflect.String:
		runes := make([]rune, r.IntN(12))
		for i := range runes {
			runes[i] = []rune("abcdefgh \"\\/\n\tä€😀\u2028<>&\x01")[r.IntN(22)]
		}
		v.SetString(string(runes))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.Uint16:
		v.SetUint(r.Uint64() >> 48)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(r.NormFloat64())))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), depth+1)
	case reflect.Slice:
		if depth > 6 {
			return
		}
		n := r.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.Index(i).SetUint(uint64(r.IntN(256)))
				continue
			}
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, depth+1)
			fill(r, value, depth+1)
			v.SetMapIndex(key, value)
		}
	}
}

// Whatever encoding/json refuses, Decode refuses too; what Decode takes, it
// takes the same way.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"team":"a","level":-128,"hides":true,"zone":"z","Untagged":"u","key":"AA=="}`))
	f.Add([]byte(`{"registries":["a","b"],"labels":{"a":"b"},"limits":{"x":{"max":1,"tree":[{}]}},"ratio":1e5,"anything":[{}]}`))
	f.Add([]byte(`{"team":"a","team":null,"pointer":{"max":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want settings
		if config.Decode(data, &got) != nil || len(strings.TrimSpace(string(data))) == 0 {
			return
		}
		if err := stdjson.Unmarshal(data, &want); err != nil {
			t.Fatalf("Decode takes %q, encoding/json does not: %v", data, err)
		}
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("Decode(%q)\ngot  %#v\nwant %#v", data, got, want)
		}
	})
}
