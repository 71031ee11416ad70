package policies_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// Policies of every dialect are recorded while clients hammer the webhook, and everything
// that crossed can be repeated.
func TestARecordingOfReviewsReplays(t *testing.T) {
	calls := replaying.Calls(t, 3000)
	for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetPerCall} {
		t.Run(string(reset), func(t *testing.T) {
			dir := t.TempDir()
			var plugins []*admission.Plugin
			var policies []admission.Policy
			var modules [][]byte
			for _, guest := range []string{"opa", "wapc", "wasi"} {
				cfg := pluginConfig{Config: host.Config{Name: guest}}
				cfg.Module.Source = host.Bytes(saying(t, guest, verdicts[guest]))
				cfg.Limits.Instances, cfg.Reset = 3, reset
				cfg.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
				p := load(t, cfg)
				plugins, policies, modules = append(plugins, p), append(policies, p), append(modules, fetched(t, cfg.Module.Source))
			}
			url := serve(t, &admission.Handler{Validator: admission.NewEngine(policies...)})
			var clients sync.WaitGroup
			const parallel = 8
			for client := range parallel {
				clients.Go(func() {
					for i := range calls / len(plugins) / parallel {
						uid := fmt.Sprintf("uid-%d-%d", client, i)
						script := "deny"
						if i%20 == 7 {
							script = "panic"
						}
						postReview(t, url, review(uid, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"},"annotations":{%q:%q}}}`, i, script, uid)))
					}
				})
			}
			clients.Wait()
			for _, p := range plugins {
				if err := p.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			replaying.Verify(t, shared, dir, calls/2, modules...)
		})
	}
}
