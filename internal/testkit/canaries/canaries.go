// Package canaries plants values in places where data of Secrets travel, and holds that recordings
// have none of them, while replays tell each call apart that a changed module answers otherwise.
package canaries

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

// Calls is how many calls of its kind a test records.
var Calls = flag.Int("canaries", 1500, "how many calls of each kind the tests of canaries record")

// marker is in each eight bytes of a canary, and in nothing else.
const marker = "kQ7zX"

// Maker makes requests with canaries.
type Maker struct {
	*rand.Rand
	// Made is the number of canaries so far.
	Made int
	// Odd has canaries with quotes and escapes, and scripts write them in any form. A replay gives
	// the guest other lengths then.
	Odd bool
	// Flow has manifests without quotes and brackets, for texts in JSON: a guest reads such a text
	// in another way than a masked one.
	Flow bool
}

// NewMaker returns a Maker of the same requests for the same seed.
func NewMaker(seed uint64) *Maker { return &Maker{Rand: rand.New(rand.NewPCG(seed, 47))} }

const digits = "0123456789abcdefghijklmnopqrstuvwxyz"

// Value returns a canary that is like no other.
func (m *Maker) Value() string {
	n, id := m.Made, [9]byte{}
	m.Made++
	for i := range id {
		id[i], n = digits[n%len(digits)], n/len(digits)
	}
	between := ""
	if m.Odd {
		between = pick(m, "", `"`, `\`, "\n", "<&>", `\"`, "{", `":"`)
	}
	return marker + string(id[:3]) + between + marker + string(id[3:6]) + between + marker + string(id[6:])
}

func pick[T any](m *Maker, list ...T) T { return list[m.IntN(len(list))] }

// Script returns a script with up to six of the ops.
func (m *Maker) Script(id string, ops ...string) parrot.Script {
	s := parrot.Script{ID: id}
	for range m.IntN(7) {
		do, as := pick(m, ops...), parrot.Even
		if m.Odd && do != "ask" && do != "reject" { // A question of another length has no answer.
			as = append(as[:len(as):len(as)], parrot.Uneven...)
		}
		s.Ops = append(s.Ops, parrot.Op{Do: do, As: pick(m, as...), Value: m.IntN(1000)})
	}
	return s
}

// Ends is Script about a guest that does not return. What Go prints about a panic has addresses, which
// are others after a call in which a changed module did something else.
func (m *Maker) Ends(id string, ops ...string) parrot.Script {
	if m.Odd {
		return m.Script(id, append(ops, "trap")...)
	}
	return m.Script(id, append(ops, "exit")...)
}

// Secret returns a Secret with canaries.
func (m *Maker) Secret(name string) *corev1.Secret {
	s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: corev1.SecretTypeOpaque}
	if m.IntN(3) != 0 {
		s.Data = map[string][]byte{"password": []byte(m.Value()), "token": []byte(m.Value())}
	}
	if m.IntN(3) == 0 || s.Data == nil {
		s.StringData = map[string]string{"password": m.Value()}
	}
	switch key := pick(m, "", "kubectl.kubernetes.io/last-applied-configuration", "kapp.k14s.io/original", "example.com/previous"); key {
	case "":
	case "example.com/previous":
		s.Annotations = map[string]string{key: "it was " + m.Value()}
	default:
		if m.Flow {
			s.Annotations = map[string]string{key: m.Manifest()}
			break
		}
		s.Annotations = map[string]string{key: Text(map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(m.Value()))}})}
	}
	return s
}

// Text returns an object in JSON.
func Text(object any) string {
	b, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Env returns the environment of a container.
func (m *Maker) Env() []corev1.EnvVar {
	list := []corev1.EnvVar{{Name: "MODE", Value: "on"}, {Name: "PASSWORD", Value: m.Value()}}
	switch n := m.IntN(5); {
	case n == 0:
		list = append(list, corev1.EnvVar{Name: "URL", Value: "postgres://shop:" + m.Value() + "@db/orders?sslmode=require"})
	case n == 1 && !m.Flow:
		list = append(list, corev1.EnvVar{Name: "CONFIG", Value: `{"auths":{"registry":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("u:"+m.Value())) + `"}}}`})
	case n == 2:
		list = append(list, corev1.EnvVar{Name: "PIN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "pin"}}})
	}
	return list
}

// PodSpec returns a specification whose containers have environments.
func (m *Maker) PodSpec() corev1.PodSpec {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry/web:1", Env: m.Env()}}}
	if m.IntN(3) == 0 {
		spec.InitContainers = []corev1.Container{{Name: "init", Image: "registry/init:1", Env: m.Env()}}
	}
	if m.IntN(5) == 0 {
		spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Env: m.Env()}}}
	}
	return spec
}

// Pod returns a Pod with canaries in environments and, at times, in annotations.
func (m *Maker) Pod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: m.Annotations()}, Spec: m.PodSpec(),
	}
}

// Annotations returns annotations, most of which hold no manifest.
func (m *Maker) Annotations() map[string]string {
	notes := map[string]string{"prometheus.io/scrape": "true"}
	if m.IntN(4) == 0 {
		notes["kubectl.kubernetes.io/last-applied-configuration"] = m.Manifest()
	}
	return notes
}

// Manifest returns a text that is an object with canaries, or several.
func (m *Maker) Manifest() string {
	if m.Flow {
		return pick(m,
			"kind: Secret, stringData: password: "+m.Value(),
			"kind: Pod, env: PASSWORD, value: "+m.Value(),
		)
	}
	switch m.IntN(5) {
	case 0:
		return Text(map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": m.PodSpec()})
	case 1:
		return Text(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{m.Secret("a"), m.Secret("b")}})
	case 2:
		return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\nstringData:\n  password: " + strings.ReplaceAll(m.Value(), "\n", " ") + "\n"
	case 3: // A text within a text.
		return Text(map[string]any{"kind": "ConfigMap", "data": map[string]any{"manifest": Text(m.Secret("a"))}})
	}
	return Text(m.Secret("a"))
}

// encodings returns a text as it may stand in a file: itself, in base64 wherever it begins in a
// group of three bytes, and in hexadecimal.
func encodings(text string) (list []string) {
	list = []string{text, hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text)))}
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, before), text+"  "...))
		list = append(list, encoded[(before*8+5)/6:(before+len(text))*8/6])
	}
	return list
}

// Leaks returns where data have a canary: each form, also one within another, with what is beside it.
func Leaks(data []byte) (leaks []string) {
	for _, once := range encodings(marker) {
		for _, text := range encodings(once) {
			if at := bytes.Index(data, []byte(text)); at >= 0 {
				leaks = append(leaks, fmt.Sprintf("byte %d: %q", at, data[max(0, at-200):min(len(data), at+100)]))
			}
		}
	}
	return leaks
}

// NothingIn holds that no file of a recording has a canary, and returns their size. Recordings are
// not compressed.
func NothingIn(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the recording has %d files: %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bytes += int64(len(data))
		for _, leak := range Leaks(data) {
			t.Errorf("%s has a canary: %s", filepath.Base(file), leak)
		}
	}
	return bytes
}
