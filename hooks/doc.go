// Package hooks asks runtime hooks: guests that decide on the resources of QoS classes,
// pods and containers.
//
// A hook is a pure function from a request to a decision. An [Engine] calls the plugins
// that want a request, in order, validates their decisions and merges them. Two plugins
// that decide one field differently are an error that names both:
//
//	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
//		Config: host.Config{Name: "cpu", Module: host.ModuleConfig{File: "cpu.wasm"}},
//	}}})
//	if err != nil { … }
//	decision, err := engine.Decide(ctx, &hookmsg.Request{Stage: hookmsg.Reconcile, Level: hookmsg.LevelContainer, …})
//
// A plugin may decide on the resources of cgroups. Whatever else it decides of a
// container, its environment, annotations, mounts and devices, is refused unless its
// [Grants] name it.
//
// An Engine writes nothing. Package cgroup applies decided resources to cgroup files and
// keeps them there. A node agent has both, with one or two running modes between them:
// package standalone, which looks at what runs, and package proxy, which answers the
// container runtime.
//
// An engine runs on every system. The numbers of devices are looked up on Linux alone:
// elsewhere a decision with a device is refused, with [errors.ErrUnsupported].
package hooks
