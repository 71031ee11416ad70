// Package service runs plugins of extension points that other modules define: a service in
// a .proto file.
//
// kubewasm gen writes the two sides of such a service. The host side is a Go package with a
// struct for each message and a type for each extension point, which calls this package:
//
//	picker, err := llm.LoadPicker(ctx, rt, service.Config{Config: host.Config{
//		Name: "prefix", Module: host.ModuleConfig{File: "prefix.wasm"},
//	}}, nil)
//	…
//	response, err := picker.Pick(ctx, &llm.PickRequest{Model: "llama", Endpoints: endpoints})
//
// A program uses [Config] of this package directly, and the methods of [Plugin], which is embedded
// in the generated types. The rest is for generated code and for tools.
//
// # Objects
//
// A message may have fields that are objects of Kubernetes: *corev1.Pod, or a custom resource. A
// plugin does not get a copy of such an object with each request. It gets a number, and asks for
// the fields that it reads; it keeps the fields that it has read until the object changes. The host
// knows an object by its pointer, its UID and its resource version. So a program may read an object
// again into the same variable, as client.Get does in a loop. An object without a resource version
// is compared with each call. A program must not change an object that was passed and leave its
// resource version as it is: it must pass a changed copy, made by DeepCopy. With
// [Config.DetectChanges] a call panics at such a change.
//
// # Failures
//
// A method returns the errors of [host.Plugin.Acquire] and [host.Instance.Call]: above all
// *[host.TrapError] for a guest that trapped or was stopped, and *[host.StatusError] with the text
// of the error that the plugin returned and its code, see [CodeOf]. [ErrUnimplemented] is the error
// of a method that the plugin's module lacks, since it was built from an older .proto file. With
// the policy [host.Ignore] these come with an empty response and wrap [ErrIgnored]. A program that
// goes on without the plugin checks that with errors.Is, and does not take the empty response for a
// decision of the plugin. An error whose code answers the request, such as [NotFound], is no
// failure, and not ignored: see [codes.Code.Failure].
//
// # Host services
//
// The context of a method of a host service ends with Limits.Timeout of the call that it serves.
// Such a method may call the plugin again. The call takes another instance, and fails when the time
// is over if none is free. If it panics, the call ends with a *[PanicError], which has the stack.
package service
