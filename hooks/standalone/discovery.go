package standalone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// File returns the Discovery of a file with a PodList or a Pod, JSON or YAML,
// which is read anew each time: for a node without a kubelet, and for tests.
func File(path string) Discovery { return file(path) }

type file string

func (f file) Pods(context.Context) ([]Pod, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("discover pods: %w", err)
	}
	if b, err = yaml.YAMLToJSON(b); err != nil {
		return nil, fmt.Errorf("discover pods: %s: %w", string(f), err)
	}
	pods, err := parsePods(b)
	if err != nil {
		return nil, fmt.Errorf("discover pods: %s: %w", string(f), err)
	}
	return pods, nil
}

// parsePods parses a PodList or a Pod.
func parsePods(b []byte) ([]Pod, error) {
	var kind struct{ Kind string }
	if err := json.Unmarshal(b, &kind); err != nil {
		return nil, err
	}
	var list corev1.PodList
	switch kind.Kind {
	case "Pod":
		list.Items = make([]corev1.Pod, 1)
		if err := json.Unmarshal(b, &list.Items[0]); err != nil {
			return nil, err
		}
	case "PodList", "List":
		if err := json.Unmarshal(b, &list); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("kind is %q, want PodList or Pod", kind.Kind)
	}
	pods := make([]Pod, 0, len(list.Items))
	var errs []error
	for i := range list.Items {
		pod := &list.Items[i]
		if finished(pod) {
			continue
		}
		p := PodOf(pod)
		// It becomes a part of a path.
		if p.UID == "" || strings.Contains(p.UID, "/") || strings.HasPrefix(p.UID, ".") {
			errs = append(errs, fmt.Errorf("pod %s/%s has the UID %q", pod.Namespace, pod.Name, p.UID))
			continue
		}
		pods = append(pods, p)
	}
	return pods, errors.Join(errs...)
}

// KubeletConfig says how to ask the kubelet.
type KubeletConfig struct {
	// URL is that of the endpoint. Default https://127.0.0.1:10250/pods.
	URL string
	// TokenFile holds the bearer token of a service account that may get
	// nodes/proxy, read anew for each request since it is rotated. Empty sends
	// none.
	TokenFile string
	// CAFile holds the certificates that sign the kubelet's. Empty means the
	// system's.
	CAFile string
	// Insecure takes any certificate: kubelets often sign their own.
	Insecure bool
	// Timeout is how long an answer may take. Default 5 s.
	Timeout time.Duration
}

// maxPods is the most that is read of the kubelet's answer: a node has some
// hundred pods of some kilobytes.
const maxPods = 64 << 20

// Kubelet returns the Discovery of the kubelet's pods endpoint.
func Kubelet(cfg KubeletConfig) (Discovery, error) {
	if cfg.URL == "" {
		cfg.URL = "https://127.0.0.1:10250/pods"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	tlsConfig := &tls.Config{InsecureSkipVerify: cfg.Insecure}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kubelet: %s has no certificate", cfg.CAFile)
		}
	}
	if _, err := http.NewRequest(http.MethodGet, cfg.URL, nil); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig
	transport.Proxy = nil // It is on this node.
	return &kubelet{cfg: cfg, client: &http.Client{Transport: transport, Timeout: cfg.Timeout}}, nil
}

type kubelet struct {
	cfg    KubeletConfig
	client *http.Client
}

func (k *kubelet) Pods(ctx context.Context) ([]Pod, error) {
	pods, err := k.pods(ctx)
	if err != nil {
		return pods, fmt.Errorf("discover pods: kubelet: %w", err)
	}
	return pods, nil
}

func (k *kubelet) pods(ctx context.Context) ([]Pod, error) {
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPods+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxPods:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxPods)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %.200s", resp.Status, body)
	}
	return parsePods(body)
}
