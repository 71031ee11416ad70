package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/sched"
)

// diffFlags are the flags of diff.
type diffFlags struct {
	kubeFlags
	files   []string
	printed *output
}

// objectDiff is what an object of a file would change in the cluster.
type objectDiff struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Exists    bool     `json:"exists"`
	Mistakes  []string `json:"mistakes,omitempty"`
	Diff      string   `json:"diff,omitempty"`
}

func diffObjects(t *tool, flags *pflag.FlagSet) action {
	f := &diffFlags{printed: outputFlags(flags)}
	f.declare(flags)
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "")
	return func(ctx context.Context, args []string) error {
		if len(args) != 0 || len(f.files) == 0 {
			return &usageError{errors.New("diff: name the objects with -f, files or directories")}
		}
		objects, err := t.readPlugins(ctx, f.files)
		if err != nil {
			return fmt.Errorf("diff: %w", err)
		}
		c, err := f.cluster()
		if err != nil {
			return fmt.Errorf("diff: %w", err)
		}
		if f.namespace != "" {
			c.namespace = f.namespace
		}
		var list []objectDiff
		for _, o := range objects {
			d, err := c.difference(ctx, o)
			if err != nil {
				return fmt.Errorf("diff: %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			list = append(list, d)
		}
		if err := f.printed.print(t, result{value: list, text: func(w io.Writer) error { return writeDifferences(w, list) }}); err != nil {
			return err
		}
		for _, d := range list {
			if d.Diff != "" || len(d.Mistakes) != 0 {
				return errRefused
			}
		}
		return nil
	}
}

// readPlugins returns the objects of files that declare plugins. Others are skipped with a warning.
func (t *tool) readPlugins(ctx context.Context, files []string) (list []*unstructured.Unstructured, err error) {
	objects, err := t.readObjects(ctx, files)
	if err != nil {
		return nil, err
	}
	for _, o := range objects.All {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.JSON); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
		}
		if u.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
			t.warn(fmt.Errorf("%s %s is not of %s and is left out", u.GetKind(), u.GetName(), v1alpha1.GroupVersion.Group))
			continue
		}
		list = append(list, u)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there are no objects of %s in %s", v1alpha1.GroupVersion.Group, strings.Join(files, ", "))
	}
	return list, nil
}

// difference compares an object with that of the cluster, after what kubectl apply would send as a dry
// run: what it shows is what the API server would store.
func (c *clusterPlugins) difference(ctx context.Context, u *unstructured.Unstructured) (objectDiff, error) {
	d := objectDiff{Kind: u.GetKind(), Name: u.GetName()}
	kind, err := c.kind(u.GetKind())
	if err != nil {
		return d, err
	}
	if kind.Namespaced {
		if u.GetNamespace() == "" {
			u.SetNamespace(c.namespace)
		}
		d.Namespace = u.GetNamespace()
	}
	d.Mistakes = mistakesOf(u)
	of := c.resource(kind, d.Namespace)
	live, err := of.Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return d, err
	default:
		d.Exists = true
	}
	next, err := apply(ctx, of, u, live)
	if apierrors.IsInternalError(err) || err != nil && len(d.Mistakes) != 0 {
		// An apply stops at a member that the schema does not have, which the mistakes name: the
		// other mistakes come from a request that drops it.
		next, err = write(ctx, of, u, live)
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		d.Mistakes = append(d.Mistakes, err.Error())
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d.Diff, err = unified(live, next)
	return d, err
}

// apply sends as a dry run what kubectl apply would: for an object with what was applied last in its
// annotation, a patch that also removes what the object has no more, and otherwise a server-side apply
// by its manager.
func apply(ctx context.Context, of dynamic.ResourceInterface, u, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	dryRun := []string{metav1.DryRunAll}
	last := ""
	if live != nil {
		last = live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	}
	if last == "" {
		force := true
		return of.Patch(ctx, u.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "kubectl", Force: &force, DryRun: dryRun})
	}
	is, err := live.MarshalJSON()
	if err != nil {
		return nil, err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(last), text, is)
	if err != nil {
		return nil, fmt.Errorf("compare it with what was applied last: %w", err)
	}
	return of.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-client-side-apply", DryRun: dryRun})
}

