package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Namespaces holds the namespaces of a cluster with their labels, as read by one list. It is for
// policies with a namespaceSelector that are used only in an audit. It is safe for use by several
// goroutines.
type Namespaces struct {
	client *client

	mu    sync.Mutex
	known map[string]namespace
}

type namespace struct {
	uid    string
	labels map[string]string
}

// NewNamespaces returns the namespaces of the cluster of config.
func NewNamespaces(config *rest.Config) (*Namespaces, error) {
	c, err := newClient(config, defaultQPS, defaultBurst)
	if err != nil {
		return nil, err
	}
	return &Namespaces{client: c}, nil
}

// Labels returns the labels of a namespace. It is an admission.NamespaceLabels. The first call
// lists the namespaces, and so does [Auditor.Run].
func (n *Namespaces) Labels(ctx context.Context, name string) (map[string]string, error) {
	n.mu.Lock()
	known := n.known
	n.mu.Unlock()
	if known == nil {
		var err error
		if known, err = n.refresh(ctx, n.client); err != nil {
			return nil, err
		}
	}
	found, ok := known[name]
	if !ok {
		return nil, fmt.Errorf("there is no namespace %q", name)
	}
	return found.labels, nil
}

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// refresh lists the namespaces.
func (n *Namespaces) refresh(ctx context.Context, c *client) (map[string]namespace, error) {
	known := map[string]namespace{}
	err := c.metadata(ctx, pathOf(namespaceResource, ""), "", func(m *metav1.ObjectMeta) {
		known[m.Name] = namespace{string(m.UID), m.Labels}
	})
	if err != nil {
		return nil, fmt.Errorf("list the namespaces: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = known
	return known, nil
}

// sum returns a digest of the labels.
func (n namespace) sum() [16]byte {
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(n.labels)) {
		text = fmt.Appendf(text, "%q=%q,", key, n.labels[key])
	}
	sum := sha256.Sum256(text)
	return [16]byte(sum[:16])
}

// metadata calls found with the metadata of each object of a resource: name, namespace, UID, labels
// and annotations.
func (c *client) metadata(ctx context.Context, path, selector string, found func(*metav1.ObjectMeta)) error {
	next := ""
	for {
		p, err := c.list(ctx, path, metadataOnly, selector, maxPageObjects, next)
		if expired(err) && goOn(err) != "" {
			next = goOn(err)
			continue
		}
		if err != nil {
			return err
		}
		for _, item := range p.items {
			m := metav1.ObjectMeta{}
			for o := json.Object(item); o.Next(); {
				if o.Key() == "metadata" {
					readMeta(o.Value(), &m)
				}
			}
			found(&m)
		}
		if next = p.next; next == "" {
			return nil
		}
	}
}

func readMeta(raw json.Value, to *metav1.ObjectMeta) {
	texts := func(v json.Value) map[string]string {
		of := map[string]string{}
		for m := json.Object(v); m.Next(); {
			of[string([]byte(m.Key()))] = clone(m.Value())
		}
		return of
	}
	for m := json.Object(raw); m.Next(); {
		switch m.Key() {
		case "name":
			to.Name = clone(m.Value())
		case "namespace":
			to.Namespace = clone(m.Value())
		case "uid":
			to.UID = types.UID(clone(m.Value()))
		case "labels":
			to.Labels = texts(m.Value())
		case "annotations":
			to.Annotations = texts(m.Value())
		}
	}
}
