// Package hooks calls runtime hooks: guests that decide on the resources of QoS classes, pods and
// containers.
//
// A hook is a pure function from a request to a decision. An [Engine] calls the plugins that want a
// request, in order, validates their decisions and merges them. If two plugins decide one field
// differently, the error names both:
//
//	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
//		Config: host.Config{Name: "cpu", Module: host.ModuleConfig{File: "cpu.wasm"}},
//	}}})
//	if err != nil { … }
//	decision, err := engine.Decide(ctx, &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelContainer, …})
//
// A plugin may decide on the resources of cgroups. Other decisions on a container are refused
// unless its [Grants] name them: environment, annotations, mounts and devices.
//
// An Engine writes nothing. Package cgroup applies decided resources to cgroup files and keeps them
// there. A node agent has both, with one or two running modes between them: package standalone,
// which examines running pods, and package proxy, which answers the container runtime.
//
// An engine runs on every system. The numbers of devices are looked up only on Linux. On other
// systems, a decision with a device is refused, with [errors.ErrUnsupported].
package hooks
