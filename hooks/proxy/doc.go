// Package proxy is the running mode that answers the runtime: a [Handler] takes
// an event of a pod or a container, asks the plugins, and splits what they decide
// into what the transport carries back to the runtime and what is written to the
// cgroups here. Both halves are of one decision, and all of it goes into the
// state that the standalone mode enforces.
//
// The consistency is strict: a container does not start before its plugins have
// decided.
//
// The transports themselves are in the module hooks/runtime: Koordinator's
// RuntimeHookService and containerd's NRI.
package proxy
