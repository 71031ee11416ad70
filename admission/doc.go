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
// clustercache lets policies look objects up in informers, without calls to the API server. A guest of package abi may look up
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
// PluginConfig.Dialects lists the ABIs of other projects whose policies run unmodified, see package
// dialect. The member dialect of a plugin's configuration has the settings that one of them alone
// understands. Package stellar serves plugins of the Stellar operator's webhook. Two dialects are
// modules of their own, so that other importers pay nothing for them: admission/rego serves Rego
// compiled by OPA, for OPA or for Gatekeeper, and admission/kubewarden policies of Kubewarden.
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
