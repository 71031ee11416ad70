// Package admission runs WebAssembly policies that decide whether an API server
// admits a request, and what becomes of its object.
//
// A [Plugin] is a guest with the function validate, mutate or both; a [Group] is
// several of them under a boolean expression. An [Engine] asks these policies and
// makes one answer of their verdicts, and a [Handler] serves the engine to API
// servers as an admission webhook:
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
// In an operator that is built on controller-runtime its manager's webhook server
// takes the same handlers, by GetWebhookServer().Register.
//
// Package webhook is a whole server with TLS, package manage keeps the policies of
// an engine by a configuration file and a management API, and package
// admissionmetrics counts verdicts. Package policyserver answers the webhooks of
// Kubewarden's controller. Package clustercache lets policies look at
// objects in informers: a guest of our own ABI at those that PluginConfig.Objects name.
// They cost no call of the API server, and a verdict is never remembered: the same request
// is decided anew by the objects as they are then. A plugin that asks about objects that
// are not known yet has failed, and its failure policy says what becomes of the request.
//
// Only the envelope of an AdmissionReview is decoded. The object goes to the
// guest as the bytes that came in, and a guest sees nothing but the request: it
// has no credentials, and reads no other object unless [PluginConfig] lets it.
//
// # Guests of other ABIs
//
// These run as they are, and are told from others by their imports and exports:
//
//	stellar          plugins of the Stellar operator's webhook, within its limits
//	kubewarden-wapc  policies of Kubewarden that speak waPC
//	kubewarden-wasi  policies of Kubewarden that are programs
//	opa              Rego that OPA has compiled, for OPA or for Gatekeeper
//
// Kubewarden's policies may ask the host for what PluginConfig.Scope grants: objects of
// the cluster and the rights of users, artifacts in registries and their signatures,
// addresses of host names, and whether certificates are trusted. Package capabilities
// has the grants and the answers. A policy whose metadata name other kinds of objects is
// refused.
//
// Policies in Rego have the builtins of OPA 1.22 that need no network and no parser of
// another language; one that needs another is refused. time.now_ns and what is random
// need the grants host.GrantClock and host.GrantRandom. Objects of the kinds in
// ContextAwareResources are in data: for Gatekeeper in
// data.inventory.namespace[namespace][apiVersion][kind][name] and
// data.inventory.cluster[apiVersion][kind][name], for OPA in
// data.kubernetes[resource][namespace][name] and data.kubernetes[resource][name]. A
// policy that reads them and is granted none is refused.
//
// Verdicts are read as strictly as in the hosts that the guests were written for. What
// is an error there is a failure, for which PolicyRules.FailurePolicy decides.
//
// What the host does for a guest costs the fuel of the guest's call, before it is
// done, and ends with the time of that call: builtins, certificates, lists of objects.
// What goes beyond a limit ends the call. After the call, a patch and the difference
// to a mutated object take work, memory and bytes in proportion to the object, and end
// with the request.
//
// # Dry runs
//
// No host function that a guest is offered has an effect that outlasts the
// request, so webhooks are sideEffects: None; guests are told of dry runs all the
// same.
//
// What is answered follows the API server's side of the protocol,
// k8s.io/apiserver/pkg/admission/plugin/webhook.
package admission
