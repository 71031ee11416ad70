package sched_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
)

// TestArgumentsNameAnArtifact loads a plugin from an image layout, as from a registry.
func TestArgumentsNameAnArtifact(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	without, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close(context.WithoutCancel(t.Context()))
	ref := oci.Reference{Layout: filepath.Join(t.TempDir(), "plugins"), Tag: "1"}
	client, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{ref.Name()}, Unsigned: true}}})
	if err != nil {
		t.Fatal(err)
	}
	rt.AddSources(host.Sources{OCI: client.Source})
	if _, err := client.Push(t.Context(), ref, module, oci.PushOptions{}); err != nil {
		t.Fatal(err)
	}
	args := func(rest string) *apiruntime.Unknown {
		return &apiruntime.Unknown{Raw: []byte(`{` + rest + `}`)}
	}
	if _, err := sched.LoadArgs(t.Context(), rt, "extensions", args(`"grants": ["events", "waiting-pods", "objects"], "module": {"oci": "`+ref.String()+`", "follow": true}`), sched.Framework{}); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		args string
		rt   *host.Runtime
		want []string
	}{
		{`"module": {"oci": "ghcr.io/Acme:", "file": "x"}, "logSeverity": 4`, rt, []string{"module has file and oci, want one of them", "logSeverity is 4"}},
		{`"module": {"oci": "ghcr.io/Acme:"}, "cycleFuel": -1, "grants": ["evnts"]`, rt, []string{"tag is empty", `repository is "Acme"`, "cycleFuel is -1", `grant "evnts" is unknown`}},
		{`"module": {"oci": "ghcr.io/acme/zone:1"}`, rt, []string{"source ghcr.io/acme/zone:1: nothing vouches for what the tag leads to"}},
		{`"module": {"oci": "ghcr.io/acme/zone:1"}`, without, []string{"module.oci: this program has no access to registries"}},
	} {
		_, err := sched.LoadArgs(t.Context(), tt.rt, "extensions", args(tt.args), sched.Framework{})
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %s:\n%v", tt.args, want, err)
			}
		}
	}
}
