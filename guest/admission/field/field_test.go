package field_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	upstream "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubewasm/kubewasm/guest/admission/field"
)

type policy string

// What a plugin says reads like what Kubernetes says.
func TestErrorsReadLikeThoseOfKubernetes(t *testing.T) {
	path, upstreamPath := field.NewPath("spec", "containers").Index(3).Child("env").Key("a/b"), upstream.NewPath("spec", "containers").Index(3).Child("env").Key("a/b")
	short, upstreamShort := field.NewPath("kind"), upstream.NewPath("kind")
	tests := []struct {
		name string
		got  *field.Error
		want *upstream.Error
	}{
		{"Invalid, text", field.Invalid(path, `a "quoted" text`, "must be plain"), upstream.Invalid(upstreamPath, `a "quoted" text`, "must be plain")},
		{"Invalid, named text", field.Invalid(short, policy("Never"), ""), upstream.Invalid(upstreamShort, policy("Never"), "")},
		{"Invalid, number", field.Invalid(short, -5, "must be positive"), upstream.Invalid(upstreamShort, -5, "must be positive")},
		{"Invalid, unsigned number", field.Invalid(short, uint16(80), "x"), upstream.Invalid(upstreamShort, uint16(80), "x")},
		{"Invalid, fraction", field.Invalid(short, 0.5, "x"), upstream.Invalid(upstreamShort, 0.5, "x")},
		{"Invalid, bool", field.Invalid(short, true, "x"), upstream.Invalid(upstreamShort, true, "x")},
		{"Invalid, list", field.Invalid(short, []string{"a", "b"}, "x"), upstream.Invalid(upstreamShort, []string{"a", "b"}, "x")},
		{"Invalid, nil", field.Invalid(short, nil, "x"), upstream.Invalid(upstreamShort, nil, "x")},
		{"Invalid, JSON", field.Invalid(short, []byte(`{"a":[1]}`), "x"), upstream.Invalid(upstreamShort, json.RawMessage(`{"a":[1]}`), "x")},
		{"TypeInvalid", field.TypeInvalid(short, "x", "must be a number"), upstream.TypeInvalid(upstreamShort, "x", "must be a number")},
		{"Required", field.Required(path, ""), upstream.Required(upstreamPath, "")},
		{"Forbidden", field.Forbidden(path, "only for admins"), upstream.Forbidden(upstreamPath, "only for admins")},
		{"NotFound", field.NotFound(path, "x"), upstream.NotFound(upstreamPath, "x")},
		{"Duplicate", field.Duplicate(path, 80), upstream.Duplicate(upstreamPath, 80)},
		{"NotSupported", field.NotSupported(path, "x", []policy{"a", "b"}), upstream.NotSupported(upstreamPath, "x", []policy{"a", "b"})},
		{"NotSupported, no values", field.NotSupported(path, "x", []string{}), upstream.NotSupported(upstreamPath, "x", []string{})},
		{"TooLong", field.TooLong(path, "x", 5), upstream.TooLong(upstreamPath, "x", 5)},
		{"TooLong, unknown length", field.TooLong(path, "x", -1), upstream.TooLong(upstreamPath, "x", -1)},
		{"TooMany", field.TooMany(path, 7, 5), upstream.TooMany(upstreamPath, 7, 5)},
		{"TooMany, unknown number", field.TooMany(path, 7, -1), upstream.TooMany(upstreamPath, 7, -1)},
		{"InternalError", field.InternalError(path, errors.New("x")), upstream.InternalError(upstreamPath, errors.New("x"))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got, want := test.got.Error(), test.want.Error(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if test.got.Type != string(test.want.Type) || test.got.Field != test.want.Field {
				t.Errorf("type %s, field %s; want %s, %s", test.got.Type, test.got.Field, test.want.Type, test.want.Field)
			}
		})
	}
}

func TestValuesThatJSONDoesNotHave(t *testing.T) {
	number := 5
	for want, value := range map[string]any{
		`null`:         math.NaN(),
		`"1m0s"`:       time.Minute,
		`5`:            &number,
		`"not JSON {"`: []byte("not JSON {"),
		`[null,[1]]`:   []any{nil, [1]int{1}},
	} {
		if got := field.Invalid(nil, value, "").BadValue; got != want {
			t.Errorf("%v is %s, want %s", value, got, want)
		}
	}
	if got := (*field.Path)(nil).String(); got != "" {
		t.Errorf("the root is %q", got)
	}
}
