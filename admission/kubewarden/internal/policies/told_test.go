package policies_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// teller is a policy in Rego that denies with the name of the request, for OPA and
// for Gatekeeper. "rounds" is how long it takes; a request on which it is to trap
// asks a builtin for what the host refuses.
const teller = `package p

request := input.request
request := input.review

rounds := data.rounds
rounds := input.parameters.rounds

main contains msg if {
	not request.object.trap
	count([i | some i in numbers.range(1, rounds)]) == rounds
	msg := request.name
}

main contains sprintf("%v", [numbers.range_step(0, 1000000000, 1)]) if request.object.trap
`

// TestEveryRequestIsToldItsOwnMessage asks a policy of each dialect beside a slower
// one, from several goroutines: the instance of the first serves another request
// when the answer is put together. Then the policy traps and is swapped meanwhile,
// so that instances begin anew or are gone.
func TestEveryRequestIsToldItsOwnMessage(t *testing.T) {
	rego, cache := regoSource(t, "p/main", teller), filepath.Join(t.TempDir(), "cache")
	for mode, debug := range map[string]string{"as users have it": "", "in debug mode": "memory"} {
		t.Run(mode, func(t *testing.T) {
			t.Setenv("KUBEWASM_DEBUG", debug)
			rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: cache})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := rt.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			hammerMessages(t, rt, rego)
		})
	}
}

func hammerMessages(t *testing.T, rt *host.Runtime, rego string) {
	load := func(name, file, settings string, edit func(*pluginConfig)) *admission.Plugin {
		cfg := config(t, name, file)
		cfg.GuestConfig = []byte(settings)
		cfg.Limits.Instances = 2
		edit(&cfg)
		p, err := loadPlugin(t.Context(), rt, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	as := func(*pluginConfig) {}
	slow := load("slow", rego, `{"rounds":300}`, as)
	request := func(name, object string) *admissionv1.AdmissionRequest {
		r := requestOf(object)
		r.Name = name
		return r
	}
	const echo, trap = `{"annotations":{"mode":"mode-echo"}}`, `{"annotations":{"mode":"mode-trap"}}`
	for _, test := range []struct {
		name, file, settings string
		edit                 func(*pluginConfig)
		trap                 string // The object on which the policy traps.
		trapped              string // The call that does.
		want                 func(name string) string
	}{
		{
			"OPA", rego, `{"rounds":1}`, as, `{"trap":true}`, "opa_eval",
			func(name string) string { return name },
		},
		{
			"Gatekeeper", rego, `{"rounds":1}`, func(c *pluginConfig) { c.Gatekeeper = true }, `{"trap":true}`, "opa_eval",
			func(name string) string { return name },
		},
		{
			"Kubewarden", buildC(t, "testdata/kubewarden/policy.c"), "", as, trap, "__guest_call",
			func(name string) string {
				return `{"request":{"uid":"uid-1","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"` + name +
					`","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice"},"object":` + echo + `},"settings":{}}`
			},
		},
		{
			"Stellar", buildC(t, "../../../testdata/stellar/validator.c"), "", as, trap, "validate",
			func(name string) string {
				return `{"operation":"CREATE","object":` + echo + `,"namespace":"shop","name":"` + name + `","userInfo":{"username":"alice","groups":[],"extra":{}},"context":{}}`
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			fast := load("fast", test.file, test.settings, test.edit)
			e := admission.NewEngine(fast, slow)
			check := func(name string) error {
				got := e.Validate(t.Context(), request(name, echo))
				if want := "fast: " + test.want(name) + "; slow: " + name; got.Result == nil || got.Result.Message != want {
					return fmt.Errorf("request %s is told %+v\nwant %s", name, got.Result, want)
				}
				return nil
			}
			checkTrap := func(name string) error {
				got := e.Validate(t.Context(), request(name, test.trap))
				if want := `plugin "fast": ` + test.trapped + " trapped: "; got.Result == nil || !strings.HasPrefix(got.Result.Message, want) {
					return fmt.Errorf("request %s is told %+v\nwant %s", name, got.Result, want)
				}
				return nil
			}
			// hammer sends requests of which trapping of a hundred trap.
			hammer := func(t *testing.T, requests, trapping int) {
				var clients sync.WaitGroup
				for c := range 8 {
					clients.Go(func() {
						for i := range requests / 8 {
							ask := check
							if i*7%100 < trapping {
								ask = checkTrap
							}
							// Names of one length: what overwrites one begins and ends like it.
							if err := ask(fmt.Sprintf("name-%d-%04d", c, i)); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				clients.Wait()
			}
			t.Run("undisturbed", func(t *testing.T) { hammer(t, 400, 0) })
			t.Run("with traps and swaps", func(t *testing.T) {
				module, err := os.ReadFile(test.file)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				var swapping sync.WaitGroup
				var swaps atomic.Int64
				swapping.Go(func() {
					defer swaps.Add(4) // So that the hammer ends if it fails.
					for n := 0; ; n++ {
						select {
						case <-done:
							return
						default:
						}
						version := host.Bytes(slices.Concat(module, []byte{0, 3, 1, 'v', byte('a' + n%2)}))
						if err := fast.Guest().Swap(context.Background(), version, ""); err != nil {
							t.Error(err)
							return
						}
						swaps.Add(1)
					}
				})
				for swaps.Load() < 4 && !t.Failed() {
					hammer(t, 800, 20)
				}
				close(done)
				swapping.Wait()
			})
		})
	}
}
