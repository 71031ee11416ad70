package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/admission/admissiontest"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
	"github.com/kubewasm/kubewasm/internal/harness"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
	"github.com/kubewasm/kubewasm/internal/serviceschema/methodcall"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// kits load the module of a suite.
type kits struct {
	module   *harness.Module
	dialects []*dialect.Dialect
}

// open loads the module. t is the test of all cases.
func open(t testing.TB, f *File, dir, module string) *suite {
	t.Helper()
	return &suite{file: f, dir: dir, kits: kits{harness.Load(t, module), f.Dialects}}
}

func (k kits) scheduler(t testing.TB) *schedtest.Plugin { return schedtest.Load(t, k.module.File) }
func (k kits) admission(t testing.TB) *admissiontest.Plugin {
	return admissiontest.Load(t, k.module.File, k.dialects...)
}
func (k kits) hook(t testing.TB) *hookstest.Plugin { return hookstest.Load(t, k.module.File) }

// configure loads the plugin in the host of its kind, and returns the error with which it
// refuses its configuration.
func (k kits) configure(q *question, config string) error {
	var err error
	kind, ok := k.module.Kind()
	switch {
	case !ok:
		q.Fatal("the metadata of the module do not have its kind, which refused needs")
	case kind == abi.KindScheduler:
		_, err = k.scheduler(q).TryConfigure(q, config)
	case kind == abi.KindAdmission:
		_, err = k.admission(q).TryConfigure(q, config)
	case kind == abi.KindHook:
		_, err = k.hook(q).TryConfigure(q, config)
	default:
		plugin, _ := k.service(q)
		_, err = plugin.TryConfigure(q, config)
	}
	return err
}

// service returns the plugin of the service of the case, or otherwise of the first of the module,
// and the schema.
func (k kits) service(q *question) (*servicetest.Plugin[*methodcall.Call], *serviceschema.Schema) {
	module, err := os.ReadFile(k.module.File)
	if err != nil {
		q.Fatal(err)
	}
	about, err := host.Inspect(module)
	if err != nil {
		q.Fatal(err)
	}
	section := about.Custom(abi.SchemaSection)
	schema, err := serviceschema.Parse(section)
	if err != nil {
		q.Fatal(err)
	}
	var name string
	if q.of.Method != "" {
		name = string(findMethod(q, schema).Parent().FullName())
	} else {
		name = schema.Names()[0]
	}
	described, err := service.Describe(section, name)
	if err != nil {
		q.Fatal(err)
	}
	return servicetest.Load(q, k.module.File, func(ctx context.Context, rt *host.Runtime, cfg service.Config) (*methodcall.Call, error) {
		c := &methodcall.Call{Answers: q.of.Answers}
		if c.Plugin, err = service.Load(ctx, rt, cfg, described, methodcall.HostServices(schema, c.Answer)...); err != nil {
			return nil, err
		}
		q.Cleanup(func() { c.Plugin.Close(context.WithoutCancel(ctx)) })
		return c, nil
	}).In(q, q.objects), schema
}

func findMethod(q *question, schema *serviceschema.Schema) protoreflect.MethodDescriptor {
	m, err := schema.FindMethod(q.of.Method)
	if err != nil {
		q.Fatal(err)
	}
	return m
}

// call calls a method of a service.
func (q *question) call() {
	plugin, schema := q.suite.kits.service(q)
	c := plugin.Configure(q, q.config)
	m := findMethod(q, schema)
	text := "{}"
	if !q.of.Request.IsZero() {
		text = jsonOf(q, q.suite.read(q, q.of.Request))
	}
	request, err := serviceschema.Encode(m.Input(), []byte(text), c)
	if err != nil {
		q.Fatalf("request: %v", err)
	}
	response, err := c.Plugin.CallBytes(q.Context(), string(m.Name()), request)
	if status := (*host.StatusError)(nil); errors.As(err, &status) {
		if err = errors.New(status.Reason); status.Code != codes.Uncoded {
			err = fmt.Errorf("%s: %s", status.Code, status.Reason)
		}
	} else if err != nil && harness.IsTrap(err) {
		harness.Fail(q, err)
	}
	if q.wantsError(err) {
		return
	}
	decoded, err := serviceschema.Decode(m.Output(), response, c)
	if err != nil {
		q.Fatalf("response: %v", err)
	}
	want := []byte("{}")
	if !q.of.Want.IsZero() {
		want = []byte(jsonOf(q, q.suite.read(q, q.of.Want)))
	}
	q.same("response", canonical(q, want), canonicalOf(q, decoded))
}

// canonicalOf returns a value in JSON, as canonical does.
func canonicalOf(t testing.TB, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return canonical(t, text)
}
