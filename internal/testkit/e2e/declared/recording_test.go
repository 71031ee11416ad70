package declared_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

// picturesVariable is the environment variable with the directory of the recording, which make pictures sets.
const picturesVariable = "KUBEWASM_PICTURES"

// TestRecording records the commands of docs/cluster.md, from an empty cluster to a Pod that is denied. They
// run against an API server, with the chart and the programs that it installs: this test stands in for the
// controller of Deployments, the scheduler, the kubelet and the network. ghcr.io is a registry on this machine.
func TestRecording(t *testing.T) {
	pictures := os.Getenv(picturesVariable)
	if pictures == "" {
		t.Skip(picturesVariable + " is not set: make pictures sets it")
	}
	text, err := os.ReadFile("../../../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	m := &machines{world: &world{T: t, ip: machine(t), dir: t.TempDir(), built: map[string]string{}}}
	m.repository, err = filepath.Abs("../../../..")
	m.must(err)
	kubectl, err := exec.LookPath("kubectl")
	m.must(err)
	m.Cluster = cluster.Start(t, map[string][]string{"enable-aggregator-routing": {"true"}})
	config := rest.CopyConfig(m.Config)
	config.QPS = -1
	m.Client, err = kubernetes.NewForConfig(config)
	m.must(err)

	// The directory in which the session begins, and its commands.
	dir, bin := filepath.Join(m.dir, "session"), filepath.Join(m.dir, "bin")
	for _, d := range []string{dir, bin} {
		m.must(os.Mkdir(d, 0o700))
	}
	m.must(os.Symlink(filepath.Join(m.repository, "charts"), filepath.Join(dir, "charts")))
	m.must(os.Symlink(kubectl, filepath.Join(bin, "kubectl")))
	m.must(os.Symlink(cluster.Build(t, "../../../../charts", "helm.sh/helm/v4/cmd/helm", "helm"), filepath.Join(bin, "helm")))
	for file, begin := range map[string]string{"values.yaml": "# values.yaml\n", "required-labels.yaml": "apiVersion: kubewasm.dev/v1alpha1\nkind: ClusterAdmissionPolicy\nmetadata: {name: required-labels}\n"} {
		_, block, ok := strings.Cut(string(text), "```yaml\n"+begin)
		if !ok {
			t.Fatalf("docs/cluster.md has no %s", file)
		}
		block, _, _ = strings.Cut(block, "```")
		m.must(os.WriteFile(filepath.Join(dir, file), []byte(begin+block), 0o600))
	}
	m.publish(dir)
	m.build("webhook")
	m.build("controller")

	ctx, cancel := context.WithCancel(t.Context())
	deployed, err := m.Client.AppsV1().Deployments(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	m.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for event := range deployed.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok && event.Type == "ADDED" {
				for i := range *d.Spec.Replicas {
					running.Go(func() { m.runs(ctx, d, i) })
				}
			}
		}
	})
	defer func() {
		cancel()
		running.Wait()
	}()

	_, section, _ := strings.Cut(string(text), "\n## Declare a plugin\n")
	section, _, _ = strings.Cut(section, "\n## ")
	c := &cast{begun: time.Now()}
	var applied, enforced time.Duration
	for _, command := range regexp.MustCompile(`(?m)^(kubectl|helm) .*`).FindAllString(section, -1) {
		began := time.Since(c.begun)
		fmt.Fprintf(c, "$ %s\n", command)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, c, c
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+m.Kubeconfig, "HOME="+m.dir)
		err := cmd.Run()
		switch last := strings.HasPrefix(command, "kubectl run "); {
		case err != nil && !last:
			t.Fatalf("%s: %v\n%s", command, err, c.out.String())
		case last && (err == nil || !strings.HasSuffix(c.out.String(), "denied the request: required-labels: metadata.labels[team]: Required value: every Pod must have it\n")):
			t.Fatalf("the Pod is not denied: %v\n%s", err, c.out.String())
		case strings.HasPrefix(command, "kubectl apply "):
			applied = began
		case strings.HasPrefix(command, "kubectl wait "):
			enforced = time.Since(c.begun)
		}
	}
	took := time.Since(c.begun)
	t.Logf("%s\nfrom an empty cluster until a Pod is denied: %s, from apply until it is enforced: %s", c.out.String(), took.Round(100*time.Millisecond), (enforced - applied).Round(100*time.Millisecond))
	if took > time.Minute {
		t.Errorf("it took %s, want a minute at most", took)
	}
	m.must(os.WriteFile(filepath.Join(pictures, "declare.cast"), c.file(t), 0o644))
}

