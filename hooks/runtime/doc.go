// Package runtime is the root of the module with the transports between package proxy and container
// runtimes, and has no code. Their dependencies are heavy, so they are separate from the main
// module:
//
//   - nri: a plugin of containerd's and CRI-O's Node Resource Interface.
//   - runtimehook: the server of Koordinator's RuntimeHookService.
//   - cri: the list of running pods, from the runtime, for package standalone.
//
// Choose nri for current runtimes, and runtimehook if Koordinator's runtime proxy is in front of
// the runtime. Add cri if plugins of the standalone mode read the annotations or the environment of
// containers. See the documentation of each for its shortest use.
package runtime
