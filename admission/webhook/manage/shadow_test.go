package manage_test

import (
	"encoding/base64"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
)

// TestAPIOfShadows is the life of a candidate by the API.
func TestAPIOfShadows(t *testing.T) {
	a := &apiFixture{state: t.TempDir()}
	a.fixture = start(t, a.withState)
	server := httptest.NewServer(a.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	a.client = &client{t, server.URL, "secret", server.Client()}
	a.want("POST", "/plugins", loadBody("p", "1.0.0", says("one"), nil), 201, map[string]any{"status": "created"})
	if code, answer := a.do("GET", "/plugins/p/shadow", nil); code != 404 {
		t.Errorf("without a shadow: %d %v", code, answer)
	}
	if code, answer := a.do("POST", "/plugins/p/shadow", map[string]any{"file": "/etc/passwd"}); code != 400 {
		t.Errorf("a file: %d %v", code, answer)
	}
	if code, answer := a.do("POST", "/plugins/p/shadow", map[string]any{"rate": 3, "cpu": 7}); code != 400 {
		t.Errorf("mistakes: %d %v", code, answer)
	}
	a.want("POST", "/plugins/p/shadow", map[string]any{"rate": 1, "cpu": 1, "wasm_binary": base64.StdEncoding.EncodeToString(says("two"))}, 201, map[string]any{"status": "begun"})
	until := func(path string, is func(map[string]any) bool) map[string]any {
		t.Helper()
		for {
			_, got := a.do("GET", path, nil)
			if is(got) {
				return got
			}
			if got["state"] == "stopped" || t.Context().Err() != nil {
				t.Fatalf("got %v", got)
			}
			<-time.After(time.Millisecond)
		}
	}
	until("/plugins/p/shadow", func(got map[string]any) bool { return got["state"] == "running" })
	a.answers(t, "one")
	got := until("/plugins/p/shadow", func(got map[string]any) bool { return got["compared"] == 1.0 })
	groups := got["groups"].([]any)
	if len(groups) != 1 || groups[0].(map[string]any)["change"] != "deny -> deny" {
		t.Errorf("got %v", got)
	}
	a.want("POST", "/plugins/p/promote", nil, 200, map[string]any{"status": "promoted"})
	a.answers(t, "two")
	if _, versions := a.do("GET", "/plugins/p/versions", nil); len(versions["versions"].([]any)) != 2 {
		t.Errorf("versions are %v", versions)
	}
	if code, answer := a.do("POST", "/plugins/p/rollback", nil); code != 200 {
		t.Errorf("roll back: %d %v", code, answer)
	}
	a.answers(t, "one")

	a.want("POST", "/plugins/p/profile", map[string]any{"calls": 2}, 201, map[string]any{"status": "begun"})
	profile := until("/plugins/p/profile?top=1&pprof=true", func(got map[string]any) bool {
		a.answers(t, "one")
		return got["calls"] == 2.0
	})
	if list := profile["functions"].([]any); len(list) != 1 || profile["fuel"] == 0.0 || profile["pprof"] == "" {
		t.Errorf("got %v", profile)
	}
	if code, answer := a.do("GET", "/plugins/p/profile?top=x", nil); code != 400 {
		t.Errorf("top=x: %d %v", code, answer)
	}
	a.want("POST", "/plugins/p/shadow", map[string]any{"wasm_binary": base64.StdEncoding.EncodeToString(says("three"))}, 201, map[string]any{"status": "begun"})
	a.want("DELETE", "/plugins/p/shadow", nil, 200, map[string]any{"status": "ended"})
}
