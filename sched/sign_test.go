package sched_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
)

// signing loads a module that signs by what the paths name.
func signing(t *testing.T, file, paths, more string) (fwk.Plugin, error) {
	t.Helper()
	raw := `{"file": "` + file + `", "projection": ` + paths + `, "signByProjection": true` + more + `}`
	return sched.New("zone", shared)(t.Context(), &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(raw)}, nil)
}

func TestSignByProjection(t *testing.T) {
	p, err := signing(t, buildZone(t), `["pod.metadata.annotations", "pod.spec.tolerations"]`, "")
	if err != nil {
		t.Fatal(err)
	}
	signature := func(pod *corev1.Pod) string {
		t.Helper()
		fragments, status := p.(fwk.SignPlugin).SignPod(t.Context(), pod)
		if !status.IsSuccess() || len(fragments) != 1 || fragments[0].Key != "kubewasm/zone" {
			t.Fatalf("got %v, %s", fragments, text(status))
		}
		// As the framework does it.
		b, err := json.Marshal(fragments[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := signature(pod("web-1", "a"))
	other := pod("web-2", "a")
	other.Labels = map[string]string{"revision": "2"}
	if got := signature(other); got != first {
		t.Errorf("a Pod that differs in nothing that is read has the signature %s, want %s", got, first)
	}
	if got := signature(pod("web-1", "b")); got == first {
		t.Errorf("a Pod for another zone has the signature %s, too", got)
	}
}

func TestGuestsThatCannotBeSigned(t *testing.T) {
	extensions, err := guestbuild.Build(t.Context(), "testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	undeclared, err := guestbuild.Build(t.Context(), "../examples/sched/image-locality")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		file, paths, more string
		want              []string
	}{
		"one whose projection has whole Pods": {buildZone(t), `["node.metadata.labels"]`, "", []string{"names no field of Pods"}},
		"one without a projection":            {undeclared, `[]`, "", []string{"names no field of Pods"}},
		"one that signs, watches Pods and looks objects up": {
			extensions, `["pod.spec"]`, `, "grants": ["events", "waiting-pods", "objects"]`,
			[]string{"signs Pods itself", "the guest has addpod", "the guest has removepod", "imports node_by_name", "imports get_object", "imports waiting_pod"},
		},
		"one of the peer's ABI": {"testdata/peer/present.wasm", `["pod.spec"]`, `, "grants": ["events", "waiting-pods"]`, []string{"a guest of the peer's ABI"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := signing(t, test.file, test.paths, test.more)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), "signByProjection: ") || !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}
