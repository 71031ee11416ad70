package stellar_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/host"
)

func Example() {
	cfg := admission.PluginConfig{
		Config:   host.Config{Name: "validator", Module: host.ModuleConfig{File: "validator.wasm"}},
		Dialects: []*dialect.Dialect{stellar.New()},
	}
	fmt.Println(cfg.Check())
	// Output:
	// []
}
