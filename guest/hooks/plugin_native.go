//go:build !wasip1

package hooks

// Decide runs p on an encoded request, kubewasm.hooks.v1.Request, and returns its
// encoded decision, as a guest does. Package hookstest uses it.
func Decide(p Plugin, request []byte) (decision []byte, err error) {
	return new(call).run(p, request)
}
