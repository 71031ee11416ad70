// Package admissiontest tests admission plugins, natively and as WebAssembly, see
// [Each].
//
// [Plugin.Create] asks about an object in YAML, [Plugin.Review] about an
// AdmissionReview as the API server sends it, and [Plugin.Mutate] lets a plugin
// change an object. The [Verdict] is what a user of the cluster gets to see. A plugin that
// looks objects up gets them by [Plugin.In]:
//
//	got := p.In(t, ingresses).Create(t, ingress)
package admissiontest
