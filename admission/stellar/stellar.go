package stellar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/policyjson"
)

// name is the name of the dialect.
const name = "stellar"

const module = "env"

// Limits of plugins in the webhook that they were written for.
const (
	memoryBytes = 16 << 20
	fuel        = 1_000_000
	timeout     = time.Second
)

// maxOutputBytes is the maximum length of a verdict. It has no object; a field error of three bytes
// takes thirty times that here.
const maxOutputBytes = 256 << 10

// validate is the index of the export.
const validate host.ExportIndex = 0

// New returns the dialect. It is configured by nothing.
func New() *dialect.Dialect {
	return &dialect.Dialect{
		Name:   name,
		Member: name,
		Detect: func(m *host.Module) bool {
			return m.Import(module, "read_input") != "" || m.Import(module, "write_output") != "" ||
				m.Import(module, "get_input_len") != "" || m.Import(module, "log_message") != ""
		},
		Bind: func(p dialect.Plugin) (*dialect.Binding, error) {
			return &dialect.Binding{
				Host: host.Dialect{
					Exports:  []host.Export{validate: {Name: "validate", Results: []abi.ValueType{abi.I32}}},
					Imports:  imports(p),
					Start:    []string{"_initialize"},
					Defaults: host.Limits{MemoryBytes: memoryBytes, Fuel: fuel, Timeout: timeout},
				},
				Check: func(context.Context, host.DialectInstance) error {
					if len(p.Settings) != 0 {
						return errors.New("a Stellar plugin takes no settings")
					}
					return nil
				},
				Ask: ask,
			}, nil
		},
	}
}

// exchange holds the input and the output of a call.
type exchange struct{ input, output []byte }

func exchangeOf(inst *host.Instance) *exchange {
	c := dialect.CallOf(inst)
	e, ok := c.Own.(*exchange)
	if !ok {
		e = new(exchange)
		c.Own = e
	}
	return e
}

// imports are the functions of the host. The messages of guests go to the plugin's logger.
func imports(p dialect.Plugin) []host.Import {
	i32 := []abi.ValueType{abi.I32}
	two := []abi.ValueType{abi.I32, abi.I32}
	return []host.Import{
		{Module: module, Name: "get_input_len", Results: i32, Func: func(inst *host.Instance, stack []uint64) {
			stack[0] = uint64(len(exchangeOf(inst).input))
		}},
		{Module: module, Name: "read_input", Params: two, Results: i32, Memory: 0b11, Func: func(inst *host.Instance, stack []uint64) {
			input := exchangeOf(inst).input
			n := min(uint32(stack[1]), uint32(len(input)))
			if inst.Dialect().Put(uint32(stack[0]), input[:n]) != nil {
				stack[0] = minusOne
				return
			}
			stack[0] = uint64(n)
		}},
		{Module: module, Name: "write_output", Params: two, Results: i32, Memory: 0b11, Func: func(inst *host.Instance, stack []uint64) {
			if uint64(uint32(stack[1])) > uint64(min(inst.Limits().ResultBytes, maxOutputBytes)) {
				stack[0] = minusOne
				return
			}
			data, err := inst.Dialect().Peek(uint32(stack[0]), uint32(stack[1]))
			if err != nil {
				stack[0] = minusOne
				return
			}
			exchangeOf(inst).output = append([]byte{}, data...)
			stack[0] = 0
		}},
		host.FromGuest(module, "log_message", func(inst *host.Instance, data []byte) {
			if p.Logger != nil && inst.Dialect().MayLog(len(data)) {
				p.Logger.Debug(inst.Stain().Text(strings.ToValidUTF8(string(data), "\uFFFD")), "plugin", p.Name)
			}
		}),
	}
}

// minusOne is -1 as a 32-bit value of WebAssembly.
const minusOne = uint64(0xffffffff)

func ask(ctx context.Context, inst host.DialectInstance, req *dialect.Request) (dialect.Verdict, error) {
	e := exchangeOf(inst.Instance)
	defer func() { *e = exchange{} }()
	e.input = req.Body(name, func() []byte { return input(req) })
	code, err := inst.CallExport(ctx, validate)
	if err != nil {
		return dialect.Verdict{}, err
	}
	if len(e.output) == 0 {
		if code == 0 {
			return dialect.Verdict{Allowed: true}, nil
		}
		return dialect.Verdict{Message: fmt.Sprintf("Plugin returned error code: %d", int32(uint32(code)))}, nil
	}
	v, err := parse(e.output)
	if err != nil {
		return v, fmt.Errorf("plugin %q: read its output: %w", inst.Plugin().Name(), err)
	}
	return v, nil
}