// cast is a recording, version 2 of asciinema's format.
type cast struct {
	begun time.Time

	mu     sync.Mutex
	out    bytes.Buffer
	events []any
}

// Write adds what a command prints.
func (c *cast) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, []any{float64(time.Since(c.begun).Milliseconds()) / 1000, "o", strings.ReplaceAll(string(text), "\n", "\r\n")})
	return c.out.Write(text)
}

func (c *cast) file(t *testing.T) []byte {
	var file bytes.Buffer
	e := json.NewEncoder(&file)
	e.SetEscapeHTML(false)
	header := struct {
		Version   int    `json:"version"`
		Width     int    `json:"width"`
		Height    int    `json:"height"`
		Timestamp int64  `json:"timestamp"`
		Title     string `json:"title"`
	}{2, 94, bytes.Count(c.out.Bytes(), []byte("\n")) + 1, c.begun.Unix(), "Declare a plugin"}
	for _, line := range append([]any{header}, c.events...) {
		if err := e.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// machines stand in for the nodes of a cluster.
type machines struct {
	*world
	// registry is the address of the registry that stands in for ghcr.io.
	registry string
	mu       sync.Mutex
}

// publish starts a registry with the signed policy, and writes the public key into dir.
func (m *machines) publish(dir string) {
	m.Helper()
	_, port, err := net.SplitHostPort(cluster.FreeAddress(m.T))
	m.must(err)
	m.registry = "localhost:" + port
	m.start(cluster.Build(m.T, filepath.Join(m.repository, "host/oci/e2e"), "github.com/google/go-containerregistry/cmd/registry", "registry"), nil, "-port="+port)
	m.until("the registry serves", func() bool {
		resp, err := http.Get("http://" + m.registry + "/v2/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	m.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	m.must(err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	m.must(err)
	m.must(os.WriteFile(filepath.Join(m.dir, "acme.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	m.must(os.WriteFile(filepath.Join(dir, "acme.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600))
	module := guests.File(m.T, "../../../../examples/admission/required-labels")
	kubewasm := cluster.Build(m.T, filepath.Join(m.repository, "cmd/kubewasm"), ".", "kubewasm")
	if out, err := exec.CommandContext(m.Context(), kubewasm, "push", "--plain-http", m.registry, "--key", filepath.Join(m.dir, "acme.key"), module, m.registry+"/acme/required-labels:1.2").CombinedOutput(); err != nil {
		m.Fatalf("%v: %s", err, out)
	}
}

// runs runs a replica of a Deployment until ctx ends: its Pod and its process, with the arguments, the
// variables, the volumes and the rights of the Deployment. It is part of its Service when it is ready.
func (m *machines) runs(ctx context.Context, d *appsv1.Deployment, i int32) {
	fail := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			m.Errorf("%s: %v", d.Name, err)
		}
		return err != nil
	}
	c := &d.Spec.Template.Spec.Containers[0]
	pod, err := m.Client.CoreV1().Pods(d.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", d.Name, i), Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec,
	}, metav1.CreateOptions{})
	if fail(err) {
		return
	}
	files, err := m.mounts(ctx, d.Namespace, &pod.Spec, filepath.Join(m.dir, pod.Name))
	if fail(err) {
		return
	}
	kubeconfig, err := m.account(ctx, d.Namespace, pod.Spec.ServiceAccountName, filepath.Join(m.dir, pod.Name))
	if fail(err) {
		return
	}
	var args, env []string
	for _, arg := range c.Args {
		args = append(args, files.Replace(arg))
	}
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID), "spec.nodeName": "node"}[e.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, e.Name+"="+value)
	}
	listener, err := net.Listen("tcp", m.ip+":0")
	if fail(err) {
		return
	}
	address := listener.Addr().(*net.TCPAddr)
	listener.Close()
	args = append(args, "-kubeconfig="+kubeconfig)
	probe := "http://"
	if webhook := c.ReadinessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS; webhook {
		args, probe = append(args, "-addr="+address.String()), "https://"
	} else {
		args = append(args, "-metrics-addr=0", "-probe-addr="+address.String())
	}
	m.mu.Lock()
	m.start(m.build(c.Name), env, args...)
	m.mu.Unlock()
	pod.Status.Phase = corev1.PodRunning
	if _, err := m.Client.CoreV1().Pods(d.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); fail(err) {
		return
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} // As a kubelet.
	for ready := false; !ready; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		if resp, err := client.Get(probe + address.String() + c.ReadinessProbe.HTTPGet.Path); err == nil {
			resp.Body.Close()
			ready = resp.StatusCode == http.StatusOK
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if probe == "https://" {
		_, err = m.Client.DiscoveryV1().EndpointSlices(d.Namespace).Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Labels: map[string]string{discoveryv1.LabelServiceName: d.Name}}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{m.ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
			Ports:     []discoveryv1.EndpointPort{{Name: new(c.Ports[0].Name), Port: new(int32(address.Port)), Protocol: new(corev1.ProtocolTCP)}},
		}, metav1.CreateOptions{})
		if fail(err) {
			return
		}
	}
	now, err := m.Client.AppsV1().Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	if fail(err) {
		return
	}
	s := &now.Status
	s.ObservedGeneration, s.Replicas, s.UpdatedReplicas = now.Generation, *d.Spec.Replicas, *d.Spec.Replicas
	s.ReadyReplicas++
	s.AvailableReplicas++
	_, err = m.Client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	fail(err)
}

