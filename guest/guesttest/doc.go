// Package guesttest tests guests, natively and as WebAssembly.
//
// There is a kit for each kind of plugin, in a package of its own: [schedtest],
// [admissiontest] and [hookstest]. The Each of a kit runs one test both ways: on the
// plugin itself, and on the guest that is compiled from the package of the test, in
// the host that a component embeds.
//
//	func TestFilter(t *testing.T) {
//		schedtest.Each(t, &zone{}, func(t *testing.T, p *schedtest.Plugin) {
//			for name, test := range map[string]struct{ config, pod, node, want string }{
//				"another zone": {`zone: a`, `{}`, `metadata: {labels: {topology.kubernetes.io/zone: b}}`, "Unschedulable: node is in zone b, not in a"},
//			} {
//				t.Run(name, func(t *testing.T) {
//					if got := p.Configure(t, test.config).Filter(t, test.pod, test.node).String(); got != test.want {
//						t.Errorf("got %s, want %s", got, test.want)
//					}
//				})
//			}
//		})
//	}
//
// A panic in WebAssembly fails the test with the Go stack.
//
// [Pod] and [Node] make the arguments of a plugin's methods, for tests that call
// them directly; the views that they make read the same bytes as in WebAssembly.
//
// Unlike the other packages of the SDK these import Kubernetes and the host, so they
// are for test files only: a guest cannot import a kit. Only schedtest needs the
// scheduler, and with it the client of Kubernetes.
//
// [schedtest]: https://pkg.go.dev/github.com/kubewasm/kubewasm/guest/guesttest/schedtest
// [admissiontest]: https://pkg.go.dev/github.com/kubewasm/kubewasm/guest/guesttest/admissiontest
// [hookstest]: https://pkg.go.dev/github.com/kubewasm/kubewasm/guest/guesttest/hookstest
package guesttest
