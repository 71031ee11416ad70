// Package runtime stands at the root of the module of the transports between package
// proxy and container runtimes, and holds no code. Their dependencies are heavy, so they
// are apart from the main module:
//
//   - nri: a plugin of containerd's and CRI-O's Node Resource Interface.
//   - runtimehook: the server of Koordinator's RuntimeHookService.
//   - cri: the list of what runs, from the runtime, for package standalone.
//
// Choose nri for a runtime of today, and runtimehook where Koordinator's runtime proxy
// stands in front of the runtime. Add cri where plugins of the standalone mode read the
// annotations or the environment of containers. See the documentation of each for its
// shortest use.
package runtime
