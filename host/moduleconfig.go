package host

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/internal/loading"
)

// ModuleConfig names the module of a plugin: its origin and, optionally, its digest. One of File,
// HTTPS, OCI, ConfigMap, Secret and Bytes is set, unless the program sets Source. It is the field
// module wherever a configuration file names a module: of a plugin, a shadow, a member of a group.
type ModuleConfig struct {
	// File is the path of a file, see [File].
	File string `json:"file,omitempty"`
	// HTTPS is a URL, see [HTTPS]. It needs SHA256.
	HTTPS string `json:"https,omitempty"`
	// OCI is the reference of an artifact in a registry or an image layout, see package oci.
	OCI string `json:"oci,omitempty"`
	// ConfigMap and Secret are keys of objects in the cluster, see [ConfigMapKey].
	ConfigMap *ObjectKey `json:"configMap,omitempty"`
	Secret    *ObjectKey `json:"secret,omitempty"`
	// Bytes holds the module itself, in base64 in a file. The bytes must not change.
	Bytes []byte `json:"bytes,omitempty"`
	// Source is a source of the program, which takes precedence. A configuration file cannot name
	// one.
	Source Source `json:"-"`
	// SHA256 is the digest of the module in hexadecimal, uncompressed; empty accepts any. It is
	// checked before the module is parsed, after at most 64 MiB were decompressed.
	SHA256 string `json:"sha256,omitempty"`
	// Compiled grants compiled forms of the module, by their SHA-256 in hexadecimal: machine code
	// for a platform that a source has beside the module. It is not compiled again, is
	// trusted like the code of the host, and runs without bounds: grant only forms compiled by
	// those who build the host. It goes into [RuntimeConfig.CacheDir]. A granted form that cannot
	// be used costs a compilation and a line in the log. Empty means that none is read.
	Compiled []string `json:"compiled,omitempty"`
	// Follow replaces the module in service whenever the source holds a different one. It excludes
	// SHA256 and HTTPS, whose modules do not change.
	Follow bool `json:"follow,omitempty"`
}

// ObjectKey names a key of a ConfigMap or a Secret.
type ObjectKey struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key"`
}

// Sources resolve the modules that configurations name. The zero value knows files, URLs and
// bytes.
type Sources struct {
	// HTTPS bounds downloads.
	HTTPS HTTPSOptions
	// OCI returns the source of a reference, as the method Source of a client of package oci
	// does; nil has no access to registries.
	OCI func(reference string) Source
	// ConfigMaps and Secrets read objects of the cluster; nil has no access to them.
	ConfigMaps, Secrets ObjectGetter
	// Interval is the longest time between two checks of a followed source. Default
	// [DefaultFollowInterval].
	Interval time.Duration
}

// registry has the sources of a runtime.
type registry struct {
	mu    sync.Mutex
	known Sources
}

func (r *registry) all() Sources {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// AddSources adds the sources of s to those of the runtime, and replaces earlier ones: a program
// reaches registries and its cluster after it has a Runtime.
func (rt *Runtime) AddSources(s Sources) {
	r := rt.sources
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.HTTPS != (HTTPSOptions{}) {
		r.known.HTTPS = s.HTTPS
	}
	if s.OCI != nil {
		r.known.OCI = s.OCI
	}
	if s.ConfigMaps != nil {
		r.known.ConfigMaps = s.ConfigMaps
	}
	if s.Secrets != nil {
		r.known.Secrets = s.Secrets
	}
	r.known.Interval = cmp.Or(s.Interval, r.known.Interval)
}

// Source returns the source of a module, by the sources of the runtime. It returns the joined
// errors of [ModuleConfig.Check], the error of a loading.Checker, or an error if the program has no
// access to the origin. Their messages begin with path.
func (rt *Runtime) Source(m ModuleConfig, path string) (Source, error) {
	if errs := m.Check(path); len(errs) != 0 {
		return nil, errors.Join(errs...)
	}
	s := rt.sources.all()
	source, err := s.open(&m)
	if err != nil {
		return nil, fmt.Errorf("%s.%w", path, err)
	}
	if c, ok := source.(loading.Checker); ok {
		if err := c.Check(m.SHA256); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return source, nil
}

// IsZero reports whether m names no module.
func (m ModuleConfig) IsZero() bool {
	return m.Source == nil && len(m.origins()) == 0 && m.SHA256 == "" && len(m.Compiled) == 0 && !m.Follow
}

// origins returns the names of the members that name a source, and the names of those that are set.
func (m *ModuleConfig) origins() (set []string) {
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"file", m.File != ""}, {"https", m.HTTPS != ""}, {"oci", m.OCI != ""},
		{"configMap", m.ConfigMap != nil}, {"secret", m.Secret != nil}, {"bytes", len(m.Bytes) != 0},
	} {
		if o.set {
			set = append(set, o.name)
		}
	}
	return set
}

