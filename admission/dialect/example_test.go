package dialect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// settings are the configuration of a plugin for the dialect.
type settings struct {
	Message string `json:"message"`
}

// verdicts is a dialect whose guests export verdict () -> i32: 0 denies the request.
var verdicts = &dialect.Dialect{
	Name:   "verdict",
	Member: "verdict",
	Detect: func(m *host.Module) bool { return m.Export("verdict") != "" },
	Decode: func(config json.RawMessage) (any, error) { return dialect.Strict[settings](config) },
	Bind: func(p dialect.Plugin) (*dialect.Binding, error) {
		message := "refused"
		if s, ok := p.Config.(*settings); ok {
			message = s.Message
		}
		return &dialect.Binding{
			Host: host.Dialect{Exports: []host.Export{{Name: "verdict", Results: []abi.ValueType{abi.I32}}}},
			Ask: func(ctx context.Context, inst host.DialectInstance, _ *dialect.Request) (dialect.Verdict, error) {
				allowed, err := inst.CallExport(ctx, 0)
				return dialect.Verdict{Allowed: allowed != 0, Message: message}, err
			},
		}, nil
	},
}

// guest exports verdict, which returns 0, and a memory of one page.
const guest = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" + "\x03\x02\x01\x00" + "\x05\x03\x01\x00\x01" +
	"\x07\x14\x02\x06memory\x02\x00\x07verdict\x00\x00" + "\x0a\x06\x01\x04\x00\x41\x00\x0b"

func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	cfg := admission.PluginConfig{
		Config:   host.Config{Name: "never", Module: host.ModuleConfig{Bytes: []byte(guest)}},
		Dialects: []*dialect.Dialect{verdicts},
		Dialect:  dialect.Config{"verdict": []byte(`{"mesage": "not today"}`)},
	}
	// Mistakes are found before the module is compiled.
	_, err = admission.Load(ctx, rt, cfg)
	fmt.Println(err)

	cfg.Dialect = dialect.Config{"verdict": []byte(`{"message": "not today"}`)}
	plugin, err := admission.Load(ctx, rt, cfg)
	if err != nil {
		log.Fatal(err)
	}
	response := admission.NewEngine(plugin).Validate(ctx, &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create})
	fmt.Println(plugin.Dialect(), response.Allowed, response.Result.Message)
	// Output:
	// plugin "never": configuration: unknown field "dialect.verdict.mesage", did you mean "message"?
	// verdict false never: not today
}
