package admissiontest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	adapter "github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// Convert converts the object in manifest, YAML or JSON with apiVersion and kind, to the apiVersion
// desired, such as "example.com/v1". It returns the object in JSON, with the members in the order
// of their names and no spaces, or the error that a user of the cluster would see. The test fails
// if the plugin does not convert.
func (a *Plugin) Convert(t testing.TB, manifest, desired string) (string, error) {
	t.Helper()
	object, gvk := objectOf(t, manifest)
	gv, err := schema.ParseGroupVersion(desired)
	if err != nil || gv.Group != gvk.Group {
		t.Fatalf("convert to %q: want a version of group %q", desired, gvk.Group)
	}
	if a.native != nil {
		converter, ok := a.native.Plugin.(admission.Converter)
		if !ok {
			t.Fatal(noConverter)
		}
		if gvk.GroupVersion() == gv {
			return canonical(t, object), nil
		}
		converted, err := nativehost.Guests.Convert(converter, object, desired)
		if err != nil {
			return "", err
		}
		return canonical(t, converted), nil
	}
	kind := metav1.GroupKind{Group: gvk.Group, Kind: gvk.Kind}
	p, err := adapter.Load(context.Background(), a.module.Runtime, converts(a.module.Config(a.config), kind))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	converted, err := adapter.NewEngine(p).Convert(context.Background(), &adapter.ConversionRequest{
		UID: "1", Desired: gv, Kind: gvk.Kind, Objects: [][]byte{object},
	})
	if err != nil {
		// The guest's message follows the host's description of the object.
		if _, reason, ok := strings.Cut(err.Error(), ", to "+desired+": "); ok {
			err = errors.New(reason)
		}
		return "", err
	}
	return canonical(t, converted[0]), nil
}

// RoundTrip converts the object in manifest to the apiVersion desired and back. The test fails if
// the result differs. It returns the object in version desired.
func (a *Plugin) RoundTrip(t testing.TB, manifest, desired string) string {
	t.Helper()
	object, gvk := objectOf(t, manifest)
	there, err := a.Convert(t, manifest, desired)
	if err != nil {
		t.Fatalf("convert to %s: %v", desired, err)
	}
	back, err := a.Convert(t, there, gvk.GroupVersion().String())
	if err != nil {
		t.Fatalf("convert back to %s: %v\nfrom %s", gvk.GroupVersion(), err, there)
	}
	if want := canonical(t, object); back != want {
		t.Errorf("the round trip changed the object:\n%s\nwant:\n%s\nin between:\n%s", back, want, there)
	}
	return there
}

const noConverter = "the plugin does not convert"

// onlyConverts reports whether a plugin converts and does nothing else.
func onlyConverts(plugin any) bool {
	_, validates := plugin.(admission.Validator)
	_, mutates := plugin.(admission.Mutator)
	_, converts := plugin.(admission.Converter)
	return converts && !validates && !mutates
}

// anyKind is the kind for plugins that are loaded only to test their configuration.
var anyKind = metav1.GroupKind{Group: "any.invalid", Kind: "Any"}

func converts(cfg host.Config, kind metav1.GroupKind) adapter.PluginConfig {
	// A plugin that also decides may look objects up outside of conversions.
	cfg.Grants = append(slices.Clone(cfg.Grants), host.GrantObjects)
	return adapter.PluginConfig{Config: cfg, Converts: []metav1.GroupKind{kind}}
}

// objectOf reads the only object of a manifest.
func objectOf(t testing.TB, text string) ([]byte, schema.GroupVersionKind) {
	t.Helper()
	objects, err := manifest.Read([]byte(text))
	if err != nil {
		t.Fatalf("read object: %v", err)
	}
	if len(objects.All) != 1 {
		t.Fatalf("read object: %d objects, want one", len(objects.All))
	}
	return objects.All[0].JSON, objects.All[0].GroupVersionKind()
}
