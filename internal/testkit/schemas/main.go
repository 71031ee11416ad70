package main

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/jsonfields"
	"github.com/kubewasm/kubewasm/sched"
)

// files are the forms of configuration, by the names of their schemas.
var files = map[string]struct {
	of    reflect.Type
	title string
}{
	"policies":   {reflect.TypeFor[manage.File](), "The policies of a webhook"},
	"scheduler":  {reflect.TypeFor[sched.PluginConfig](), "The arguments of a scheduler plugin, in pluginConfig of KubeSchedulerConfiguration"},
	"hook":       {reflect.TypeFor[hooks.PluginConfig](), "A plugin in the node agent's file"},
	"service":    {reflect.TypeFor[service.Config](), "A plugin of an extension point of one's own"},
	"registries": {reflect.TypeFor[oci.Config](), "How artifacts are fetched, and which are trusted"},
}

// enums are the values of types that are texts.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[host.FailurePolicy]():       {string(host.Fail), string(host.Ignore), string(host.KeepLast)},
	reflect.TypeFor[host.Mode]():                {string(host.Enforce), string(host.Monitor)},
	reflect.TypeFor[clusterplugins.TrialMode](): {string(clusterplugins.Shadow), string(clusterplugins.Monitor)},
	reflect.TypeFor[host.ResetPolicy]():         {string(host.ResetOnError), string(host.ResetPerCall), string(host.ResetNever)},
	reflect.TypeFor[slog.Level]():               {"debug", "info", "warn", "error"},
	reflect.TypeFor[record.Selection]():         {string(record.Failures), string(record.Denials)},
	reflect.TypeFor[abi.Stage]():                namesOf(abi.PreRunPodSandbox),
	reflect.TypeFor[abi.Level]():                namesOf(abi.LevelQOS),
	reflect.TypeFor[abi.QOSClass]():             {abi.QOSGuaranteed.String(), abi.QOSBurstable.String(), abi.QOSBestEffort.String()},
	reflect.TypeFor[host.Isolation]():           {string(host.IsolationNone), string(host.IsolationProcess)},
}

// dialects are the configurations of dialects of policies, by their members.
var dialects = map[string]reflect.Type{
	kubewarden.Member:    reflect.TypeFor[capabilities.Scope](),
	rego.Member:          reflect.TypeFor[rego.Config](),
	stellar.New().Member: reflect.TypeFor[struct{}](),
}

// namesOf returns the names of an enumeration from its first value on.
func namesOf[E interface {
	~int32
	Known() bool
	String() string
}](first E) (names []string) {
	for v := first; v.Known(); v++ {
		names = append(names, v.String())
	}
	return names
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "-crds" {
		return writeCRDs(args[1])
	}
	if len(args) != 1 {
		return errors.New("want a directory, or -crds and a directory")
	}
	texts, err := write()
	if err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(args[0], name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// write returns the texts of all schemas.
func write() (map[string][]byte, error) {
	w := writer{comments: comments{}}
	texts := map[string][]byte{}
	for name, f := range files {
		s, err := w.schema(f.of, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
		s["$id"] = "https://raw.githubusercontent.com/kubewasm/kubewasm/main/docs/schemas/" + name + ".json"
		s["title"] = f.title
		text, err := json.MarshalIndent(s, "", " ")
		if err != nil {
			return nil, err
		}
		texts[name] = append(text, '\n')
	}
	return texts, nil
}

// schema is a JSON schema.
type schema map[string]any

type writer struct{ comments comments }

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

const (
	duration = `^[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$`
	quantity = `^\d+(\.\d+)?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$`
)

// schema returns the schema of a type, as package configfile decodes it. name is that of the field.
func (w *writer) schema(t reflect.Type, name string) (schema, error) {
	if names := enums[t]; names != nil {
		return schema{"type": "string", "enum": names}, nil
	}
	if t == reflect.TypeFor[dialect.Config]() {
		properties := schema{}
		for member, of := range dialects {
			s, err := w.schema(of, member)
			if err != nil {
				return nil, err
			}
			properties[member] = s
		}
		return schema{"type": "object", "properties": properties, "additionalProperties": false, "maxProperties": 1}, nil
	}
	ours := strings.HasPrefix(t.PkgPath(), "github.com/kubewasm/kubewasm/")
	switch pointer := reflect.PointerTo(t); {
	case t == reflect.TypeFor[time.Duration](), t == reflect.TypeFor[metav1.Duration]():
		return schema{"type": "string", "pattern": duration}, nil
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}, nil
	case pointer.Implements(unmarshaler) && (!ours || t.Kind() != reflect.Struct):
		return schema{}, nil // Any value.
	case pointer.Implements(textUnmarshaler) && t.Kind() != reflect.Struct:
		return nil, fmt.Errorf("%s is decoded from a text, and its values are not known", t)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.schema(t.Elem(), name)
	case reflect.Interface:
		return schema{}, nil
	case reflect.String:
		return schema{"type": "string"}, nil
	case reflect.Bool:
		return schema{"type": "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		number := schema{"type": "integer"}
		if t.Kind() >= reflect.Uint {
			number["minimum"] = 0
		}
		if strings.HasSuffix(name, "Bytes") {
			return schema{"anyOf": []schema{number, {"type": "string", "pattern": quantity}}}, nil
		}
		return number, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return schema{"type": "string", "contentEncoding": "base64"}, nil
		}
		items, err := w.schema(t.Elem(), "")
		return schema{"type": "array", "items": items}, err
	case reflect.Map:
		values, err := w.schema(t.Elem(), "")
		return schema{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return w.object(t)
	}
	return nil, fmt.Errorf("%s has no schema", t)
}

func (w *writer) object(t reflect.Type) (schema, error) {
	properties := schema{}
	for _, f := range jsonfields.Of(t) {
		s, err := w.schema(f.Type, f.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if text, err := w.comments.of(owner(t, f.Index), f.StructField.Name); err != nil {
			return nil, err
		} else if text != "" {
			s["description"] = text
		}
		properties[f.Name] = s
	}
	return schema{"type": "object", "properties": properties, "additionalProperties": false}, nil
}

// owner returns the struct that declares a field, of t or embedded in it.
func owner(t reflect.Type, index []int) reflect.Type {
	for _, i := range index[:len(index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}
