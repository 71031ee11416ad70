package hooks_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

func TestShadowOfAHook(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), scripted)
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(`{"qos": {"BestEffort": "cpu_shares 10"}}`)},
		Shadow: &shadow.Config{Module: host.ModuleConfig{File: file}, Rate: 1, CPU: 1, GuestConfig: host.GuestConfig(`{"qos": {"BestEffort": "cpu_shares 20", "Burstable": "cfs_quota_us 5000"}}`)},
	}}})
	await := func(what string, is func(shadow.Status) bool) shadow.Status {
		t.Helper()
		for {
			status := e.Shadow("p").Status()
			if is(status) {
				return status
			}
			if status.State == shadow.Stopped {
				t.Fatalf("want %s, the shadow has stopped: %s", what, status.Reason)
			}
			select {
			case <-t.Context().Done():
				t.Fatalf("want %s, have %+v", what, status)
			case <-time.After(time.Millisecond):
			}
		}
	}
	for n, class := range []abi.QOSClass{abi.QOSBestEffort, abi.QOSBurstable, abi.QOSGuaranteed, abi.QOSBurstable} {
		await("running", func(s shadow.Status) bool { return s.State == shadow.Running })
		d, err := e.Decide(t.Context(), &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: class, CgroupParent: "kubepods"})
		if err != nil {
			t.Fatal(err)
		}
		if class == abi.QOSBurstable && d.Fields() != 0 {
			t.Errorf("the decision of the shadow counts: %v", d.Fields())
		}
		await("a call", func(s shadow.Status) bool { return s.Compared+s.Failed+s.Uncompared > uint64(n) })
	}
	got := e.Shadow("p").Status()
	changes := map[string]uint64{}
	for _, g := range got.Groups {
		changes[g.Change] = g.Calls
	}
	if got.Compared != 4 || got.Same != 1 || changes["cpu_shares -> cpu_shares"] != 1 || changes["nothing -> cfs_quota_us"] != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestShadowOfAHookFromARegistry(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), scripted)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	plugin := hooks.PluginConfig{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(`{}`)},
		Shadow: &shadow.Config{Module: host.ModuleConfig{OCI: "registry.example.com/acme/p:2"}, Rate: 1, CPU: 1},
	}
	t.Run("is a mistake without access to registries", func(t *testing.T) {
		_, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{plugin}})
		if err == nil || !strings.Contains(err.Error(), `plugin "p": shadow.module.oci: this program has no access to registries`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("comes from the source of its reference", func(t *testing.T) {
		opened := make(chan string, 1)
		rt.AddSources(host.Sources{OCI: func(reference string) host.Source {
			select {
			case opened <- reference:
			default: // It is opened to be checked as well.
			}
			return host.File(file)
		}})
		e, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{plugin}})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-opened; got != plugin.Shadow.Module.OCI {
			t.Errorf("opened %s", got)
		}
		for e.Shadow("p").Status().State == shadow.Loading {
			time.Sleep(time.Millisecond)
		}
		if status := e.Shadow("p").Status(); status.State != shadow.Running {
			t.Errorf("the shadow is %+v", status)
		}
	})
	t.Run("that is away leaves the engine alone", func(t *testing.T) {
		rt.AddSources(host.Sources{OCI: func(string) host.Source { return host.File(file + ".missing") }})
		e, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{plugin}})
		if err != nil {
			t.Fatal(err)
		}
		for e.Shadow("p").Status().State == shadow.Loading {
			time.Sleep(time.Millisecond)
		}
		if status := e.Shadow("p").Status(); status.State != shadow.Stopped || status.Reason == "" {
			t.Errorf("the shadow is %+v", status)
		}
		if _, err := e.Decide(t.Context(), &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: abi.QOSBestEffort, CgroupParent: "kubepods"}); err != nil {
			t.Error(err)
		}
	})
}

func TestShadowOfAHookIsPromoted(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), scripted)
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	candidate := host.Bytes(append(module, "\x00\x07\x05otherx"...)) // With one more custom section.
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(`{"qos": {"BestEffort": "cpu_shares 10"}}`)},
		Shadow: &shadow.Config{Module: host.ModuleConfig{Source: candidate}, Rate: 1, CPU: 1},
	}}})
	digest := func() string {
		for _, p := range runtime.Plugins() {
			if p.Name() == "p" {
				return p.Digest()
			}
		}
		return ""
	}
	before := digest()
	for e.Shadow("p").Status().State == shadow.Loading {
		time.Sleep(time.Millisecond)
	}
	for status := e.Shadow("p").Status(); status.State != shadow.Promoted; status = e.Shadow("p").Status() {
		if status.State == shadow.Stopped {
			t.Fatalf("the shadow has stopped: %s", status.Reason)
		}
		if status.Same >= 3 {
			if err := e.Shadow("p").Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Decide(t.Context(), &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: abi.QOSBestEffort, CgroupParent: "kubepods"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if got := digest(); got == before || got != e.Shadow("p").Status().Digest {
		t.Errorf("%s serves, before %s, the candidate is %s", got, before, e.Shadow("p").Status().Digest)
	}
}