// Check returns every mistake that can be found without the sources, in messages that begin with
// path, such as "module".
func (m *ModuleConfig) Check(path string) (errs []error) {
	fail := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(path+format, args...))
		}
	}
	set := m.origins()
	fail(len(set) == 0 && m.Source == nil, " is missing: set one of file, https, oci, configMap, secret and bytes")
	fail(len(set) > 1 && m.Source == nil, " has %s, want one of them", strings.Join(set, " and "))
	fail(m.HTTPS != "" && m.SHA256 == "", ".https needs sha256")
	for _, key := range []struct {
		name string
		key  *ObjectKey
	}{{"configMap", m.ConfigMap}, {"secret", m.Secret}} {
		if k := key.key; k != nil {
			fail(k.Namespace == "", ".%s.namespace is empty", key.name)
			fail(k.Name == "", ".%s.name is empty", key.name)
			fail(k.Key == "", ".%s.key is empty", key.name)
		}
	}
	fail(m.SHA256 != "" && !isDigest(m.SHA256), ".sha256 %.80q is not 64 hexadecimal digits", m.SHA256)
	for i, granted := range m.Compiled {
		fail(!isDigest(granted), ".compiled[%d] %.80q is not 64 hexadecimal digits", i, granted)
	}
	fail(m.Follow && m.SHA256 != "", ".follow and sha256 exclude each other")
	fail(m.Follow && m.HTTPS != "", ".follow needs a file, oci, configMap or secret: the module of a URL is fixed by its sha256")
	return errs
}

// isDigest reports whether a text is a SHA-256 in hexadecimal.
func isDigest(text string) bool {
	digest, err := hex.DecodeString(text)
	return err == nil && len(digest) == 32
}

// open returns the source of a module that names one.
func (s *Sources) open(m *ModuleConfig) (Source, error) {
	switch {
	case m.Source != nil:
		return m.Source, nil
	case m.File != "":
		return File(m.File), nil
	case m.HTTPS != "":
		return HTTPS(m.HTTPS, s.HTTPS), nil
	case m.OCI != "" && s.OCI == nil:
		return nil, errors.New("oci: this program has no access to registries")
	case m.OCI != "":
		return s.OCI(m.OCI), nil
	case m.ConfigMap != nil && s.ConfigMaps == nil:
		return nil, errors.New("configMap: this program does not read ConfigMaps")
	case m.ConfigMap != nil:
		return ConfigMapKey(s.ConfigMaps, m.ConfigMap.Namespace, m.ConfigMap.Name, m.ConfigMap.Key), nil
	case m.Secret != nil && s.Secrets == nil:
		return nil, errors.New("secret: this program does not read Secrets")
	case m.Secret != nil:
		return secretKey(s.Secrets, m.Secret.Namespace, m.Secret.Name, m.Secret.Key), nil
	}
	return Bytes(m.Bytes), nil
}

