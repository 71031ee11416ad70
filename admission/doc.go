// Package admission runs WebAssembly policies that admit or deny requests of an API server, and
// change or convert their objects.
//
// A [Plugin] is a guest with the function validate, mutate or both; a [Group] is several plugins
// under a boolean expression. An [Engine] asks these policies and combines their verdicts into one
// answer, and a [Handler] serves the engine to API servers as an admission webhook:
//
//	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir})
//	…
//	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{
//		Config: host.Config{
//			Name:   "required-labels",
//			Module: host.ModuleConfig{File: "required-labels.wasm"},
//			GuestConfig:  []byte(`{"labels":["owner"]}`),
//		},
//	})
//	…
//	engine := admission.NewEngine(plugin)
//	http.Handle("/validate", &admission.Handler{Validator: engine})
//	http.Handle("/mutate", &admission.Handler{Mutator: engine})
//
// In an operator built on controller-runtime, register the same handlers with
// GetWebhookServer().Register of the manager.
//
// Package webhook is a whole server with TLS, package manage manages the policies of an engine by a
// configuration file and a management API, and package admissionmetrics counts verdicts. Package
// policyserver answers the webhooks of Kubewarden's controller. Package clustercache lets policies
// look objects up in informers, without calls to the API server. A guest of package abi may look up
// the objects named by PluginConfig.Objects. A verdict is never cached: the same request is decided
// again, by the objects at that time. If a plugin looks up objects that are not cached yet, the
// call fails and the failure policy applies.
//
// Only the envelope of an AdmissionReview is decoded. The guest gets the object in the bytes
// received. It sees nothing but the request: it has no credentials, and can read another object
// only if [PluginConfig] grants it.
//
// # Guests of other ABIs
//
// The following guests run unmodified, and are recognized by their imports and exports:
//
//	stellar          plugins of the Stellar operator's webhook, within its limits
//	kubewarden-wapc  waPC policies of Kubewarden
//	kubewarden-wasi  WASI programs of Kubewarden
//	opa              Rego compiled by OPA, for OPA or for Gatekeeper
//
// Kubewarden's policies may use the host capabilities granted by PluginConfig.Scope: objects of the
// cluster and the rights of users, artifacts in registries and their signatures, addresses of host
// names, and the trust in certificates. Package capabilities implements grants and answers. A
// policy whose metadata name other kinds of objects is refused.
//
// Policies in Rego have the builtins of OPA 1.22 except those that need the network or a parser of
// another language. A policy that needs such a builtin is refused. time.now_ns and random values
// need the grants host.GrantClock and host.GrantRandom. Objects of the kinds in
// ContextAwareResources are in data: for Gatekeeper in
// data.inventory.namespace[namespace][apiVersion][kind][name] and
// data.inventory.cluster[apiVersion][kind][name], for OPA in
// data.kubernetes[resource][namespace][name] and data.kubernetes[resource][name]. A policy that
// reads such objects without a grant is refused.
//
// Verdicts are read as strictly as in the hosts that the guests were written for. An error there is
// a failure here, and PolicyRules.FailurePolicy applies.
//
// Work of the host for a guest, such as builtins, certificates and lists of objects, is charged to
// the fuel of the guest's call in advance. It ends with the time of that call, and exceeding a
// limit ends the call. After the call, patches and differences to a mutated object take work,
// memory and bytes in proportion to the object, and end with the request.
//
// # Dry runs
//
// No host function offered to guests has an effect that outlasts the request, so webhooks are
// sideEffects: None. Guests still see whether a request is a dry run.
//
// Answers follow the API server's side of the protocol,
// k8s.io/apiserver/pkg/admission/plugin/webhook.
package admission
