package autoscaler

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/host"
)

func TestShort(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a short text", "the queue is long", "the queue is long"},
		{"lines", " a\n\tb\x00c\u2028", "a b c"},
		{"bytes that are no UTF-8", "a\xffb", "a\uFFFDb"},
		{"exactly as long as it may be", strings.Repeat("x", 20), strings.Repeat("x", 20)},
		{"too long", strings.Repeat("x", 21), strings.Repeat("x", 17) + "…"},
		{"too long within a letter", strings.Repeat("x", 16) + "üüü", strings.Repeat("x", 16) + "…"},
		{"very much too long", strings.Repeat("ü", 1<<20), strings.Repeat("ü", 8) + "…"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, short(test.text, 20)); diff != "" {
				t.Errorf("short (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	operator := host.Limits{MemoryBytes: 8 << 20, Fuel: 1000, Instances: 4}
	tests := []struct {
		name   string
		policy *v1alpha1.Limits
		want   host.Limits
	}{
		{"none", nil, operator},
		{"empty", &v1alpha1.Limits{}, operator},
		{"lower", &v1alpha1.Limits{MemoryBytes: 1 << 20, Fuel: 10, TimeoutMilliseconds: 20}, host.Limits{MemoryBytes: 1 << 20, Fuel: 10, Timeout: 20 * time.Millisecond, Instances: 4}},
		{"higher", &v1alpha1.Limits{MemoryBytes: 1 << 32, Fuel: 1 << 40, TimeoutMilliseconds: 60_000}, host.Limits{MemoryBytes: 8 << 20, Fuel: 1000, Timeout: 5 * time.Second, Instances: 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, limits(operator, test.policy)); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}
