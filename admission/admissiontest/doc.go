// Package admissiontest tests admission plugins, natively and as WebAssembly, see
// [Each].
//
// [Plugin.Create] asks about an object in YAML, [Plugin.Review] about an AdmissionReview as the API
// server sends it, and [Plugin.Mutate] asks a plugin to change an object. The [Verdict] is the
// result that a user of the cluster sees. A plugin that looks objects up gets them by [Plugin.In]:
//
//	got := p.In(t, ingresses).Create(t, ingress)
package admissiontest
