package audit_test

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// A policy is asked about a Pod that is there already. With a Client in the configuration,
// Run asks it about all Pods of a cluster.
func Example() {
	ctx := context.Background()
	module, err := guestbuild.Build(ctx, "../../examples/admission/required-labels")
	if err != nil {
		panic(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{
		Config: host.Config{Name: "required-labels", Module: host.ModuleConfig{File: module}, GuestConfig: []byte(`{"labels":["owner"]}`)},
	})
	if err != nil {
		panic(err)
	}
	auditor, err := audit.New(audit.Config{Engine: admission.NewEngine(plugin)})
	if err != nil {
		panic(err)
	}
	defer auditor.Close()
	result, err := auditor.Review(ctx, func(yield func(audit.Object, error) bool) {
		yield(audit.Object{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespaced: true,
			JSON: []byte(`{"metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}}}`),
		}, nil)
	})
	if err != nil {
		panic(err)
	}
	if err := result.WriteTable(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// NAMESPACE  KIND  NAME  POLICY           RESULT  MESSAGE
	// shop       Pod   web   required-labels  fail    metadata.labels[owner]: Required value: every Pod must have it
	//
	// POLICY           MODE     PASS  FAIL  WARN  ERROR  NOTE
	// required-labels  Enforce  0     1     0     0
}