// Objects are the objects of a resource that a program keeps for look-ups, in one namespace or
// in all. It is safe for use by several goroutines.
type Objects interface {
	// Snapshot returns the current objects, sorted by namespace and then by name, or an error with
	// the reason that they are unknown. It does not wait. Neither the Objects nor the caller may
	// change the returned slice and its objects.
	Snapshot() ([]*Object, error)
	// Wait returns nil when Snapshot would have no error. It returns an error for the first reason
	// that the objects cannot be read, or when ctx ends.
	Wait(ctx context.Context) error
	// Close ends the use of the objects.
	Close()
}

// Object is an object that guests look up.
type Object struct {
	Namespace, Name string
	Labels          map[string]string
	// JSON is the whole object, without managedFields.
	JSON []byte
}

// GetNamespace returns o.Namespace.
func (o *Object) GetNamespace() string { return o.Namespace }

// GetName returns o.Name.
func (o *Object) GetName() string { return o.Name }

// GetLabels returns o.Labels.
func (o *Object) GetLabels() map[string]string { return o.Labels }

// ObjectGrant names objects of the cluster that a guest may look up.
type ObjectGrant struct {
	// Resource is the resource as in a URL of the API: "v1/services",
	// "networking.k8s.io/v1/ingresses".
	Resource string `json:"resource"`
	// Namespaces are the namespaces whose objects the guest may see; nil means all. A guest that
	// lists others, or all although it may see some, fails: it would take part of a list for the
	// whole.
	Namespaces []string `json:"namespaces,omitempty"`
	// Index names labels by whose values the host finds objects without a look at the others: lists
	// with a selector such as "group=a" or "group in (a, b)" use it. It costs a map of all objects
	// with the label. Only schedulers have indexes.
	Index []ObjectIndex `json:"index,omitempty"`
	// Apply names the parts of the objects that the guest may have applied, with the grant apply of
	// schedulers: "status", "annotations" for all, or "annotations[example.com/key]" for one.
	Apply []string `json:"apply,omitempty"`
	// Query makes the objects values of metrics. The resource is then
	// "metrics.kubewasm.dev/v1/" with a name of lower-case letters, digits and hyphens after it. Only
	// schedulers and services have queries.
	Query *ObjectQuery `json:"query,omitempty"`
}

// ObjectQuery is the source of the values of an [ObjectGrant]: one of Prometheus, Custom and External.
// The host asks it each 15 seconds by its client of the API server. Guests choose none of it.
type ObjectQuery struct {
	// Prometheus is an expression whose value is a vector.
	Prometheus string `json:"prometheus,omitempty"`
	// Service is the namespace and the name of the Service of Prometheus, with a port, as in
	// "monitoring/prometheus:9090" or "monitoring/https:prometheus:9090". It is asked by the proxy of
	// the API server, which needs the right to get that Service's subresource proxy.
	Service string `json:"service,omitempty"`
	// Custom is a metric of custom.metrics.k8s.io about objects of a resource, as in
	// "pods/http_requests". Namespaces of the grant are required, unless the objects have none.
	Custom string `json:"custom,omitempty"`
	// External is a metric of external.metrics.k8s.io. Namespaces of the grant are required.
	External string `json:"external,omitempty"`
	// Selector selects objects of Custom, or series of External, by labels.
	Selector string `json:"selector,omitempty"`
	// Name and Namespace are the labels of series with the name and the namespace of the object for
	// which a value stands. Series without them are left out. Without Name there is one value, whose
	// object is named like the resource. Custom has neither.
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// ObjectIndex is an index of the objects of an [ObjectGrant].
type ObjectIndex struct {
	// Label is the key of a label.
	Label string `json:"label"`
}

// Mode decides whether the answers of a plugin count. Empty means [Enforce].
type Mode string

const (
	// Enforce is the mode in which the answers of a plugin count.
	Enforce Mode = "Enforce"
	// Monitor is the mode in which the answers of a plugin are logged and counted but have no
	// effect: for trying a plugin out.
	Monitor Mode = "Monitor"
)

// Check returns an error unless the mode is known or empty.
func (m Mode) Check() error {
	if m != "" && m != Enforce && m != Monitor {
		return fmt.Errorf("mode is %.80q, want Enforce or Monitor", string(m))
	}
	return nil
}
