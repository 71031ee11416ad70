package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Cluster is a running kube-apiserver with its etcd.
type Cluster struct {
	// Config connects as an administrator.
	Config *rest.Config
	// Client is a client for Config.
	Client kubernetes.Interface
	// Kubeconfig is a file that says the same as Config.
	Kubeconfig string
	// Dir is the directory of the test, gone when it ends.
	Dir string
}

// Start runs a control plane until the test ends. Flags are flags of
// kube-apiserver by name, without dashes, that replace or extend those of
// envtest.
//
// Authorization is RBAC. No controllers run, so nothing makes service accounts
// or removes taints, and Nodes get no taint of their own accord.
func Start(t testing.TB, flags map[string][]string) *Cluster {
	t.Helper()
	env := &envtest.Environment{}
	plane := &env.ControlPlane
	plane.Etcd = &envtest.Etcd{Path: BuildKubernetes(t, "go.etcd.io/etcd/server/v3", "etcd")}
	// etcd takes whatever the API server sends, which is 2 MiB at most.
	plane.Etcd.Configure().Set("max-request-bytes", "10485760")
	plane.APIServer = &envtest.APIServer{Path: BuildKubernetes(t, "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver")}
	args := plane.APIServer.Configure().
		Set("disable-admission-plugins", "ServiceAccount", "TaintNodesByCondition").
		Set("endpoint-reconciler-type", "none")
	for name, values := range flags {
		args.Set(name, values...)
	}
	if testing.Verbose() {
		env.AttachControlPlaneOutput = os.Getenv("KUBEWASM_E2E_OUTPUT") != ""
	}
	// envtest also looks for kubectl, and for all three in one place; the paths
	// above win, and kubectl is not used.
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the control plane: %v", err)
		}
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Attr("kubernetes", version.GitVersion)
	c := &Cluster{Config: config, Client: client, Dir: t.TempDir()}
	c.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
	if err := os.WriteFile(c.Kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}
