package standalone

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/cut"
)

// File returns the Discovery of a file with a PodList or a Pod, in JSON or YAML. It reads the file
// again each time. It is for a node without a kubelet, and for tests. It is [Partial].
func File(path string) Discovery { return file(path) }

type file string

var _, _ Partial = file(""), (*kubelet)(nil)

// ofRuntime are the fields of a request that only the runtime knows: no object has the annotations
// of a container, or the values of its environment from elsewhere or from the image.
var ofRuntime = []string{"container_annotations", "container_envs"}

func (file) Unknown() (string, []string) { return "a file of pods", ofRuntime }

func (*kubelet) Unknown() (string, []string) { return "the kubelet's pods endpoint", ofRuntime }

func (f file) Pods(context.Context) ([]Pod, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("discover pods: %w", err)
	}
	if !json.Valid(b) {
		if b, err = yaml.YAMLToJSON(b); err != nil {
			return nil, fmt.Errorf("discover pods: %s: %w", string(f), err)
		}
	}
	pods, err := new(podList).read(bytes.NewReader(b))
	if err != nil {
		return pods, fmt.Errorf("discover pods: %s: %w", string(f), err)
	}
	return pods, nil
}

// object is the part of a Pod that is used. Other fields, which are most of it, are skipped without
// being kept.
type object struct {
	Metadata struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		UID         types.UID         `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		InitContainers []container                  `json:"initContainers"`
		Containers     []container                  `json:"containers"`
		Ephemeral      []container                  `json:"ephemeralContainers"`
		Overhead       corev1.ResourceList          `json:"overhead"`
		Resources      *corev1.ResourceRequirements `json:"resources"`
		Priority       *int32                       `json:"priority"`
	} `json:"spec"`
	Status struct {
		Conditions            []corev1.PodCondition    `json:"conditions"`
		Phase                 corev1.PodPhase          `json:"phase"`
		QOSClass              corev1.PodQOSClass       `json:"qosClass"`
		InitContainerStatuses []corev1.ContainerStatus `json:"initContainerStatuses"`
		ContainerStatuses     []corev1.ContainerStatus `json:"containerStatuses"`
		EphemeralStatuses     []corev1.ContainerStatus `json:"ephemeralContainerStatuses"`
		Claims                claims                   `json:"nodeAllocatableResourceClaimStatuses"`
	} `json:"status"`
}

type container struct {
	Name      string                      `json:"name"`
	Env       []corev1.EnvVar             `json:"env"`
	Resources corev1.ResourceRequirements `json:"resources"`
	// RestartPolicy distinguishes sidecars from init containers that end.
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
}

// pod returns the object in the type of the API.
func (o *object) pod() *corev1.Pod {
	containers := func(list []container) (of []corev1.Container) {
		for _, c := range list {
			of = append(of, corev1.Container{Name: c.Name, Env: c.Env, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
		}
		return of
	}
	var ephemeral []corev1.EphemeralContainer
	for _, c := range containers(o.Spec.Ephemeral) {
		ephemeral = append(ephemeral, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID, Labels: o.Metadata.Labels, Annotations: o.Metadata.Annotations,
		},
		Spec: corev1.PodSpec{
			InitContainers: containers(o.Spec.InitContainers), Containers: containers(o.Spec.Containers), EphemeralContainers: ephemeral, Overhead: o.Spec.Overhead, Resources: o.Spec.Resources, Priority: o.Spec.Priority,
		},
		Status: corev1.PodStatus{
			Phase: o.Status.Phase, QOSClass: o.Status.QOSClass, Conditions: o.Status.Conditions,
			InitContainerStatuses: o.Status.InitContainerStatuses, ContainerStatuses: o.Status.ContainerStatuses, EphemeralContainerStatuses: o.Status.EphemeralStatuses,
		},
	}
}

// KubeletConfig configures the Discovery of [Kubelet].
type KubeletConfig struct {
	// URL is the URL of the endpoint. Default https://127.0.0.1:10250/pods.
	URL string
	// TokenFile holds the bearer token of a service account that may get nodes/pods, read again for
	// each request since it is rotated. Empty sends none.
	TokenFile string
	// CAFile holds the certificates that sign the kubelet's certificate, or that certificate
	// itself, read again for each connection. Empty means the certificates of the system.
	CAFile string
	// ServerName is the required name in the kubelet's certificate. Default the host of URL. A
	// kubelet's certificate has the name and the addresses of its node, and neither localhost nor
	// 127.0.0.1.
	ServerName string
	// Timeout bounds the time of an answer. Default 5 s.
	Timeout time.Duration
}

// maxPods bounds the kubelet's answer, in bytes: a node has a few hundred pods of a few kilobytes.
const maxPods = 64 << 20

// Kubelet returns the Discovery of the kubelet's pods endpoint. It is [Partial]: plugins that read
// the annotations or the environment of containers need the Discovery of the CRI.
func Kubelet(cfg KubeletConfig) (Discovery, error) {
	if cfg.URL == "" {
		cfg.URL = "https://127.0.0.1:10250/pods"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.CAFile != "" {
		if _, err := readCAs(cfg.CAFile); err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
	}
	if _, err := http.NewRequest(http.MethodGet, cfg.URL, nil); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // The kubelet is on this node.
	transport.DialTLSContext = cfg.dial
	return &kubelet{cfg: cfg, client: &http.Client{Transport: transport, Timeout: cfg.Timeout}}, nil
}

// readCAs reads certificates in PEM.
func readCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

// dial connects to the kubelet, and verifies its certificate by the current contents of CAFile.
func (c *KubeletConfig) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: c.ServerName}}
	if c.CAFile != "" {
		var err error
		if dialer.Config.RootCAs, err = readCAs(c.CAFile); err != nil {
			return nil, err
		}
	}
	conn, err := dialer.DialContext(ctx, network, addr)
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return nil, fmt.Errorf("%w: the CA file has to sign the kubelet's certificate or be it, and the server name to be a name in it", err)
	}
	return conn, err
}

type kubelet struct {
	cfg    KubeletConfig
	client *http.Client

	mu   sync.Mutex
	list podList
}

func (k *kubelet) Pods(ctx context.Context) (pods []Pod, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("discover pods: kubelet: %w", err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	if k.cfg.TokenFile != "" {
		token, err := os.ReadFile(k.cfg.TokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body := &limited{r: resp.Body, left: maxPods}
	if resp.StatusCode != http.StatusOK {
		why := make([]byte, 256)
		n, _ := body.Read(why)
		return nil, fmt.Errorf("%s: %s", resp.Status, cut.Text(why[:n], 200))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if pods, err = k.list.read(body); err != nil {
		return nil, err
	}
	io.CopyN(io.Discard, body, 1<<10) // Reads the end of the answer, so that the connection is reused.
	return pods, nil
}

// limited returns an error after a number of bytes.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxPods)
	}
	n, err := l.r.Read(b[:min(len(b), l.left)])
	l.left -= n
	return n, err
}