// input encodes the request for plugins. Some plugins require fields even if they are empty.
func input(req *dialect.Request) []byte {
	o := policyjson.NewObject(make([]byte, 0, len(req.Object.Raw)+len(req.OldObject.Raw)+512))
	o.Text("operation", string(req.Operation))
	o.Raw("object", req.Object.Raw)
	o.Raw("oldObject", req.OldObject.Raw)
	o.Text("namespace", req.Namespace)
	o.Text("name", req.Name)
	o.Key("userInfo")
	o.Append(func(dst []byte) []byte { return policyjson.AppendUserInfo(dst, &req.UserInfo) })
	o.Raw("context", []byte("{}"))
	return o.End()
}

// output is the verdict of a plugin. Optional fields may be null; fields with a default may not.
type output struct {
	Allowed          policyjson.Field[bool]               `json:"allowed"`
	Message          *policyjson.Text                     `json:"message"`
	Reason           *policyjson.Text                     `json:"reason"`
	Errors           policyjson.Field[[]outputError]      `json:"errors"`
	Warnings         policyjson.Field[[]policyjson.Text]  `json:"warnings"`
	AuditAnnotations policyjson.Field[policyjson.TextMap] `json:"auditAnnotations"`
}

type outputError struct {
	Field        policyjson.Field[policyjson.Text] `json:"field"`
	Message      policyjson.Field[policyjson.Text] `json:"message"`
	ErrorType    *policyjson.Text                  `json:"errorType"`
	InvalidValue json.RawMessage                   `json:"invalidValue"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *outputError) UnmarshalJSON(raw []byte) error {
	type plain outputError
	if err := policyjson.Decode(raw, (*plain)(e)); err != nil {
		return err
	}
	if !e.Field.Present || !e.Message.Present {
		return errors.New("an error has no field or no message")
	}
	return nil
}

// errorTypes maps the error types of plugins to those of Kubernetes. A type without a counterpart
// becomes an invalid value, and the plugin's message explains it. A denial keeps an unknown
// type. If the request is allowed, an unknown type is a mistake, as in that webhook.
var errorTypes = map[string]string{
	"":                    "FieldValueInvalid",
	"Required":            "FieldValueRequired",
	"Invalid":             "FieldValueInvalid",
	"TooLarge":            "FieldValueInvalid",
	"TooSmall":            "FieldValueInvalid",
	"InvalidPattern":      "FieldValueInvalid",
	"NotSupported":        "FieldValueNotSupported",
	"Duplicate":           "FieldValueDuplicate",
	"Immutable":           "FieldValueForbidden",
	"ConstraintViolation": "FieldValueInvalid",
}

func parse(raw []byte) (dialect.Verdict, error) {
	var out output
	if err := policyjson.Decode(raw, &out); err != nil {
		return dialect.Verdict{}, err
	}
	if !out.Allowed.Present {
		return dialect.Verdict{}, errors.New("allowed is missing")
	}
	v := dialect.Verdict{Allowed: out.Allowed.Value}
	result := &admissionmsg.Result{Warnings: policyjson.Texts(out.Warnings.Value), AuditAnnotations: out.AuditAnnotations.Value}
	for _, e := range out.Errors.Value {
		if !v.Allowed {
			result.FieldErrors = append(result.FieldErrors, e.fieldError())
		} else if _, ok := errorTypes[e.errorType()]; !ok {
			return dialect.Verdict{}, fmt.Errorf("unknown errorType %.100q", e.errorType())
		}
	}
	if !v.Allowed {
		if out.Message != nil {
			v.Message = string(*out.Message)
		}
		if out.Reason != nil {
			result.Reason = string(*out.Reason)
		}
	}
	if result.Reason != "" || len(result.FieldErrors) != 0 || len(result.Warnings) != 0 || len(result.AuditAnnotations) != 0 {
		v.Result = result
	}
	return v, nil
}

// errorType returns the type of an error, empty if it has none.
func (e *outputError) errorType() string {
	if e.ErrorType == nil {
		return ""
	}
	return string(*e.ErrorType)
}

func (e *outputError) fieldError() admissionmsg.FieldError {
	f := admissionmsg.FieldError{Field: string(e.Field.Value), Type: e.errorType(), Message: string(e.Message.Value)}
	if known, ok := errorTypes[f.Type]; ok {
		f.Type = known
	}
	if len(e.InvalidValue) != 0 && string(e.InvalidValue) != "null" {
		value := string(e.InvalidValue)
		f.BadValue = &value
	}
	return f
}
