package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Config is the member dialect of a plugin's configuration: the configuration of one dialect, by
// its Member.
type Config map[string]json.RawMessage

// Decode returns the dialects that c configures, and their decoded configuration; none if c is
// empty. The error has all mistakes with their paths, and those of a dialect that is not among
// dialects.
func (c Config) Decode(dialects []*Dialect) (member string, config any, err error) {
	if len(c) == 0 {
		return "", nil, nil
	}
	names := slices.Sorted(maps.Keys(c))
	if len(names) > 1 {
		return "", nil, fmt.Errorf("dialect has %s, want one of them", strings.Join(names, " and "))
	}
	member = names[0]
	var known []string
	for _, d := range dialects {
		if d.Member == member {
			config, err := d.decode(c[member])
			return member, config, below("dialect."+member, err)
		}
		if !slices.Contains(known, d.Member) {
			known = append(known, d.Member)
		}
	}
	if len(known) == 0 {
		return "", nil, fmt.Errorf("dialect.%.80s: this program supports no dialects", member)
	}
	text := "unknown field %s" + nearest.Hint(", ", member, known)
	if text == "unknown field %s" {
		text += ", want one of " + strings.Join(known, ", ")
	}
	return "", nil, &configfile.Error{Mistakes: []configfile.Mistake{{Path: "dialect." + cut.Text(member, 80), Text: text}}}
}

func (d *Dialect) decode(raw json.RawMessage) (any, error) {
	if d.Decode == nil {
		return Strict[struct{}](raw)
	}
	return d.Decode(raw)
}

// below adds a path to the mistakes of err.
func below(path string, err error) error {
	var of *configfile.Error
	if !errors.As(err, &of) {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	}
	mistakes := slices.Clone(of.Mistakes)
	for i := range mistakes {
		if m := &mistakes[i]; m.Path == "" {
			m.Path = path
		} else {
			m.Path = path + "." + m.Path
		}
	}
	return &configfile.Error{Mistakes: mistakes}
}

// Strict decodes the configuration of a dialect into a struct, by the rules of package configfile.
// null is a mistake. A method Check of *T returns further mistakes.
func Strict[T any](config json.RawMessage) (*T, error) {
	if string(bytes.TrimSpace(config)) == "null" {
		return nil, errors.New("it is null: leave it out, or write {}")
	}
	to := new(T)
	if err := configfile.JSON(config, to); err != nil {
		return nil, err
	}
	if checked, ok := any(to).(interface{ Check() error }); ok {
		if err := checked.Check(); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// Kind is a kind of objects that a policy may see.
type Kind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Namespaces are the namespaces whose objects the policy may see. nil means all, and is the
	// only value for a kind without namespaces. A policy that asks for another namespace, or for
	// all if it may see only some, gets an error, since part of a list would be taken for the
	// whole.
	Namespaces []string `json:"namespaces,omitempty"`
}

// GroupVersionKind returns the kind without its namespaces.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
}

// CheckKinds returns all mistakes in a list of kinds, the member contextAwareResources.
func CheckKinds(kinds []Kind) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("contextAwareResources "+format, args...))
	}
	seen := map[string]bool{}
	for _, k := range kinds {
		if _, err := schema.ParseGroupVersion(k.APIVersion); err != nil || k.Kind == "" || k.APIVersion == "" {
			fail("has apiVersion %q, kind %q", k.APIVersion, k.Kind)
		}
		name := k.APIVersion + " " + k.Kind
		if seen[name] {
			fail("has %.200s twice", name)
		}
		seen[name] = true
		if k.Namespaces != nil && len(k.Namespaces) == 0 {
			fail("has no namespaces of %.200s: leave them out for all", name)
		}
		for _, namespace := range k.Namespaces {
			if problems := validation.ValidateNamespaceName(namespace, false); len(problems) != 0 {
				fail("has namespace %.80q of %.200s: %s", namespace, name, problems[0])
			}
		}
	}
	return errs
}