// write creates an object or replaces the spec of one, as a dry run. Members that the schema does not
// have are dropped.
func write(ctx context.Context, of dynamic.ResourceInterface, u, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	dryRun := []string{metav1.DryRunAll}
	if live == nil {
		return of.Create(ctx, u, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationIgnore})
	}
	next := live.DeepCopy()
	next.Object["spec"] = u.Object["spec"]
	return of.Update(ctx, next, metav1.UpdateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationIgnore})
}

// unified returns the unified diff of what users write of two objects.
func unified(before, after *unstructured.Unstructured) (string, error) {
	var texts [2]string
	for i, u := range []*unstructured.Unstructured{before, after} {
		if u == nil {
			continue
		}
		u = u.DeepCopy()
		u.SetManagedFields(nil)
		annotations := u.GetAnnotations()
		if delete(annotations, corev1.LastAppliedConfigAnnotation); len(annotations) == 0 {
			annotations = nil
		}
		u.SetAnnotations(annotations)
		for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		delete(u.Object, "status")
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return "", err
		}
		texts[i] = string(text)
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(texts[0]), B: difflib.SplitLines(texts[1]), FromFile: "cluster", ToFile: "file", Context: 3,
	})
}

// mistakesOf returns the mistakes in the spec of an object that the program for it would report.
func mistakesOf(u *unstructured.Unstructured) []string {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	var to any
	own := slices.Clone(clusterplugins.Controlled) // The members that only objects have.
	switch u.GetKind() {
	case "ClusterAdmissionPolicy", "AdmissionPolicy":
		to = &manage.PluginSpec{}
	case "NodeHook":
		to, own = &hooks.PluginConfig{}, append(own, "nodeSelector")
	case "SchedulerPlugin":
		to, own = &sched.PluginConfig{}, append(own, "schedulers")
	default:
		return nil
	}
	var from []clusterplugins.GuestConfigFrom
	list, err := json.Marshal(spec[clusterplugins.ConfigFrom])
	if err == nil && spec[clusterplugins.ConfigFrom] != nil {
		err = configfile.JSON(list, &from)
	}
	if err != nil {
		return []string{"spec: " + clusterplugins.ConfigFrom + ": " + err.Error()}
	}
	for _, field := range append(own, clusterplugins.ConfigFrom) {
		delete(spec, field)
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = configfile.JSON(text, to)
	}
	var several interface{ Unwrap() []error }
	switch {
	case err == nil && !reflect.ValueOf(to).Elem().FieldByName("Name").IsZero():
		return []string{"spec: the name is that of the object"}
	case err == nil:
		return nil
	case errors.As(err, &several):
		var texts []string
		for _, e := range several.Unwrap() {
			texts = append(texts, "spec: "+e.Error())
		}
		return texts
	}
	return []string{"spec: " + err.Error()}
}

func writeDifferences(w io.Writer, list []objectDiff) error {
	var b bytes.Buffer
	for _, d := range list {
		name := strings.TrimPrefix(d.Namespace+"/"+d.Name, "/")
		switch {
		case d.Diff == "" && len(d.Mistakes) == 0:
			fmt.Fprintf(&b, "%s %s: no difference\n", d.Kind, name)
		case d.Exists:
			fmt.Fprintf(&b, "%s %s: changed\n", d.Kind, name)
		default:
			fmt.Fprintf(&b, "%s %s: new\n", d.Kind, name)
		}
		for _, m := range d.Mistakes {
			fmt.Fprintf(&b, "  mistake: %s\n", foreign.Lines(m))
		}
		b.WriteString(d.Diff)
	}
	_, err := w.Write(b.Bytes())
	return err
}
