package chart

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// installation is a cluster with its own scheduler, and the one of the chart beside it.
type installation struct {
	*cluster.Cluster
	m *manifest
	// own is the cluster's scheduler, replicas are the chart's.
	own      *cluster.Process
	replicas []*cluster.Process
}

// TestSecondScheduler installs charts/manifests/scheduler in a control plane with RBAC. The two
// replicas are processes with the Deployment's arguments, the ConfigMap's configuration and
// the ServiceAccount's token. Nothing that they do is forbidden.
func TestSecondScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	i := install(t, manifests)
	defer i.checkRights(t)
	if !t.Run("one replica leads, and both are ready", func(t *testing.T) { i.testLeader(t) }) {
		return
	}
	t.Run("each scheduler takes the Pods that name it", func(t *testing.T) { i.testPods(t) })
	t.Run("a gang waits and is released", func(t *testing.T) { i.testGang(t) })
	t.Run("preemption removes a Pod of lower priority", func(t *testing.T) { i.testPreemption(t) })
	t.Run("a volume is chosen for a claim that waits for its Pod", func(t *testing.T) { i.testVolume(t) })
	t.Run("a device is allocated", func(t *testing.T) { i.testDevice(t) })
	t.Run("metrics are for those that may see them", func(t *testing.T) { i.testMetrics(t) })
}

// checkRights reports what the replicas were refused.
func (i *installation) checkRights(t *testing.T) {
	for _, p := range i.replicas {
		for line := range strings.Lines(p.Logs()) {
			if strings.Contains(line, "forbidden") || strings.Contains(line, "Unauthorized") {
				t.Errorf("a replica logged %s", line)
			}
		}
	}
}

