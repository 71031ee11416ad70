package lookup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	content "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubewasm/kubewasm/host"
)

// Apply changes an object for a guest: it has all annotations, or all fields of the status, that the
// guest's plugin manages.
type Apply struct {
	Resource, Namespace, Name string
	// Annotations are nil for the status, a JSON object.
	Annotations map[string]string
	Status      json.RawMessage
}

// The values of an [host.ObjectGrant]'s Apply.
const (
	applyStatus      = "status"
	applyAnnotations = "annotations"
)

// ParseApply reads the question of apply_annotations, or of apply_status.
func ParseApply(question string, status bool) (*Apply, error) {
	if len(question) > maxQuestionBytes {
		return nil, fmt.Errorf("%d bytes are more than %d", len(question), maxQuestionBytes)
	}
	parts := strings.Split(question, "\x00")
	if len(parts) < 4 {
		return nil, fmt.Errorf("%.80q is not a resource, a namespace, a name and more", question)
	}
	a := &Apply{Resource: parts[0], Namespace: parts[1], Name: parts[2]}
	if a.Name == "" {
		return nil, errors.New("the object has no name")
	}
	if status {
		a.Status = json.RawMessage(strings.Join(parts[3:], "\x00"))
		var object map[string]json.RawMessage
		if err := json.Unmarshal(a.Status, &object); err != nil || object == nil {
			return nil, fmt.Errorf("the status %.80q is no JSON object", a.Status)
		}
		return a, nil
	}
	if parts = parts[3:]; len(parts)%2 != 1 || parts[len(parts)-1] != "" {
		return nil, errors.New("the annotations are not pairs of a key and a value with a NUL after each")
	}
	a.Annotations = map[string]string{}
	for ; len(parts) > 1; parts = parts[2:] {
		if problems := content.IsQualifiedName(strings.ToLower(parts[0])); len(problems) != 0 {
			return nil, fmt.Errorf("the annotation %.80q: %s", parts[0], problems[0])
		}
		if _, ok := a.Annotations[parts[0]]; ok {
			return nil, fmt.Errorf("the annotation %.80q is there twice", parts[0])
		}
		a.Annotations[parts[0]] = strings.ToValidUTF8(parts[1], "\uFFFD")
	}
	return a, nil
}

// Allowed returns an error unless the grants name what is to be applied.
func (a *Apply) Allowed(grants []host.ObjectGrant) error {
	for _, g := range grants {
		if g.Resource != a.Resource || len(g.Apply) == 0 {
			continue
		}
		if g.Namespaces != nil && !contains(g.Namespaces, a.Namespace) {
			return fmt.Errorf("the plugin's configuration does not name the objects %q of the namespace %.80q", a.Resource, a.Namespace)
		}
		if a.Annotations == nil {
			if contains(g.Apply, applyStatus) {
				return nil
			}
			break
		}
		for key := range a.Annotations {
			if !contains(g.Apply, applyAnnotations) && !contains(g.Apply, applyAnnotations+"["+key+"]") {
				return fmt.Errorf("the plugin's configuration does not let it apply the annotation %.80q of %q", key, a.Resource)
			}
		}
		return nil
	}
	what := applyStatus
	if a.Annotations != nil {
		what = applyAnnotations
	}
	return fmt.Errorf("the plugin's configuration does not let it apply %s of %.80q", what, a.Resource)
}

func contains(list []string, text string) bool {
	for _, s := range list {
		if s == text {
			return true
		}
	}
	return false
}

// checkApply returns every mistake of what may be applied.
func checkApply(g host.ObjectGrant) (errs []error) {
	for _, a := range g.Apply {
		key, isKey := strings.CutPrefix(a, applyAnnotations+"[")
		if isKey {
			key, isKey = strings.CutSuffix(key, "]")
		}
		if a != applyStatus && a != applyAnnotations && (!isKey || len(content.IsQualifiedName(strings.ToLower(key))) != 0) {
			errs = append(errs, fmt.Errorf("objects: apply of %.80q has %.80q, want status, annotations or annotations[KEY]", g.Resource, a))
		}
		if g.Query != nil {
			errs = append(errs, fmt.Errorf("objects: the values of %.80q cannot be changed", g.Resource))
		}
	}
	return errs
}
