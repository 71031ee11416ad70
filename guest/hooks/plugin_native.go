//go:build !wasip1

package hooks

import "github.com/kubewasm/kubewasm/internal/nativehost"

func init() {
	nativehost.Guests.Decide = func(plugin any, request []byte) ([]byte, error) {
		return new(call).run(plugin.(Plugin), request)
	}
}