// install creates the objects of a file and starts the processes that the Deployment says.
func install(t *testing.T, file string) *installation {
	t.Helper()
	binary := cluster.BuildScheduler(t)
	i := &installation{Cluster: cluster.Start(t, nil), m: read(t, file)}
	i.own = i.RunScheduler(t, binary, "profiles: [{schedulerName: default-scheduler}]\n")
	if _, err := i.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(i.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range i.m.objects {
		gvks, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: fields}
		plural, _ := meta.UnsafeGuessKindToResource(gvks[0])
		of := client.Resource(plural).Namespace(u.GetNamespace())
		i.eventually(t, "the installation of "+u.GetName(), func(ctx context.Context) (bool, error) {
			_, err := of.Create(ctx, u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			// Of its own accord, the API server makes kube-system when it has started.
			return !apierrors.IsNotFound(err), err
		})
	}

	configuration := i.configuration(t)
	for range *i.m.deployment.Spec.Replicas {
		address := cluster.FreeAddress(t)
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		kubeconfig := i.kubeconfig(t, i.m.serviceAccount.Name)
		args := slices.Clone(i.m.deployment.Spec.Template.Spec.Containers[0].Args)
		args[slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config=") })] = "--config=" + configuration
		// In a cluster, the token and the address are found in the container. There, what
		// cannot be read of the API server's clients is only logged.
		args = append(args, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
			"--authentication-tolerate-lookup-failure=false", "--bind-address=127.0.0.1", "--secure-port="+port)
		i.replicas = append(i.replicas, cluster.Run(t, binary, address, args...))
	}
	return i
}

// configuration writes the scheduler's configuration as the ConfigMap has it, but for what
// a container has and this machine has elsewhere: the token, and the modules of the image.
func (i *installation) configuration(t *testing.T) string {
	t.Helper()
	var c map[string]any
	if err := yaml.UnmarshalStrict([]byte(i.m.configMap.Data["scheduler.yaml"]), &c); err != nil {
		t.Fatal(err)
	}
	c["clientConnection"] = map[string]any{"kubeconfig": i.kubeconfig(t, i.m.serviceAccount.Name)}
	for _, p := range c["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		module := p.(map[string]any)["args"].(map[string]any)["module"].(map[string]any)
		name, ok := strings.CutPrefix(module["file"].(string), "/plugins/")
		if !ok {
			t.Fatalf("%s is not in the image", module["file"])
		}
		file, err := guestbuild.Build(t.Context(), "../../../../examples/sched/"+strings.TrimSuffix(name, ".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		module["file"] = file
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// token returns a token of a service account of the scheduler's namespace.
func (i *installation) token(t *testing.T, account string) string {
	t.Helper()
	token, err := i.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// kubeconfig writes a file that connects as a service account.
func (i *installation) kubeconfig(t *testing.T, account string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
`, strings.TrimPrefix(i.Config.Host, "https://"), base64.StdEncoding.EncodeToString(i.Config.CAData), i.token(t, account))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// eventually waits until done. It fails the test on an error of done, and after a minute.
func (i *installation) eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// addNode makes a node that is ready and has cores, with a label "of".
func (i *installation) addNode(t *testing.T, name, of, cores string, label ...string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": of, corev1.LabelHostname: name}}}
	for ; len(label) > 0; label = label[2:] {
		node.Labels[label[0]] = label[1]
	}
	made, err := i.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status = corev1.NodeStatus{
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cores), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("100"),
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if _, err := i.Client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addPod makes a Pod of the chart's scheduler for nodes of a label "of".
func (i *installation) addPod(t *testing.T, name, of string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			SchedulerName: "kubewasm-scheduler", NodeSelector: map[string]string{"of": of},
			Containers:                    []corev1.Container{{Name: "c", Image: "example.com/app:1"}},
			TerminationGracePeriodSeconds: new(int64), // There is no kubelet to end it.
		},
	}
	// The plugin zone lets Pods of no zone run in those of its configuration.
	pod.Annotations["kubewasm.dev/zones"] = "eu-central-1a"
	if change != nil {
		change(pod)
	}
	if _, err := i.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bound waits until a Pod is bound, and returns where.
func (i *installation) bound(t *testing.T, name string) (node string) {
	t.Helper()
	var pod *corev1.Pod
	i.eventually(t, "the Pod "+name, func(ctx context.Context) (bool, error) {
		var err error
		if pod, err = i.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return pod.Spec.NodeName != "", nil
	})
	return pod.Spec.NodeName
}

func (i *installation) testLeader(t *testing.T) {
	i.eventually(t, "a leader", func(ctx context.Context) (bool, error) {
		lease, err := i.Client.CoordinationV1().Leases(namespace).Get(ctx, i.m.deployment.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "", err
	})
	for _, p := range i.replicas {
		i.eventually(t, "a replica", func(context.Context) (bool, error) {
			for _, probe := range []string{"/livez", "/readyz"} {
				if code, _ := get(t, p.Address, probe, ""); code != http.StatusOK {
					return false, nil
				}
			}
			return true, nil
		})
	}
}

func (i *installation) testPods(t *testing.T) {
	i.addNode(t, "zone-a", "zones", "4", corev1.LabelTopologyZone, "eu-central-1a")
	i.addNode(t, "zone-c", "zones", "4", corev1.LabelTopologyZone, "eu-central-1c")
	i.addPod(t, "second", "zones", func(p *corev1.Pod) { p.Annotations["kubewasm.dev/zones"] = "eu-central-1c" })
	i.addPod(t, "own", "zones", func(p *corev1.Pod) {
		p.Spec.SchedulerName = ""
		p.Annotations["kubewasm.dev/zones"] = "nowhere" // The cluster's scheduler does not look.
	})
	if got := i.bound(t, "second"); got != "zone-c" {
		t.Errorf("second is on %s", got)
	}
	i.bound(t, "own")
	for pod, want := range map[string]string{"second": "kubewasm-scheduler", "own": "default-scheduler"} {
		i.eventually(t, "the event of "+pod, func(ctx context.Context) (bool, error) {
			list, err := i.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for _, e := range list.Items {
				if e.Regarding.Name == pod && e.Reason == "Scheduled" {
					if e.ReportingController != want {
						t.Errorf("%s was scheduled by %s, want %s", pod, e.ReportingController, want)
					}
					return true, nil
				}
			}
			return false, nil
		})
	}
}

func (i *installation) testGang(t *testing.T) {
	i.addNode(t, "gang", "gang", "4", corev1.LabelTopologyZone, "eu-central-1a")
	member := func(p *corev1.Pod) {
		metav1.SetMetaDataLabel(&p.ObjectMeta, "kubewasm.dev/gang", "training")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "kubewasm.dev/gang-size", "2")
	}
	i.addPod(t, "member-1", "gang", member)
	i.eventually(t, "the event of the guest", func(ctx context.Context) (bool, error) {
		list, err := i.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == "WaitingForGang" }), err
	})
	i.addPod(t, "member-2", "gang", member)
	i.bound(t, "member-1")
	i.bound(t, "member-2")
}

func (i *installation) testPreemption(t *testing.T) {
	i.addNode(t, "small", "small", "1", corev1.LabelTopologyZone, "eu-central-1a")
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if _, err := i.Client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	core := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
	i.addPod(t, "low", "small", core)
	i.bound(t, "low")
	i.addPod(t, "high", "small", func(p *corev1.Pod) {
		core(p)
		p.Spec.PriorityClassName = "high"
	})
	i.bound(t, "high")
	if _, err := i.Client.CoreV1().Pods("default").Get(t.Context(), "low", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Pod of lower priority: %v", err)
	}
}

// testVolume plays the controller of persistent volumes, which binds a claim to the volume
// that the scheduler has chosen.
func (i *installation) testVolume(t *testing.T) {
	i.addNode(t, "disk", "disk", "4", corev1.LabelTopologyZone, "eu-central-1a")
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &waits}
	if _, err := i.Client.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "local",
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/disk"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "of", Operator: corev1.NodeSelectorOpIn, Values: []string{"disk"}}},
		}}}},
	}}
	volume, err := i.Client.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	volume.Status.Phase = corev1.VolumeAvailable
	if _, err := i.Client.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), volume, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	local := "local"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &local, AccessModes: volume.Spec.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	if _, err := i.Client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.addPod(t, "database", "disk", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
	i.eventually(t, "the claim of the volume", func(ctx context.Context) (bool, error) {
		volume, err := i.Client.CoreV1().PersistentVolumes().Get(ctx, "disk", metav1.GetOptions{})
		return err == nil && volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Name == "data", err
	})
	i.eventually(t, "the binding of the claim", func(ctx context.Context) (bool, error) {
		claim, err := i.Client.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		claim.Spec.VolumeName = "disk"
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
		claim, err = i.Client.CoreV1().PersistentVolumeClaims("default").Update(ctx, claim, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		claim.Status.Phase = corev1.ClaimBound
		_, err = i.Client.CoreV1().PersistentVolumeClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return true, err
	})
	i.bound(t, "database")
}

func (i *installation) testDevice(t *testing.T) {
	i.addNode(t, "gpu", "gpu", "4", corev1.LabelTopologyZone, "eu-central-1a")
	client := i.Client.ResourceV1()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}}
	if _, err := client.DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := "gpu"
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: "gpu", ResourceSliceCount: 1}, NodeName: &node,
		Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}}
	if _, err := client.ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}},
	}}}
	if _, err := client.ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.addPod(t, "training", "gpu", func(p *corev1.Pod) {
		name := "gpu"
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
	i.bound(t, "training")
	claim, err := client.ResourceClaims("default").Get(t.Context(), "gpu", metav1.GetOptions{})
	if err != nil || claim.Status.Allocation == nil || len(claim.Status.ReservedFor) != 1 {
		t.Errorf("claim %+v, %v", claim, err)
	}
}

// get returns the answer of a replica.
func get(t *testing.T, address, path, token string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // Its certificate is its own.
		DisableKeepAlives: true,
	}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (i *installation) testMetrics(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}}
	if _, err := i.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := i.token(t, account.Name)
	if code, _ := get(t, i.replicas[0].Address, "/metrics", token); code != http.StatusForbidden {
		t.Errorf("without a right: code %d", code)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if _, err := i.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}},
	}
	if _, err := i.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	called := false
	for _, p := range i.replicas {
		// A refusal is remembered for seconds.
		i.eventually(t, "the metrics", func(context.Context) (bool, error) {
			code, body := get(t, p.Address, "/metrics", token)
			called = called || strings.Contains(body, `kubewasm_calls_total{function="filter",plugin="kubewasm-scheduler/zone",result="ok"}`)
			return code == http.StatusOK, nil
		})
	}
	if !called {
		t.Error("no replica counted a call of the plugin zone")
	}
}
