package conformance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/hostile"
	toolchains "github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestMalformedMessages lets the guests in each language read messages that no host sends. They
// must not trap, and what they answer must depend on nothing but the message.
func TestMalformedMessages(t *testing.T) {
	toolchains.Slow(t)
	request := (&hookmsg.Request{
		Stage: abi.PreCreateContainer, Level: abi.LevelContainer,
		PodLabels: map[string]string{"app": "web", "tier": "batch", "é": "ü"},
	}).Append(nil)
	values := []byte("\x0a\x05hello\x12\x03\x00\x01\x02\x18\x01\x20\x7f\x28\x09\x35\x01\x02\x03\x04\x39\x00\x00\x00\x00\x00\x00\xf0\x3f\x40\x03\x4a\x03\x01\x02\x03\x52\x05\x0a\x01a\x10\x07\x5a\x04\x0a\x02in\x60\x05")
	for _, test := range []struct {
		guest, function string
		message         []byte
	}{
		{"hook", "hook", request},
		{"service", "kubewasm.conformance.v1.Quotes/Echo", values},
		{"admission", "validate", []byte("\x0a\x03uid\x12\x0a\x12\x02v1\x1a\x04Pod\x00\x2a\x03web\x3a\x06CREATE")},
	} {
		t.Run(test.guest, func(t *testing.T) {
			run(t, test.guest, func(t *testing.T, _ *host.Runtime, guest string) {
				r := rand.New(rand.NewPCG(1, 2))
				hostile.Try(t, guest, test.function, "", 1000, func(n int) []byte {
					if n == 0 {
						return hostile.Deep(100)
					}
					return hostile.Mutated(r, test.message)
				})
			})
		})
	}
}
