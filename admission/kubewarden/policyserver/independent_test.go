package policyserver_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
)

// holding returns a server whose module registry://policy does not come until release is called.
func holding(t *testing.T) (s *testServer, release func()) {
	t.Helper()
	s = newServer(t, func(c *policyserver.Config) { c.Interval = time.Minute })
	hold := make(chan struct{})
	s.modules.slow = map[string]chan struct{}{"registry://policy": hold}
	release = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	return s, release
}

// TestRemovedPoliciesFailNoOther removes policies while their module, which another policy has as
// well, is fetched.
func TestRemovedPoliciesFailNoOther(t *testing.T) {
	s, release := holding(t)
	const other = `"other": {"module": "registry://policy"}`
	policies := []string{other}
	for n := range 20 {
		policies = append(policies, fmt.Sprintf(`"p%d": {"module": "registry://policy"}`, n))
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.apply("{" + strings.Join(policies, ", ") + "}") }()
	until(t, func() bool { return s.modules.fetches("registry://policy") == 1 })
	go func() { second <- s.apply("{" + other + "}") }()
	// The fetch of a removed policy ends, and that of the other one begins or goes on.
	select {
	case err := <-second:
		t.Errorf("the policy is loaded without its module, or failed: %v", err)
		second <- err
	case <-time.After(100 * time.Millisecond):
	}
	release()
	if err := <-second; err != nil {
		t.Error(err)
	}
	<-first
}

// TestAReplacedFileIsNotReady replaces a file before its policy is loaded: a server without policies
// is not ready.
func TestAReplacedFileIsNotReady(t *testing.T) {
	s, release := holding(t)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.apply(`{"p": {"module": "registry://policy"}}`) }()
	until(t, func() bool { return s.modules.fetches("registry://policy") == 1 })
	go func() { second <- s.apply(`{"p": {"module": "registry://policy", "settings": {"a": 1}}}`) }()
	<-first
	if err := s.Ready(); err == nil {
		t.Error("ready before a policy is loaded")
	}
	release()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
}

// TestASlowModuleDoesNotDelayANewerFile starts with a file whose module does not come, and replaces
// the file.
func TestASlowModuleDoesNotDelayANewerFile(t *testing.T) {
	s := newServer(t, func(c *policyserver.Config) { c.Interval = 20 * time.Millisecond })
	s.modules.slow = map[string]chan struct{}{"registry://slow": make(chan struct{})}
	file := filepath.Join(t.TempDir(), "policies.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"p": {"module": "registry://slow"}}`)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		if err := s.FollowFile(ctx, file); err != nil {
			t.Error(err)
		}
	})
	defer following.Wait()
	defer cancel()
	until(t, func() bool { return s.modules.fetches("registry://slow") == 1 })
	write(`{"p": {"module": "registry://policy"}}`)
	until(t, func() bool {
		code, _ := s.send(http.MethodPost, "/validate/p", "application/json", pod)
		return code == http.StatusOK
	})
}
