package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// fuelOf adds up the fuel of calls.
type fuelOf struct {
	host.Observer
	fuel atomic.Int64
}

func (f *fuelOf) Called(_ context.Context, c host.CallEvent) { f.fuel.Add(c.Fuel) }

// TestIndexedObjects holds that a guest decides the same about a review with the host's index, which
// a Handler gives it, and without, as an earlier host does. With it the guest walks less.
func TestIndexedObjects(t *testing.T) {
	pod, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := &fuelOf{Observer: silent{}}
	cfg := config(t, "labels", requiredLabels)
	cfg.GuestConfig = []byte(`{"labels":["owner"],"registries":["registry.example.com/"]}`)
	cfg.Config.Observer, cfg.Limits.Instances = seen, 1
	engine := admission.NewEngine(load(t, cfg))
	handler := &admission.Handler{Validator: engine}
	fuel := func(f func()) int64 {
		before := seen.fuel.Load()
		f()
		return seen.fuel.Load() - before
	}
	// decide returns the answers of the handler and of the engine, and the fuel of each.
	decide := func(body string) (indexed, plain *admissionv1.AdmissionResponse, with, without int64) {
		request, err := admission.DecodeReview([]byte(body))
		if err != nil {
			return nil, nil, 0, 0
		}
		without = fuel(func() { plain = engine.Validate(t.Context(), request) })
		with = fuel(func() {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			handler.ServeHTTP(w, r)
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			indexed = review.Response
		})
		return indexed, plain, with, without
	}
	const update = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"UPDATE","kind":{"version":"v1","kind":"Pod"},"object":%s,"oldObject":%s}}`
	indexed, plain, with, without := decide(fmt.Sprintf(update, pod, pod))
	compare(t, indexed, plain)
	if with*4 > without*3 {
		t.Errorf("fuel is %d with an index and %d without, want at most three quarters", with, without)
	}

	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`{`, `}`, `[`, `]`, `"`, `\`, `,`, ` `, `null`, `"a":{},`, `"metadata":[],`, `"labels":{"owner":1},`, `"labels":null,`, `"spec":{},`, `"containers":{"image":[]},`, `\"`, `{"image":"x"},`}
	decided := 0
	for range 4_000 {
		doc := bytes.Clone(pod)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(doc))
			if next := bytes.IndexAny(doc[at:], `{[,"`); next >= 0 && random.IntN(4) != 0 {
				at += next + 1
			}
			doc = append(doc[:at:at], append([]byte(pieces[random.IntN(len(pieces))]), doc[at:]...)...)
		}
		object, old := string(doc), string(pod)
		if random.IntN(2) == 0 {
			object, old = old, object
		}
		indexed, plain, _, _ := decide(fmt.Sprintf(update, object, old))
		if plain == nil {
			continue
		}
		decided++
		if diff := cmp.Diff(plain, indexed); diff != "" {
			t.Fatalf("of %s\nand %s (-without +with an index):\n%s", object, old, diff)
		}
	}
	if decided < 200 {
		t.Errorf("%d of the documents are valid, want more", decided)
	}
}