// mounts writes the volumes of a Pod into dir, and returns what leads to them in place of the container's
// paths. The registry of the session is found as if it were ghcr.io.
func (m *machines) mounts(ctx context.Context, namespace string, pod *corev1.PodSpec, dir string) (*strings.Replacer, error) {
	var paths []string
	volumes := map[string]map[string][]byte{}
	for _, v := range pod.Volumes {
		data := map[string][]byte{}
		switch {
		case v.Secret != nil:
			secret, err := m.Client.CoreV1().Secrets(namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			data = secret.Data
		case v.ConfigMap != nil:
			object, err := m.Client.CoreV1().ConfigMaps(namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			for name, text := range object.Data {
				data[name] = []byte(text)
			}
		}
		volumes[v.Name] = data
	}
	for _, mount := range pod.Containers[0].VolumeMounts {
		paths = append(paths, "="+mount.MountPath+"/", "="+filepath.Join(dir, mount.Name)+"/", " "+mount.MountPath+"/", " "+filepath.Join(dir, mount.Name)+"/")
	}
	files := strings.NewReplacer(paths...)
	for volume, data := range volumes {
		if err := os.MkdirAll(filepath.Join(dir, volume), 0o700); err != nil {
			return nil, err
		}
		for name, text := range data {
			if name == "registries.yaml" {
				text = fmt.Appendf([]byte(files.Replace(string(text))), "registries: [{host: ghcr.io, mirrors: [%q]}, {host: %q, plainHTTP: true}]\n", m.registry, m.registry)
			}
			if err := os.WriteFile(filepath.Join(dir, volume, name), text, 0o600); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// account writes a kubeconfig of a ServiceAccount into dir.
func (m *machines) account(ctx context.Context, namespace, name, dir string) (string, error) {
	token, err := m.Client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "kubeconfig")
	return file, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %s, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
`, strconv.Quote("https://"+strings.TrimPrefix(m.Config.Host, "https://")), base64.StdEncoding.EncodeToString(m.Config.CAData), token.Status.Token), 0o600)
}
