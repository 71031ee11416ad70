package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubewasm/kubewasm/internal/json"
)

// checkConverted returns an error if an API server would not accept converted as object in the
// version desired. It follows validateConvertedObject and restoreObjectMeta of
// k8s.io/apiextensions-apiserver/pkg/apiserver/conversion, with two exceptions. A change of
// metadata other than labels and annotations is an error, while an API server drops it; a member
// that occurs twice is an error as well. A null in the metadata counts as missing.
func checkConverted(ctx context.Context, object, converted []byte, desired string) error {
	if !json.Valid(converted) || json.Value(converted).Kind() != json.KindObject {
		return errors.New("the converted object is not a JSON object")
	}
	was, err := membersOf(object, "")
	if err != nil {
		return fmt.Errorf("the object to convert: %w", err)
	}
	is, err := membersOf(converted, "")
	if err != nil {
		return err
	}
	if err := same("apiVersion", is["apiVersion"], desired); err != nil {
		return err
	}
	if err := same("kind", is["kind"], was["kind"].String()); err != nil {
		return err
	}
	oldMeta, newMeta := was["metadata"], is["metadata"]
	if bytes.Equal(oldMeta, newMeta) && newMeta.Kind() == json.KindObject {
		return nil
	}
	if newMeta.Kind() != json.KindObject {
		return fmt.Errorf("metadata is %s, want object", newMeta.Kind())
	}
	old, err := membersOf(oldMeta, "metadata.")
	if err != nil {
		return fmt.Errorf("the object to convert: %w", err)
	}
	current, err := membersOf(newMeta, "metadata.")
	if err != nil {
		return err
	}
	for _, key := range namesOf(old, current) {
		if key == "labels" || key == "annotations" {
			continue
		}
		a, b := old[key], current[key]
		if nothingIn(a) && nothingIn(b) {
			continue
		}
		text, isText := a.Text()
		if key == "name" || key == "namespace" || key == "uid" {
			if err := same("metadata."+key, b, text); err != nil {
				return err
			}
			continue
		}
		equal := isText && text == b.String() && b.Kind() == a.Kind()
		if !equal && a != nil && b != nil {
			if equal, err = until(ctx).Equal(a, b); err != nil {
				return fmt.Errorf("compare metadata.%.100s: %w", key, err)
			}
		}
		if !equal {
			return fmt.Errorf("metadata.%s has changed: a conversion may change labels and annotations", oneLine(fmt.Sprintf("%.100s", key)))
		}
	}
	for _, key := range []string{"labels", "annotations"} {
		if err := checkStrings(key, old[key], current[key]); err != nil {
			return err
		}
	}
	return nil
}

// nothingIn reports whether v is missing or null.
func nothingIn(v json.Value) bool { return v == nil || v.IsNull() }

// same returns an error if v is not the text want.
func same(name string, v json.Value, want string) error {
	if got, ok := v.Text(); !ok || got != want {
		if !ok {
			return fmt.Errorf("%s is %s, want %q", name, v.Kind(), want)
		}
		return fmt.Errorf("%s is %.300q, want %q", name, got, want)
	}
	return nil
}

// membersOf returns the members of an object in JSON, none if it is missing or null. If a member
// occurs twice, the error names it with prefix.
func membersOf(raw json.Value, prefix string) (map[string]json.Value, error) {
	members := map[string]json.Value{}
	for m := json.Object(raw); m.Next(); {
		if _, twice := members[m.Key()]; twice {
			return nil, fmt.Errorf("%s%s occurs twice", prefix, oneLine(fmt.Sprintf("%.100s", m.Key())))
		}
		members[m.Key()] = m.Value()
	}
	return members, nil
}

// namesOf returns the names of the members of a and b, sorted.
func namesOf(a, b map[string]json.Value) []string {
	names := make([]string, 0, len(a)+len(b))
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkStrings checks labels or annotations after a conversion. Unchanged entries are accepted as
// they are.
func checkStrings(name string, before, after json.Value) error {
	if nothingIn(after) || bytes.Equal(before, after) {
		return nil
	}
	if after.Kind() != json.KindObject {
		return fmt.Errorf("metadata.%s is %s, want object", name, after.Kind())
	}
	old, err := membersOf(before, "metadata."+name+".")
	if err != nil {
		return fmt.Errorf("the object to convert: %w", err)
	}
	current, err := membersOf(after, "metadata."+name+".")
	if err != nil {
		return err
	}
	changed := len(old) != len(current)
	texts := make(map[string]string, len(current))
	for key, value := range current {
		text, ok := value.Text()
		if !ok {
			return fmt.Errorf("metadata.%s[%s] is %s, want string", name, oneLine(fmt.Sprintf("%.100s", key)), value.Kind())
		}
		was, ok := old[key].Text()
		changed = changed || !ok || was != text
		texts[key] = text
	}
	if !changed {
		return nil
	}
	path, errs := field.NewPath("metadata", name), field.ErrorList(nil)
	if name == "labels" {
		errs = metav1validation.ValidateLabels(texts, path)
	} else {
		errs = apivalidation.ValidateAnnotations(texts, path)
	}
	return errs.ToAggregate()
}
