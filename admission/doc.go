// Package admission runs WebAssembly plugins that decide whether an API server
// admits a request.
//
// A [Plugin] is a guest with the function validate, an [Engine] asks plugins and
// makes one answer of their verdicts, and a [Handler] serves the engine to API
// servers as a validating admission webhook:
//
//	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir})
//	…
//	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{
//		Module: host.Config{
//			Name:   "required-labels",
//			Source: host.File("required-labels.wasm"),
//			Guest:  []byte(`{"labels":["owner"]}`),
//		},
//	})
//	…
//	http.Handle("/validate", &admission.Handler{Validator: admission.NewEngine(plugin)})
//
// Only the envelope of an AdmissionReview is decoded. The object goes to the
// guest as the bytes that came in, and a guest sees nothing but the request: it
// reads no other object and has no credentials.
//
// What is answered follows the API server's side of the protocol,
// k8s.io/apiserver/pkg/admission/plugin/webhook.
package admission
