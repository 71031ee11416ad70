package rego_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/host"
)

func Example() {
	cfg := admission.PluginConfig{
		Config:   host.Config{Name: "labels", Module: host.ModuleConfig{File: "labels.wasm"}},
		Dialects: []*dialect.Dialect{rego.New(rego.Options{})},
		Dialect:  dialect.Config{"rego": []byte(`{"gatekeeper": true, "contextAwareResources": [{"apiVersion": "v1", "kind": ""}]}`)},
	}
	fmt.Println(cfg.Check())
	// Output:
	// [dialect.rego: contextAwareResources has apiVersion "v1", kind ""]
}
