package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// Sources determines the modules that policies may name. Since whoever may write a ScalePolicy
// names its module, the operator or the namespace bounds each kind of source.
type Sources struct {
	// Directory is the directory of the modules that policies name as files; empty allows no files.
	Directory string
	// ConfigMaps reads ConfigMaps of the namespaces of policies; nil allows none.
	ConfigMaps host.ObjectGetter
	// Registries is the client for registries, with rules of trust. Policies may name only
	// artifacts of repositories with a rule, even if the reference has a digest: a digest proves
	// that nothing was replaced, but not the author. Nil allows none.
	Registries *oci.Client
}

// Source returns the source of a guest of a policy in a namespace. The error names the part that
// the policy may not use.
func (s *Sources) Source(namespace string, guest *v1alpha1.Guest) (host.Source, error) {
	switch {
	case guest.ConfigMap != nil:
		if s.ConfigMaps == nil {
			return nil, errors.New("guest.configMap: this controller does not read ConfigMaps")
		}
		return host.ConfigMapKey(s.ConfigMaps, namespace, guest.ConfigMap.Name, guest.ConfigMap.Key), nil
	case guest.File != "":
		if s.Directory == "" {
			return nil, errors.New("guest.file: this controller does not read files")
		}
		if !filepath.IsLocal(guest.File) {
			return nil, fmt.Errorf("guest.file: %q is not below the directory of modules", guest.File)
		}
		return host.File(filepath.Join(s.Directory, guest.File)), nil
	case guest.OCI != "":
		if s.Registries == nil {
			return nil, errors.New("guest.oci: this controller does not use registries")
		}
		ref, err := oci.ParseReference(guest.OCI)
		if err != nil {
			return nil, fmt.Errorf("guest.oci: %w", err)
		}
		if ref.Layout != "" {
			return nil, errors.New("guest.oci: a policy cannot name a layout, which is a file of the controller")
		}
		trusted, err := s.Registries.HasRule(ref)
		if err != nil {
			return nil, fmt.Errorf("guest.oci: %w", err)
		}
		if !trusted {
			return nil, fmt.Errorf("guest.oci: the operator trusts no artifacts of %s", ref.Name())
		}
		return s.Registries.Source(guest.OCI), nil
	}
	return nil, errors.New("guest: one of configMap, file and oci is required")
}

// configMaps reads ConfigMaps from the API server and watches their metadata, so that the cache of
// the controller holds no modules.
type configMaps struct {
	reader client.Reader
	cache  ctrlcache.Cache
}

var _ host.ObjectWatcher = configMaps{}

// ConfigMaps returns a source that reads ConfigMaps by reader, which should have no cache, and
// notices their changes by the informers of c.
func ConfigMaps(reader client.Reader, c ctrlcache.Cache) host.ObjectWatcher {
	return configMaps{reader, c}
}

// Get implements [host.ObjectGetter].
func (c configMaps) Get(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	object := &corev1.ConfigMap{}
	if err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, err
	}
	data := object.BinaryData
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

// Watch implements [host.ObjectWatcher].
func (c configMaps) Watch(ctx context.Context, namespace, name string, changed func()) error {
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	informer, err := c.cache.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	see := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if m, ok := o.(metav1.Object); ok && m.GetNamespace() == namespace && m.GetName() == name {
			changed()
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, o any) { see(o) }, DeleteFunc: see,
	})
	if err != nil {
		return err
	}
	changed()
	<-ctx.Done()
	return informer.RemoveEventHandler(registration)
}
