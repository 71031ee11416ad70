// Package runtime is the root of the module with what runs hooks on a node, and has no code. Its
// dependencies are heavy, so they are separate from the main module:
//
//   - nri: a plugin of containerd's and CRI-O's Node Resource Interface.
//   - runtimehook: the server of Koordinator's RuntimeHookService.
//   - proxy: the common part of both.
//   - standalone: the loop that applies decisions to cgroups without a transport.
//   - cri: the list of running pods, from the runtime, for package standalone.
//   - hookstate: the report of decisions and their causes.
//
// Choose nri for current runtimes, and runtimehook if Koordinator's runtime proxy is in front of
// the runtime. Add cri if plugins of the standalone mode read the annotations or the environment of
// containers. See the documentation of each for its shortest use.
package runtime
