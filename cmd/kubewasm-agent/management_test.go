package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/management"
)

// keyPair writes a certificate for 127.0.0.1 and its key, and returns a client that trusts it.
func keyPair(t *testing.T, dir string) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

// TestAnOperatorRollsAPluginBack has a followed module replaced by a newer one on a running agent,
// and rolls it back by the management routes.
func TestAnOperatorRollsAPluginBack(t *testing.T) {
	dir := t.TempDir()
	root, list, file := tree(t), filepath.Join(dir, "pods.yaml"), filepath.Join(dir, "agent.yaml")
	client := keyPair(t, dir)
	module, err := os.ReadFile(plugins(t)["/etc/kubewasm/plugins/cpuset.wasm"])
	if err != nil {
		t.Fatal(err)
	}
	newer := append(bytes.Clone(module), "\x00\x03\x01x-"...) // With a custom section.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	put := func(name string, content []byte) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(name+".next", content, 0o600), os.Rename(name+".next", name)); err != nil {
			t.Fatal(err)
		}
	}
	put("pods.yaml", []byte(pods))
	put("token", []byte("secret\n"))
	put("cpuset.wasm", module)
	put("agent.yaml", fmt.Appendf(nil, `
cacheDir: %[1]s/cache
cgroup: {root: %[2]s, driver: cgroupfs}
standalone: {file: %[3]s}
management: {address: %[4]q, certFile: %[1]s/tls.crt, keyFile: %[1]s/tls.key, tokenFile: %[1]s/token}
plugins:
- {name: cpuset, module: {file: %[1]s/cpuset.wasm, follow: true}, levels: [Container]}
`, dir, root, list, address))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, file, false, new(slog.LevelVar), slog.New(slog.DiscardHandler)) }()
	do := func(method, path, token, body string, into any) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && into != nil {
			err = json.Unmarshal(text, into)
		}
		return resp.StatusCode, err
	}
	var shown management.Info
	until := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			var all struct{ Plugins []management.Info }
			if code, err := do("GET", "/plugins", "secret", "", &all); err == nil && code == http.StatusOK && len(all.Plugins) == 1 {
				if shown = all.Plugins[0]; holds() {
					return
				}
			}
			select {
			case err := <-ended:
				t.Fatalf("%s: the agent has ended: %v", what, err)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: not after a minute: %+v", what, shown)
			}
		}
	}
	until("serves", func() bool { return shown.State == "Serving" })
	first := shown.Digest
	put("cpuset.wasm", newer)
	until("follows", func() bool { return shown.Digest != first && shown.State == "Serving" })
	second := shown.Digest
	var answer map[string]any
	if code, err := do("POST", "/plugins/cpuset/rollback", "wrong", "", &answer); code != http.StatusUnauthorized || err != nil {
		t.Errorf("with another token: %d %v", code, err)
	}
	for _, step := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/plugins/none/rollback", "", 404, `plugin "none": not found`},
		{"POST", "/plugins/cpuset/rollback", `{"version": "7"}`, 404, "there is no such version"},
		{"POST", "/plugins/cpuset/rollback", "", 200, first},
		{"GET", "/plugins/cpuset/versions", "", 200, "versions:[map[digest:" + first},
		{"GET", "/plugins/cpuset/shadow", "", 404, "a shadow: not found"},
		{"POST", "/plugins/cpuset/shadow", `{"module": {"file": "/etc/passwd"}}`, 400, "send wasm_binary"},
		{"POST", "/plugins/cpuset/profile", `{"calls": 1}`, 201, "begun"},
	} {
		if code, err := do(step.method, step.path, "secret", step.body, &answer); code != step.code || err != nil || !strings.Contains(fmt.Sprint(answer), step.want) {
			t.Errorf("%s %s: %d %v %v, want %d and %s", step.method, step.path, code, answer, err, step.code, step.want)
		}
	}
	until("is rolled back", func() bool {
		return shown.Digest == first && shown.State == "Stale" && strings.Contains(shown.Error, second)
	})
	// What the source holds is still the version that was wrong. Another one ends the roll back.
	put("cpuset.wasm", append(bytes.Clone(newer), "\x00\x03\x01x-"...))
	until("follows again", func() bool { return shown.Digest != first && shown.Digest != second && shown.State == "Serving" })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ended with %v", err)
	}
}

// TestRoutesThatCannotBeServed keeps the agent on the node when only its management routes fail.
func TestRoutesThatCannotBeServed(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := new(ending)
	log.end = cancel
	m := &managed{cfg: &management.Config{Address: "127.0.0.1:0", CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}, agent: new(agent), logger: slog.New(slog.NewTextHandler(log, nil))}
	if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the mode ended by itself: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "the management routes are not served") || !strings.Contains(text, "tls.crt") {
		t.Errorf("log is %q", text)
	}
}

// ending is a log whose first line calls end.
type ending struct {
	strings.Builder
	end func()
}

func (e *ending) Write(line []byte) (int, error) {
	e.end()
	return e.Builder.Write(line)
}
