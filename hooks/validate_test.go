package hooks

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// What guests decide is compared, each with each, and named in messages.
func TestHostileDecisions(t *testing.T) {
	files := func(n int, path string) *hookmsg.Decision {
		d := new(hookmsg.Decision)
		for i := range n {
			d.ContainerMounts = append(d.ContainerMounts, hookmsg.Mount{Destination: fmt.Sprintf(path, i), Type: "tmpfs"})
		}
		return d
	}
	tests := []struct {
		name string
		d    *hookmsg.Decision
		want string
	}{
		{"many mounts", files(maxMounts, "/m%d"), ""},
		{"very many mounts", files(maxMounts+1, "/m%d"), "container_mounts has 129 entries, want at most 128"},
		{"many mistakes", files(maxMounts, "m%d"), "108 more mistakes"},
		{"a long list of ranges", &hookmsg.Decision{Resources: &hookmsg.Resources{CPUSetCPUs: new(strings.Repeat("0-8191,", 30_000) + "0")}}, ""},
		{"a long list with a mistake", &hookmsg.Decision{Resources: &hookmsg.Resources{CPUSetCPUs: new(strings.Repeat("0-8191,", 30_000) + "x")}}, "is not a list of numbers below 8192"},
		{"a long name that is none", &hookmsg.Decision{ContainerEnvs: map[string]string{strings.Repeat("=", 1<<17): ""}}, "not an environment variable"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := errors.Join(invalid(test.d, abi.LevelContainer)...); err != nil {
				got = err.Error()
			}
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) || len(got) > 8000 {
				t.Errorf("the mistakes have %d bytes: %.300s\nwant %s", len(got), got, test.want)
			}
		})
	}
}
