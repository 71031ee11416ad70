package kubewarden_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/host"
)

func Example() {
	cfg := admission.PluginConfig{
		Config:   host.Config{Name: "labels", Module: host.ModuleConfig{File: "labels.wasm"}},
		Dialects: kubewarden.New(kubewarden.Options{}),
		Dialect:  dialect.Config{"kubewarden": []byte(`{"hostCapabilities": ["oci/v2/verify"]}`)},
	}
	fmt.Println(cfg.Check())
	// Output:
	// [dialect.kubewarden: hostCapabilities of oci need repositories that the policy may ask about]
}
