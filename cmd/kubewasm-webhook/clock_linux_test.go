package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

// TestClockSteps sets the clock of a machine forward and back by an hour below the built webhook: it
// answers, follows its files and exchanges its certificate as before. Policies that only monitor for
// a time are enforced when the clock says so or the time has gone by, whichever comes first.
func TestClockSteps(t *testing.T) {
	if os.Getenv(vm.GuestDir) == "" {
		f := &faults{dir: t.TempDir()}
		f.build(t)
		guest := filepath.Join(f.dir, "required-labels.wasm")
		content, err := os.ReadFile(f.guest)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(guest, content, 0o600); err != nil {
			t.Fatal(err)
		}
		vm.Run(t, ".", "^TestClockSteps$", f.binary, guest)
		return
	}
	f := newFaults(t)
	r := f.start(t, "", "-state-dir", f.path("state"), "-api-token-file", f.path("token"))
	r.until(t, "ready", r.ready)
	r.asks(t)
	step := func(by time.Duration) {
		t.Helper()
		now := syscall.NsecToTimeval(time.Now().Add(by).UnixNano())
		if err := syscall.Settimeofday(&now); err != nil {
			t.Fatal(err)
		}
	}
	monitor := func(d time.Duration) {
		t.Helper()
		code, text, err := r.manage(t, "/break-glass", fmt.Sprintf(`{"for": %q, "reason": "the clock is set"}`, d))
		if err != nil || code != http.StatusOK {
			t.Fatalf("%d: %s, error %v", code, text, err)
		}
	}
	enforced := func() bool {
		got, err := verdict(f.client, r.addr, "other")
		return err == nil && got != "allowed"
	}
	for i, test := range []struct {
		name      string
		by, glass time.Duration
	}{
		{"forward, beyond the end of break glass", time.Hour, 30 * time.Minute},
		{"back to an hour before its start", -2 * time.Hour, 20 * time.Second},
	} {
		monitor(test.glass)
		if enforced() {
			t.Errorf("%s: policies are enforced while they only monitor", test.name)
		}
		step(test.by)
		r.until(t, test.name+": policies are enforced again", enforced)
		r.asks(t)
		f.put(t, "policies.yaml", f.policy("labels", "team"))
		r.until(t, test.name+": it follows its file", func() bool {
			got, _ := verdict(f.client, r.addr, "team")
			return got == "allowed"
		})
		serial := int64(10 + i)
		f.exchange(t, serial)
		r.until(t, test.name+": it exchanges its certificate", func() bool {
			f.client.CloseIdleConnections()
			resp, err := f.client.Get("https://" + r.addr + "/readyz")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			return resp.StatusCode == http.StatusOK && resp.TLS.PeerCertificates[0].SerialNumber.Int64() == serial
		})
		f.put(t, "policies.yaml", f.policy("labels", "app"))
		r.until(t, test.name+": it follows its file back", func() bool {
			got, _ := verdict(f.client, r.addr, "app")
			return got == "allowed"
		})
	}
	r.terminate(t)
}
