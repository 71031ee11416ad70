package hooks_test

import (
	"context"
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// The guests of the tests, by the name of their directory.
const (
	cpuFromAnnotation = "../examples/hooks/cpu-from-annotation"
	scripted          = "./testdata/scripted"
)

var runtime *host.Runtime

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if runtime, err = host.NewRuntime(compiled.Config()); err != nil {
			panic(err)
		}
		defer runtime.Close(context.Background())
		return m.Run()
	}())
}

// guest builds a guest.
func guest(dir string) (host.Source, error) {
	file, err := guestbuild.Build(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return host.File(file), nil
}

// plugin configures a guest.
func plugin(t testing.TB, name, pkg string) hooks.PluginConfig {
	t.Helper()
	source, err := guest(pkg)
	if err != nil {
		t.Fatal(err)
	}
	return hooks.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Source: source}, Args: []string{name}}, DecisionGrants: grants()}
}

// grants are what the scripts of the tests take.
func grants() hooks.Grants {
	return hooks.Grants{
		Env: []string{"A", "B"}, Annotations: []string{"a", "b", "sees", "stage"},
		Mounts:  []hooks.MountGrant{{Source: "/usr", Destination: "/a"}, {Source: "/etc", Destination: "/a"}, {Source: "/usr", Destination: "/c"}},
		Devices: []string{"/dev/null", "/dev/zero"},
	}
}

// engine loads plugins and closes them with the test.
func engine(t testing.TB, cfg hooks.Config) *hooks.Engine {
	t.Helper()
	e, err := hooks.NewEngine(t.Context(), runtime, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// webRequest is a request as a node sends it: 2.2 KB when encoded.
func webRequest() *hookmsg.Request {
	return &hookmsg.Request{
		Stage:     abi.PreCreateContainer,
		Level:     abi.LevelContainer,
		QOSClass:  abi.QOSBurstable,
		Pod:       hookmsg.PodMeta{Namespace: "shop", Name: "web-7d4b9c6f5d-x2lqp", UID: "8dbc5577-d0e2-4706-8787-57d52c03ddf2"},
		Container: hookmsg.ContainerMeta{Name: "nginx", ID: "4b1f0c6a2f3e4d5c6b7a8990a1b2c3d4e5f60718293a4b5c6d7e8f9001122334"},
		PodLabels: map[string]string{
			"app.kubernetes.io/name":       "web",
			"app.kubernetes.io/instance":   "web-production",
			"app.kubernetes.io/version":    "1.27.4",
			"app.kubernetes.io/component":  "frontend",
			"app.kubernetes.io/part-of":    "shop",
			"app.kubernetes.io/managed-by": "Helm",
			"helm.sh/chart":                "web-3.14.2",
			"pod-template-hash":            "7d4b9c6f5d",
			"topology.kubernetes.io/zone":  "eu-central-1b",
			"security.istio.io/tlsMode":    "istio",
		},
		PodAnnotations: map[string]string{
			"kubewasm.dev/cpu":                               "1500m",
			"kubernetes.io/config.seen":                      "2026-11-20T21:08:11.912342134Z",
			"kubernetes.io/config.source":                    "api",
			"prometheus.io/scrape":                           "true",
			"prometheus.io/port":                             "9113",
			"prometheus.io/path":                             "/metrics",
			"checksum/config":                                "01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b",
			"cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
			"kubectl.kubernetes.io/restartedAt":              "2026-11-19T08:15:42+01:00",
			"k8s.v1.cni.cncf.io/network-status":              `[{"name":"cilium","interface":"eth0","ips":["10.244.3.17"],"mac":"8a:1f:6c:0e:5b:21","default":true,"dns":{}},{"name":"shop/storage","interface":"net1","ips":["192.168.40.17"],"mac":"8a:1f:6c:0e:5b:22","dns":{},"gateway":["192.168.40.1"]}]`,
			"cni.projectcalico.org/containerID":              "4b1f0c6a2f3e4d5c6b7a8990a1b2c3d4e5f60718293a4b5c6d7e8f9001122334",
			"sidecar.istio.io/status":                        `{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["workload-socket","credential-socket","istio-envoy","istio-data","istio-podinfo","istiod-ca-cert"],"revision":"default"}`,
		},
		ContainerAnnotations: map[string]string{
			"io.kubernetes.container.hash":                     "6f3c9c1e",
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
		},
		ContainerEnvs: []hookmsg.Env{
			{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			{Name: "KUBERNETES_SERVICE_HOST", Value: "10.96.0.1"},
			{Name: "KUBERNETES_SERVICE_PORT", Value: "443"},
			{Name: "NGINX_VERSION", Value: "1.27.4"},
		},
		CgroupParent: "kubepods/burstable/pod8dbc5577-d0e2-4706-8787-57d52c03ddf2",
		Resources:    &hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(-1)), CFSPeriodUS: new(int64(100_000)), MemoryLimitBytes: new(int64(256 << 20)), OOMScoreAdj: new(int64(967))},
	}
}

func BenchmarkDecide(b *testing.B) {
	e := engine(b, hooks.Config{Plugins: []hooks.PluginConfig{plugin(b, "cpu", cpuFromAnnotation)}})
	req := webRequest()
	b.SetBytes(int64(len(req.Append(nil))))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Decide(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
