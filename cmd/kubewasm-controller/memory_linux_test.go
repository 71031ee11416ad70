package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// The size of the cluster of TestMemory.
const (
	agents    = 5000
	hooks     = 200
	maxMemory = 200_000_000
	// goLimit is memory.goLimit of the chart.
	goLimit = 128 << 20
)

// large is an API server in front of another one, with the Pods, nodes and reports of a large cluster.
type large struct {
	http.Handler
	hooks []*v1alpha1.NodeHook
}

// ServeHTTP answers requests for the objects of the cluster as a list, or a watch that begins with one.
func (l *large) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var kind, version string
	var object func(i int) any
	switch r.URL.Path {
	case "/api/v1/namespaces/" + namespace + "/pods":
		kind, version, object = "PodList", "v1", func(i int) any { return l.pod(i) }
	case "/api/v1/nodes":
		kind, version, object = "NodeList", "v1", func(i int) any {
			return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: l.meta("node", i)}
		}
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
			kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
			object = func(i int) any {
				return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: l.meta("node", i)}
			}
		}
	case "/apis/kubewasm.dev/v1alpha1/namespaces/" + namespace + "/pluginreports":
		kind, version, object = "PluginReportList", v1alpha1.GroupVersion.String(), func(i int) any { return l.report(i) }
	default:
		l.Handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	if r.URL.Query().Get("watch") == "" {
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[`, kind, version)
		for i := range agents {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			if encoder.Encode(object(i)) != nil {
				return
			}
		}
		fmt.Fprint(w, "]}")
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for i := range agents {
			if encoder.Encode(map[string]any{"type": "ADDED", "object": object(i)}) != nil {
				return
			}
		}
		bookmark := map[string]any{
			"kind": strings.TrimSuffix(kind, "List"), "apiVersion": version,
			"metadata": map[string]any{"resourceVersion": "1", "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
		}
		if encoder.Encode(map[string]any{"type": "BOOKMARK", "object": bookmark}) != nil {
			return
		}
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (l *large) meta(kind string, i int) metav1.ObjectMeta {
	name := fmt.Sprintf("%s-%d", kind, i)
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: "1",
		Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kubernetes.io/hostname":{}}},"f:status":{"f:conditions":{}}}`),
		}},
	}
}

func (l *large) pod(i int) *corev1.Pod {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: l.meta("agent", i), Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i)}}
	pod.Namespace = namespace
	pod.Labels = map[string]string{"app.kubernetes.io/component": "agent", "app.kubernetes.io/part-of": "kubewasm", "controller-revision-hash": "5c8d7f"}
	for c := range 2 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", c), Image: "ghcr.io/kubewasm/agent:dev", Args: []string{"-config=/configuration/agent.yaml"}})
	}
	pod.Status.Phase = corev1.PodRunning
	return pod
}

func (l *large) report(i int) *v1alpha1.PluginReport {
	r := &v1alpha1.PluginReport{TypeMeta: metav1.TypeMeta{Kind: "PluginReport", APIVersion: v1alpha1.GroupVersion.String()}, ObjectMeta: l.meta("agent", i)}
	r.Namespace, r.Component, r.Version, r.Engine, r.Node = namespace, "kubewasm-agent", "v0.1.0", "compiler", fmt.Sprintf("node-%d", i)
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: r.Name, UID: r.UID}}
	since := metav1.Now()
	for j, hook := range l.hooks {
		s := state(hook, "Serving", "")
		s.Webhooks, s.Since, s.Reference = nil, &since, "ghcr.io/acme/hook@sha256:"+strings.Repeat("b", 64)
		if i%100 == 0 && j%10 == 0 {
			s.State, s.Message = "Unavailable", fmt.Sprintf("fetch: no route from node %d", i)
		}
		r.Plugins = append(r.Plugins, s)
	}
	return r
}

// TestMemory measures a controller with 5,000 reports of 200 plugins.
func TestMemory(t *testing.T) {
	w := newWorld(t)
	transport, err := rest.TransportFor(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(w.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.Transport, proxy.FlushInterval = transport, -1
	l := &large{Handler: proxy}
	for i := range hooks {
		hook := &v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hook-%d", i)}, Spec: runtime.RawExtension{Raw: []byte(`{"module":{"configMap":{"namespace":"kubewasm","name":"m","key":"k"}},"nodeSelector":"kubernetes.io/os=linux"}`)}}
		w.create(t, hook)
		l.hooks = append(l.hooks, hook)
	}
	front := httptest.NewServer(l)
	defer front.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: front.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	kubeconfig := t.TempDir() + "/kubeconfig"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	args := []string{"-kubeconfig=" + kubeconfig, "-namespace=" + namespace, "-ca-file=" + w.caFile, "-metrics-addr=0", "-probe-addr=0"}
	cmd := self.Command(t, []string{argsVariable + "=" + strings.Join(args, "\n"), "GOMEMLIMIT=" + strconv.Itoa(goLimit)})
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // It may have ended.
		_ = cmd.Wait()
	}()
	// The server goes on to read l.hooks.
	w.status(t, l.hooks[1].DeepCopy(), "5000/5000", "Ready=True/Serving")
	w.status(t, l.hooks[10].DeepCopy(), "4950/5000", "Ready=False/Unavailable")
	w.status(t, l.hooks[hooks-1].DeepCopy(), "5000/5000", "Ready=True/Serving")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	kib, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the controller took %d MB at most", kib<<10/1_000_000)
	if kib<<10 > maxMemory {
		t.Errorf("the controller took %d bytes, more than %d", kib<<10, maxMemory)
	}
}
