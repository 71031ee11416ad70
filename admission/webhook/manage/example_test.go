package manage_test

import (
	"context"
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// A plugin that cannot be loaded is refused with the reason, and stands for itself:
// what it should guard does not pass.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	manager, err := manage.New(ctx, manage.Config{Runtime: rt, Engine: admission.NewEngine()})
	if err != nil {
		panic(err)
	}
	defer manager.Close(ctx)
	file, err := manage.ParseFile([]byte(`
plugins:
- name: labels
  description: every Pod has a team
  module: {file: /nowhere/labels.wasm, follow: true}
  match:
    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
`))
	if err != nil {
		panic(err)
	}
	fmt.Println("refused:", manager.Apply(ctx, file))
	for _, policy := range manager.List() {
		fmt.Println(policy.Name, policy.Operations, policy.Error != "")
	}
	// Output:
	// refused: plugin "labels": fetch module: stat /nowhere/labels.wasm: no such file or directory
	// labels [CREATE] true
}
