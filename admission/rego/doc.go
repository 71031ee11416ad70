// Package rego serves policies in Rego, written for OPA or for Gatekeeper. The compiler of the Open
// Policy Agent compiles them to WebAssembly modules of its ABI 1
// (https://www.openpolicyagent.org/docs/latest/wasm/). Modules of ABI 1.2 and later are evaluated
// by one call of opa_eval, older ones with a context.
//
// [New] returns the dialect for [admission.PluginConfig]:
//
//	admission.PluginConfig{Dialects: []*dialect.Dialect{rego.New(rego.Options{Cluster: cluster})}}
//
// The first entrypoint of a module decides. It is an AdmissionReview with a response, a list of
// violations or a bool; for Gatekeeper a set of violations. The settings of a plugin are data, and
// the parameters of a policy for Gatekeeper. Builtins that Rego's compiler leaves to the host are
// OPA's own where their cost can be bounded before the call, and part of this package otherwise:
// those of OPA 1.22 except those that need the network or a parser of another
// language. A policy that needs such a builtin is refused. time.now_ns and random values need the
// grants host.GrantClock and host.GrantRandom.
//
// Objects of the kinds in [Config].ContextAwareResources are in data: for Gatekeeper in
// data.inventory.namespace[namespace][apiVersion][kind][name] and
// data.inventory.cluster[apiVersion][kind][name], for OPA in
// data.kubernetes[resource][namespace][name] and data.kubernetes[resource][name]. A policy that
// reads such objects without a grant is refused.
package rego
