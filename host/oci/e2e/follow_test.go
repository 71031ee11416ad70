package e2e

import (
	"bytes"
	"context"
	"crypto"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// guest returns a module that the tests of host have.
func guest(t *testing.T, name string) []byte {
	t.Helper()
	module, err := os.ReadFile("../../testdata/" + name + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// TestAPluginFollowsATag moves a tag while a plugin follows it: to a signed version, which
// serves; to one that is not signed, signed by another, or older, which is refused; to one
// that no host runs; and away.
func TestAPluginFollowsATag(t *testing.T) {
	s := newServer(t, distribution(t, nil), false)
	key, public := newKey(t)
	otherKey, _ := newKey(t)
	cfg := oci.Config{Registries: plain(s), CacheDir: t.TempDir(), Trust: []oci.Trust{
		{Repositories: []string{"*"}, AllOf: []oci.Signer{{Name: "us", Key: public}}, RefuseDowngrades: true},
	}}
	client, publisher, ref := newClient(t, cfg), newClient(t, oci.Config{Registries: plain(s)}), s.ref(t, "acme/zone:1")
	publish := func(module []byte, version string, key crypto.Signer) {
		t.Helper()
		digest := push(t, publisher, ref, module, oci.PushOptions{Annotations: map[string]string{"org.opencontainers.image.version": version}})
		if key == nil {
			return
		}
		if signed, err := publisher.Sign(t.Context(), ref, key, oci.SignOptions{}); err != nil || signed != digest {
			t.Fatalf("signed %s, %v, want %s", signed, err, digest)
		}
	}
	publish(guest(t, "noop"), "1.0.0", key)

	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	plugin, err := rt.Load(t.Context(), host.Config{Name: "zone", Module: host.ModuleConfig{Source: client.Source(ref.String())}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	first := plugin.Digest()
	call := func() uint64 {
		t.Helper()
		inst, err := plugin.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		got, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	failed := make(chan error, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- plugin.Follow(ctx, host.FollowOptions{Interval: 10 * time.Millisecond, Failed: func(err error) {
			select {
			case failed <- err:
			default:
			}
		}})
	}()
	// refuses waits for an error of following, and expects the plugin to go on.
	refuses := func(want string) {
		t.Helper()
		for {
			select {
			case err := <-failed:
				if !strings.Contains(err.Error(), want) {
					continue // Of a look before the tag moved.
				}
				call()
				return
			case <-t.Context().Done():
				t.Fatalf("no error %q", want)
			}
		}
	}
	publish(bytes.Clone(guest(t, "spins")), "0.9.0", key)
	refuses("its version is 0.9.0, but 1.0.0 was accepted before")
	publish(guest(t, "spins"), "1.1.0", nil)
	refuses("it has no signature")
	publish(guest(t, "spins"), "1.1.1", otherKey)
	refuses(`none of 2 signatures is by "us"`)
	publish(guest(t, "nomarker"), "1.2.0", key)
	refuses(`export "kubewasm_abi_v1" is missing`)
	if plugin.Digest() != first {
		t.Errorf("the digest is %s, want %s", plugin.Digest(), first)
	}
	publish(guest(t, "spins"), "1.3.0", key)
	for plugin.Digest() == first {
		select {
		case <-failed:
		case <-t.Context().Done():
			t.Fatal("the plugin was not swapped")
		default:
		}
	}
	if got := call(); got == 0 {
		t.Error("the new version answers like the old one")
	}
	s.setFault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	refuses("asked for a pause until")
	if states := client.Sources(); len(states) != 1 || !states[0].Stale {
		t.Errorf("states are %+v, want one that is stale", states)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestTheLastLoadedVersionIsTheOneThatIsKept moves a tag to a signed version that the host
// refuses. After a restart without the registry, the version before it serves.
func TestTheLastLoadedVersionIsTheOneThatIsKept(t *testing.T) {
	key, public := newKey(t)
	for name, bad := range map[string][]byte{
		"of another ABI":        guest(t, "nomarker"),
		"that does not compile": []byte("\x00asm\x01\x00\x00\x00\x0a\x01\x7f"),
		"cut off":               guest(t, "spins")[:100],
	} {
		for _, how := range []string{"refused by a plugin that follows", "refused at a start"} {
			t.Run(name+" "+how, func(t *testing.T) {
				s := newServer(t, distribution(t, nil), false)
				cfg := oci.Config{Registries: plain(s), CacheDir: t.TempDir(), Trust: []oci.Trust{
					{Repositories: []string{"*"}, AllOf: []oci.Signer{{Name: "us", Key: public}}, RefuseDowngrades: true},
				}}
				publisher, ref := newClient(t, oci.Config{Registries: plain(s)}), s.ref(t, "acme/zone:1")
				publish := func(module []byte, version string) {
					t.Helper()
					push(t, publisher, ref, module, oci.PushOptions{Annotations: map[string]string{"org.opencontainers.image.version": version}})
					if _, err := publisher.Sign(t.Context(), ref, key, oci.SignOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				rt, err := host.NewRuntime(host.RuntimeConfig{})
				if err != nil {
					t.Fatal(err)
				}
				defer rt.Close(context.Background())
				// Each load is by a client of its own, as after a restart.
				load := func() (*host.Plugin, error) {
					return rt.Load(t.Context(), host.Config{Name: "zone", Module: host.ModuleConfig{Source: newClient(t, cfg).Source(ref.String())}}, host.Adapter{Kind: abi.KindScheduler})
				}
				publish(guest(t, "noop"), "1.0.0")
				plugin, err := load()
				if err != nil {
					t.Fatal(err)
				}
				good := plugin.Digest()
				publish(bad, "1.1.0")
				if how == "refused at a start" {
					if _, err := load(); err == nil {
						t.Fatal("the bad version was loaded")
					}
				} else {
					ctx, stop := context.WithCancel(t.Context())
					err := plugin.Follow(ctx, host.FollowOptions{Failed: func(error) { stop() }})
					if err != nil || t.Context().Err() != nil {
						t.Fatalf("follow: %v, %v", err, t.Context().Err())
					}
				}
				// A program that keeps its modules starts with the good one, verified again.
				keeps, err := host.NewRuntime(host.RuntimeConfig{KeepModules: true})
				if err != nil {
					t.Fatal(err)
				}
				defer keeps.Close(context.Background())
				start := func() (*host.Plugin, error) {
					return keeps.Load(t.Context(), host.Config{Name: "zone", Module: host.ModuleConfig{Source: newClient(t, cfg).Source(ref.String())}}, host.Adapter{Kind: abi.KindScheduler})
				}
				if p, err := start(); err != nil || p.Digest() != good {
					t.Errorf("a start with the bad version: %v", err)
				} else if state, _ := p.State(); state != host.Stale {
					t.Errorf("the state is %s", state)
				}
				trusted := cfg.Trust[0].AllOf[0].Key
				_, cfg.Trust[0].AllOf[0].Key = newKey(t)
				if p, err := start(); err == nil {
					t.Errorf("%s serves, although nobody trusts its signature any more", p.Digest())
				}
				cfg.Trust[0].AllOf[0].Key = trusted
				s.setFault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
					w.Header().Set("Retry-After", "3600") // So that it is not asked again.
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				})
				again, err := load()
				if err != nil {
					t.Fatalf("with the registry away: %v", err)
				}
				if again.Digest() != good {
					t.Errorf("with the registry away %s serves, want %s", again.Digest(), good)
				}
				// The author takes the bad version back, which is no downgrade of what was loaded.
				s.setFault(nil)
				publish(guest(t, "noop"), "1.0.0")
				if _, err := load(); err != nil {
					t.Errorf("with the good version in its place: %v", err)
				}
			})
		}
	}
}
