package rollouts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

const (
	// defaultHistory is the number of revisions that are kept beside those in use.
	defaultHistory = 10
	// maxSpecBytes bounds the spec of a revision: the status has up to two of them. Namespaces may have
	// many plugins.
	maxSpecBytes, maxSpecBytesOfNamespace = 256 << 10, 32 << 10
	// uidLabel has the uid of the plugin.
	uidLabel = "kubewasm.dev/plugin-uid"
)

// errTooLarge is the error of a spec without revisions.
var errTooLarge = errors.New("revisions are not kept of a spec of this size: put the module into a registry")

// content returns the spec of a revision, in one form for equal ones, and the hash of it and the pin.
func content(p plugin.Plugin, pin string) (spec []byte, hash string, err error) {
	d := json.NewDecoder(bytes.NewReader(p.Raw.Raw))
	d.UseNumber()
	var members map[string]any
	if err := d.Decode(&members); err != nil {
		return nil, "", fmt.Errorf("spec: %w", err)
	}
	for _, name := range append([]string{"enabled"}, clusterplugins.Controlled...) {
		delete(members, name)
	}
	if spec, err = json.Marshal(members); err != nil {
		return nil, "", err
	}
	limit := maxSpecBytes
	if p.Key.Namespace != "" {
		limit = maxSpecBytesOfNamespace
	}
	if len(spec) > limit {
		return nil, "", fmt.Errorf("%w: it has %d bytes, more than %d", errTooLarge, len(spec), limit)
	}
	sum := sha256.Sum256(append(slices.Clone(spec), "\n"+pin...))
	return spec, hex.EncodeToString(sum[:]), nil
}

// history are the revisions of a plugin, by their numbers.
type history map[int64]*v1alpha1.PluginRevision

// namespaceOf returns the namespace of the revisions of a plugin.
func (r *Reconciler) namespaceOf(p plugin.Plugin) string {
	if p.Key.Namespace != "" {
		return p.Key.Namespace
	}
	return r.Namespace
}

// history reads the revisions of a plugin. Those whose spec somebody has changed are left out.
func (r *Reconciler) history(ctx context.Context, p plugin.Plugin) (history, error) {
	list := &v1alpha1.PluginRevisionList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(r.namespaceOf(p)), client.MatchingLabels{uidLabel: string(p.GetUID())}); err != nil {
		return nil, err
	}
	all := history{}
	for i := range list.Items {
		if revision := &list.Items[i]; genuine(p, revision) {
			all[revision.Revision] = revision
		}
	}
	return all, nil
}

// nameOf returns the name of a revision.
func nameOf(p plugin.Plugin, number int64) string {
	return fmt.Sprintf("%s.%s.%d", strings.ToLower(p.Key.Kind), p.Key.Name, number)
}

// genuine reports whether an object is a revision of a plugin as it was written.
func genuine(p plugin.Plugin, revision *v1alpha1.PluginRevision) bool {
	of := p
	of.Raw = &revision.Spec
	_, hash, err := content(of, revision.Pin)
	return err == nil && hash == revision.Hash && revision.Plugin == p.Key.Name && revision.PluginKind == p.Key.Kind &&
		revision.Revision > 0 && revision.Name == nameOf(p, revision.Revision) && revision.Labels[uidLabel] == string(p.GetUID())
}

// numbers returns the numbers of the revisions, for people.
func (h history) numbers() string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(h)) {
		all = append(all, fmt.Sprint(n))
	}
	return strings.Join(all, ", ")
}

// ref returns a revision for processes, nil if there is none of the number.
func (h history) ref(number int64) *v1alpha1.RevisionRef {
	revision := h[number]
	if revision == nil {
		return nil
	}
	return &v1alpha1.RevisionRef{Revision: number, Generation: revision.Generation, Spec: revision.Spec.DeepCopy(), Pin: revision.Pin}
}

// record returns the revision of the plugin's spec, and writes it if there is none.
func (r *Reconciler) record(ctx context.Context, p plugin.Plugin, pin string, all history) (*v1alpha1.RevisionRef, error) {
	spec, hash, err := content(p, pin)
	if err != nil {
		return nil, err
	}
	last := int64(0)
	if s := p.Status.Rollout; s != nil {
		last = max(s.Wanted, s.Failed)
		for _, ref := range []*v1alpha1.RevisionRef{s.Stable, s.Candidate} {
			if ref != nil {
				last = max(last, ref.Revision)
			}
		}
	}
	for number, revision := range all {
		if revision.Hash == hash {
			return all.ref(number), nil
		}
		last = max(last, number)
	}
	revision := &v1alpha1.PluginRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespaceOf(p), Name: nameOf(p, last+1),
			Labels: map[string]string{uidLabel: string(p.GetUID())},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: p.Key.Kind, Name: p.Key.Name, UID: p.GetUID(), Controller: ptr.To(true),
			}},
		},
		PluginKind: p.Key.Kind, Plugin: p.Key.Name, Revision: last + 1, Generation: p.GetGeneration(),
		Spec: runtime.RawExtension{Raw: spec}, Pin: pin, Hash: hash,
	}
	err = r.Client.Create(ctx, revision)
	if apierrors.IsAlreadyExists(err) {
		err = r.taken(ctx, p, revision)
	}
	if err != nil {
		return nil, err
	}
	all[revision.Revision] = revision
	return all.ref(revision.Revision), nil
}

// taken removes an object with the name of a revision if it is no revision of the plugin, such as one
// of an earlier plugin of the name, or one that somebody has changed. The error is a conflict.
func (r *Reconciler) taken(ctx context.Context, p plugin.Plugin, revision *v1alpha1.PluginRevision) error {
	is := &v1alpha1.PluginRevision{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(revision), is); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !genuine(p, is) {
		if err := r.Client.Delete(ctx, is, client.Preconditions{UID: &is.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "pluginrevisions"}, revision.Name, errors.New("another controller has written it"))
}

// trim deletes the oldest revisions above a limit, but none that the status has, or a process, and not
// the newest, by whose number the next one is counted.
func (r *Reconciler) trim(ctx context.Context, p plugin.Plugin, all history, limit int, s *v1alpha1.RolloutStatus) error {
	used := map[int64]bool{s.Wanted: true}
	for _, ref := range []*v1alpha1.RevisionRef{s.Stable, s.Candidate} {
		if ref != nil {
			used[ref.Revision] = true
		}
	}
	served := map[int64]bool{}
	for _, report := range r.Processes.Reports.All(plugin.Component(p.Key.Kind)) {
		if state, ok := report.State(p.Key, p.GetUID()); ok {
			served[state.Revision] = true
		}
	}
	numbers := slices.Sorted(maps.Keys(all))
	if n := len(numbers); n != 0 {
		used[numbers[n-1]] = true
	}
	numbers = slices.DeleteFunc(numbers, func(n int64) bool { return used[n] })
	numbers = numbers[:max(0, len(numbers)-limit)]
	r.long.Delete(p.Key)
	var errs []error
	for _, n := range numbers {
		if served[n] {
			r.long.Store(p.Key, true)
			continue
		}
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, all[n])))
	}
	return errors.Join(errs...)
}
